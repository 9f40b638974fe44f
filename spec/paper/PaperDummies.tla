---------------------------- MODULE PaperDummies ----------------------------
(* A dummy is meant to move an idle target forward.  As published it is      *)
(* pushed into the queue, and nothing sends it: sendNext is called for the   *)
(* targets of an entry, and when a write to this target completes.           *)
EXTENDS Integers, Sequences
CONSTANTS EntryCount, Every, SendAfterPush
VARIABLES current, queue, acked
vars == <<current, queue, acked>>

Init == current = 0 /\ queue = <<>> /\ acked = 0

\* An entry for another target, and the round of dummies after it.
Dispatch ==
  LET e == current + 1
      pushed == IF e % Every = 0 /\ acked < e - Every THEN Append(queue, e) ELSE queue IN
  /\ current < EntryCount /\ current' = e
  /\ IF SendAfterPush /\ pushed # <<>> THEN acked' = pushed[Len(pushed)] /\ queue' = <<>>
     ELSE queue' = pushed /\ UNCHANGED acked

Spec == Init /\ [][Dispatch]_vars /\ WF_vars(Dispatch)
IdleTargetAdvances == <>(acked >= EntryCount - 2 * Every)
=============================================================================

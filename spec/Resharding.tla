----------------------------- MODULE Resharding -----------------------------
(* A record in the log, at index `moved`, moves all keys from target "a" to  *)
(* target "b".  The targets lag by themselves, and a player that restarts    *)
(* reads old entries again, so who gets an entry must follow from its place  *)
(* in the log.  Routed by what the player knows at the moment, an entry goes *)
(* to the wrong target, or to both.                                          *)
EXTENDS Integers, Sequences
CONSTANTS EntryCount, ByPosition
VARIABLES last, moved, known, index, applied
vars == <<last, moved, known, index, applied>>
Targets == {"a", "b"}
Owner(e) == IF moved # 0 /\ e > moved THEN "b" ELSE "a"

Init == last = 0 /\ moved = 0 /\ known = "a" /\ index = [t \in Targets |-> 0] /\ applied = [t \in Targets |-> <<>>]
AppendLog == last < EntryCount /\ last' = last + 1 /\ UNCHANGED <<moved, known, index, applied>>
Move == moved = 0 /\ last < EntryCount /\ last' = last + 1 /\ moved' = last + 1 /\ UNCHANGED <<known, index, applied>>
Learn == known = "a" /\ moved # 0 /\ known' = "b" /\ UNCHANGED <<last, moved, index, applied>>
Deliver(t) ==
  LET e == index[t] + 1 IN
  /\ index[t] < last /\ index' = [index EXCEPT ![t] = e]
  /\ applied' = IF e # moved /\ t = (IF ByPosition THEN Owner(e) ELSE known)
                THEN [applied EXCEPT ![t] = Append(@, e)] ELSE applied
  /\ UNCHANGED <<last, moved, known>>

Next == AppendLog \/ Move \/ Learn \/ \E t \in Targets : Deliver(t)
Spec == Init /\ [][Next]_vars /\ WF_vars(Next)
OneOwner == \A t \in Targets : applied[t] = SelectSeq([i \in 1..index[t] |-> i], LAMBDA i : i # moved /\ Owner(i) = t)
=============================================================================

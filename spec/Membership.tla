----------------------------- MODULE Membership -----------------------------
(* Target "a" is a member from the start.  Target "b" is added with a copy   *)
(* of a's state at some index, may be removed, and may come back with what   *)
(* it had.  Delivery is one step here; LogPlayer is about that.              *)
EXTENDS Integers, Sequences
CONSTANTS
  EntryCount, RemovalsMax,
  Reserve,   \* a joining target holds the trim point at its index while its copy is made
  Refuse,    \* who was removed comes back only after it is filled anew
  SkipGap    \* (without Refuse) a target below the trim point starts after it instead of failing
VARIABLES last, trim, member, index, applied, copy, removals, missed
vars == <<last, trim, member, index, applied, copy, removals, missed>>
Targets == {"a", "b"}
Min(S) == CHOOSE x \in S : \A y \in S : x <= y

Init ==
  /\ last = 0 /\ trim = 0 /\ removals = 0 /\ missed = FALSE /\ copy = [index |-> 0, applied |-> <<>>]
  /\ member = [t \in Targets |-> IF t = "a" THEN "yes" ELSE "no"]
  /\ index = [t \in Targets |-> 0] /\ applied = [t \in Targets |-> <<>>]

AppendLog == last < EntryCount /\ last' = last + 1 /\ UNCHANGED <<trim, member, index, applied, copy, removals, missed>>

Deliver(t) ==
  /\ member[t] = "yes" /\ index[t] < last
  /\ IF index[t] < trim /\ ~SkipGap THEN missed' = TRUE /\ UNCHANGED <<index, applied>>
     ELSE LET e == IF index[t] < trim THEN trim + 1 ELSE index[t] + 1 IN
          /\ e <= last /\ index' = [index EXCEPT ![t] = e] /\ applied' = [applied EXCEPT ![t] = Append(@, e)]
          /\ UNCHANGED missed
  /\ UNCHANGED <<last, trim, member, copy, removals>>

Held == {index[t] : t \in {u \in Targets : member[u] = "yes"}}
        \cup (IF Reserve /\ member["b"] = "copying" THEN {copy.index} ELSE {})
TrimLog == Min(Held) > trim /\ trim' = Min(Held) /\ UNCHANGED <<last, member, index, applied, copy, removals, missed>>

StartCopy ==
  /\ member["b"] \in {"no", "reseed"} /\ member' = [member EXCEPT !["b"] = "copying"]
  /\ copy' = [index |-> index["a"], applied |-> applied["a"]]
  /\ UNCHANGED <<last, trim, index, applied, removals, missed>>

Add ==
  /\ member["b"] = "copying" /\ member' = [member EXCEPT !["b"] = "yes"]
  /\ index' = [index EXCEPT !["b"] = copy.index] /\ applied' = [applied EXCEPT !["b"] = copy.applied]
  /\ copy' = [index |-> 0, applied |-> <<>>] /\ UNCHANGED <<last, trim, removals, missed>>

Remove ==
  /\ member["b"] = "yes" /\ removals < RemovalsMax /\ removals' = removals + 1
  /\ member' = [member EXCEPT !["b"] = "removed"] /\ UNCHANGED <<last, trim, index, applied, copy, missed>>

Return ==
  /\ member["b"] = "removed" /\ member' = [member EXCEPT !["b"] = IF Refuse THEN "reseed" ELSE "yes"]
  /\ UNCHANGED <<last, trim, index, applied, copy, removals, missed>>

Next == AppendLog \/ TrimLog \/ StartCopy \/ Add \/ Remove \/ Return \/ \E t \in Targets : Deliver(t)
Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

ExactlyOnce   == \A t \in Targets : applied[t] = [i \in 1..index[t] |-> i]
NoTrimmedRead == ~missed
TrimSafe      == \A t \in Targets : member[t] = "yes" => trim <= index[t]
EverythingArrives == <>(\A t \in Targets : member[t] = "yes" /\ index[t] = EntryCount)
=============================================================================

------------------------------ MODULE Takeover ------------------------------
(* Two players that both believe in themselves, one target, any number of    *)
(* sessions.  Fenced sessions keep it safe; the question is progress.        *)
(* Without an order between players each can take the target from the other  *)
(* for ever, and nothing is ever applied.                                    *)
EXTENDS Integers
CONSTANTS EntryCount, EpochsOrdered
VARIABLES index, owner, epoch, alive, sent
vars == <<index, owner, epoch, alive, sent>>
Players == {1, 2}

Init == index = 0 /\ owner = 0 /\ epoch = 0 /\ alive = [p \in Players |-> TRUE] /\ sent = [p \in Players |-> 0]

Open(p) ==
  /\ alive[p] /\ owner # p
  /\ IF EpochsOrdered /\ p < epoch
     THEN alive' = [alive EXCEPT ![p] = FALSE] /\ UNCHANGED <<index, owner, epoch, sent>>
     ELSE /\ owner' = p /\ epoch' = (IF p > epoch THEN p ELSE epoch)
          /\ sent' = [q \in Players |-> 0]     \* the older session ends, with what was on its way
          /\ UNCHANGED <<index, alive>>

Send(p) ==
  /\ alive[p] /\ owner = p /\ sent[p] = 0 /\ index < EntryCount
  /\ sent' = [sent EXCEPT ![p] = index + 1] /\ UNCHANGED <<index, owner, epoch, alive>>

Apply(p) ==
  /\ owner = p /\ sent[p] # 0 /\ index' = sent[p] /\ sent' = [sent EXCEPT ![p] = 0]
  /\ UNCHANGED <<owner, epoch, alive>>

Next == \E p \in Players : Open(p) \/ Send(p) \/ Apply(p)
Spec == Init /\ [][Next]_vars /\ \A p \in Players : WF_vars(Open(p)) /\ WF_vars(Send(p)) /\ WF_vars(Apply(p))
EverythingArrives == <>(index = EntryCount)
=============================================================================

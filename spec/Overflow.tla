------------------------------ MODULE Overflow ------------------------------
(* A slow target under an endless main stream: what becomes of it when its   *)
(* queue is full?  "demote" keeps the session and the queue and reads the    *)
(* rest from the log.  "suspend" drops both and recovers from the last ack:  *)
(* new entries then fill the queue again before a missed one is delivered.   *)
EXTENDS Integers
CONSTANTS QueueCountMax, BacklogMax, WhenFull
VARIABLES state, backlog, queued, parity     \* the backlog is counted up to BacklogMax; parity flips at each delivery
vars == <<state, backlog, queued, parity>>

AtMost(n) == IF n > BacklogMax THEN BacklogMax ELSE n
Init == state = "LIVE" /\ backlog = 0 /\ queued = 0 /\ parity = 0

Main ==
  /\ UNCHANGED parity
  /\ IF state \in {"SUSPENDED", "CATCHING_UP"} THEN backlog' = AtMost(backlog + 1) /\ UNCHANGED <<state, queued>>
     ELSE IF queued < QueueCountMax THEN queued' = queued + 1 /\ UNCHANGED <<state, backlog>>
     ELSE IF WhenFull = "demote" THEN state' = "CATCHING_UP" /\ backlog' = 1 /\ UNCHANGED queued
     ELSE state' = "SUSPENDED" /\ backlog' = AtMost(backlog + queued + 1) /\ queued' = 0

\* The published recovery: missed entries are delivered beside a queue that the main stream fills.
Reconnect == state = "SUSPENDED" /\ state' = "RECOVERING" /\ UNCHANGED <<backlog, queued, parity>>
Recovered == state = "RECOVERING" /\ backlog = 0 /\ state' = "LIVE" /\ UNCHANGED <<backlog, queued, parity>>

Read == /\ state = "CATCHING_UP" /\ backlog > 0 /\ queued < QueueCountMax
        /\ backlog' = backlog - 1 /\ queued' = queued + 1 /\ UNCHANGED <<state, parity>>
Join == state = "CATCHING_UP" /\ backlog = 0 /\ state' = "LIVE" /\ UNCHANGED <<backlog, queued, parity>>

Deliver ==
  \/ state = "RECOVERING" /\ backlog > 0 /\ backlog' = backlog - 1 /\ parity' = 1 - parity /\ UNCHANGED <<state, queued>>
  \/ state \in {"LIVE", "CATCHING_UP"} /\ queued > 0 /\ queued' = queued - 1 /\ parity' = 1 - parity
     /\ UNCHANGED <<state, backlog>>

Next == Main \/ Reconnect \/ Recovered \/ Read \/ Join \/ Deliver
Spec == /\ Init /\ [][Next]_vars /\ WF_vars(Main) /\ WF_vars(Reconnect) /\ WF_vars(Recovered)
        /\ WF_vars(Read) /\ WF_vars(Join) /\ WF_vars(Deliver)

MemoryBound    == queued <= QueueCountMax
DeliveryGoesOn == ([]<>(parity = 0)) /\ ([]<>(parity = 1))
=============================================================================

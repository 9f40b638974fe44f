---------------------------- MODULE PaperTargets ----------------------------
(* The published player with several targets: each has a normal and a catch- *)
(* up queue and a state N, RF, FC or S.  A log entry goes to some of the     *)
(* targets.  Here are also the parts that the published model leaves out:    *)
(* dummies, the restart of the player, and the trim of the log.  Every       *)
(* action is one critical section; PaperQueue looks inside them.  The target *)
(* is the published one: it checks nothing.                                  *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Targets, Dest, Every, FailuresMax, RestartsMax,
  Dummies,        \* "none", or the queue that they are pushed into: "normal" or "catchup"
  DummiesLocked,  \* a round of dummies excludes dispatch; as published it does not
  RecoveryFeeds,  \* a recovery stream feeds its "own" target, or "all" targets of the entry as published
  ReadersStop,    \* a recovery reader of an older term stops before it reads on
  RestartCurrent, \* after a restart of the player current_index is the "start" or "zero": it is not published
  Trim            \* "none", or up to: "every" target's ack, those that are "up", the "largest", or "current"

Last == Len(Dest)
EntriesFor(t) == SelectSeq([i \in 1..Last |-> i], LAMBDA i : t \in Dest[i])
Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Max(S) == CHOOSE x \in S : \A y \in S : x >= y
NewQueue == [state |-> "N", term |-> 1, normal |-> <<>>, catchup |-> <<>>]

VARIABLES
  next, current,             \* of the main stream
  queue, acked, stream,      \* of the player, for each target
  index, applied, up,        \* of each target
  readers,                   \* recovery readers: target, term, next, to
  dummy, dummiesAt,          \* a dummy that is computed and not yet pushed; the last round
  trim, failures, restarts, missed
player  == <<next, current, queue, acked>>
others  == <<dummy, dummiesAt, trim, failures, restarts>>
vars == <<player, stream, index, applied, up, readers, others, missed>>

Init ==
  /\ next = 1 /\ current = 0 /\ queue = [t \in Targets |-> NewQueue] /\ acked = [t \in Targets |-> 0]
  /\ stream = [t \in Targets |-> <<>>] /\ index = [t \in Targets |-> 0] /\ applied = [t \in Targets |-> <<>>]
  /\ up = [t \in Targets |-> TRUE] /\ readers = {} /\ dummy = [t \in Targets |-> 0] /\ dummiesAt = 0
  /\ trim = 0 /\ failures = 0 /\ restarts = 0 /\ missed = FALSE

Real(i)  == [index |-> i, dummy |-> FALSE]
Dummy(i) == [index |-> i, dummy |-> TRUE]
PushNormal(q, e)  == IF q.state = "S" THEN q ELSE [q EXCEPT !.normal = Append(@, e)]
PushCatchup(q, e, term) == IF q.state = "S" \/ term # q.term THEN q ELSE [q EXCEPT !.catchup = Append(@, e)]
Wanted(t, e) == t \in Dest[e] /\ acked[t] < e

----------------------------------------------------------------------------
Dispatch ==
  /\ next <= Last /\ missed' = (missed \/ next <= trim)
  /\ queue' = [t \in Targets |-> IF Wanted(t, next) THEN PushNormal(queue[t], Real(next)) ELSE queue[t]]
  /\ current' = next /\ next' = next + 1
  /\ UNCHANGED <<acked, stream, index, applied, up, readers, others>>

Expired(r) == queue[r.target].term # r.term

RecoveryStops(r) ==
  /\ ReadersStop /\ Expired(r) /\ readers' = readers \ {r}
  /\ UNCHANGED <<player, stream, index, applied, up, others, missed>>

RecoveryReads(r) ==
  /\ r.next <= r.to /\ (ReadersStop => ~Expired(r)) /\ missed' = (missed \/ r.next <= trim)
  /\ queue' = [t \in Targets |-> IF Wanted(t, r.next) /\ (t = r.target \/ RecoveryFeeds = "all")
                                 THEN PushCatchup(queue[t], Real(r.next), r.term) ELSE queue[t]]
  /\ readers' = (readers \ {r}) \cup {[r EXCEPT !.next = @ + 1]}
  /\ UNCHANGED <<next, current, acked, stream, index, applied, up, others>>

FetchingCompleted(r) ==
  LET q == queue[r.target] IN
  /\ r.next > r.to /\ readers' = readers \ {r}
  /\ queue' = IF q.state = "RF" /\ ~Expired(r)
              THEN [queue EXCEPT ![r.target].state = IF q.catchup = <<>> THEN "N" ELSE "FC"] ELSE queue
  /\ UNCHANGED <<next, current, acked, stream, index, applied, up, others, missed>>

SendNext(t) ==
  LET q == queue[t] IN
  /\ \/ /\ q.state \in {"RF", "FC"} /\ q.catchup # <<>>
        /\ stream' = [stream EXCEPT ![t] = Append(@, Head(q.catchup))]
        /\ queue' = [queue EXCEPT ![t].catchup = Tail(@),
                                  ![t].state = IF q.state = "FC" /\ Len(q.catchup) = 1 THEN "N" ELSE @]
     \/ /\ q.state = "N" /\ q.normal # <<>>
        /\ stream' = [stream EXCEPT ![t] = Append(@, Head(q.normal))]
        /\ queue' = [queue EXCEPT ![t].normal = Tail(@)]
  /\ UNCHANGED <<next, current, acked, index, applied, up, readers, others, missed>>

Apply(t) ==
  LET e == Head(stream[t]) IN
  /\ stream[t] # <<>> /\ stream' = [stream EXCEPT ![t] = Tail(@)]
  /\ applied' = IF e.dummy THEN applied ELSE [applied EXCEPT ![t] = Append(@, e.index)]
  /\ index' = [index EXCEPT ![t] = e.index] /\ acked' = [acked EXCEPT ![t] = e.index]
  /\ UNCHANGED <<next, current, queue, up, readers, others, missed>>

----------------------------------------------------------------------------
PushDummy(q, i) == IF Dummies = "normal" THEN PushNormal(q, Dummy(i)) ELSE PushCatchup(q, Dummy(i), q.term)

DummyRound ==
  LET behind == {t \in Targets : acked[t] < current - Every} IN
  /\ Dummies # "none" /\ current > 0 /\ current % Every = 0 /\ dummiesAt # current /\ dummiesAt' = current
  /\ IF DummiesLocked
     THEN /\ queue' = [t \in Targets |-> IF t \in behind THEN PushDummy(queue[t], current) ELSE queue[t]]
          /\ UNCHANGED dummy
     ELSE dummy' = [t \in Targets |-> IF t \in behind THEN current ELSE 0] /\ UNCHANGED queue
  /\ UNCHANGED <<next, current, acked, stream, index, applied, up, readers, trim, failures, restarts, missed>>

PushLate(t) ==
  /\ dummy[t] # 0 /\ dummy' = [dummy EXCEPT ![t] = 0]
  /\ queue' = [queue EXCEPT ![t] = PushDummy(@, dummy[t])]
  /\ UNCHANGED <<next, current, acked, stream, index, applied, up, readers, dummiesAt, trim, failures, restarts, missed>>

----------------------------------------------------------------------------
Fail(t) ==
  /\ failures < FailuresMax /\ failures' = failures + 1 /\ up[t] /\ up' = [up EXCEPT ![t] = FALSE]
  /\ stream' = [stream EXCEPT ![t] = <<>>]
  /\ queue' = [queue EXCEPT ![t] = [@ EXCEPT !.state = "S", !.normal = <<>>, !.catchup = <<>>]]
  /\ UNCHANGED <<next, current, acked, index, applied, readers, dummy, dummiesAt, trim, restarts, missed>>

Recover(t) ==
  LET term == queue[t].term + 1 IN
  /\ ~up[t] /\ up' = [up EXCEPT ![t] = TRUE] /\ acked' = [acked EXCEPT ![t] = index[t]]
  /\ queue' = [queue EXCEPT ![t] = [@ EXCEPT !.term = term, !.state = IF index[t] < current THEN "RF" ELSE "N"]]
  /\ readers' = IF index[t] < current
                THEN readers \cup {[target |-> t, term |-> term, next |-> index[t] + 1, to |-> current]} ELSE readers
  /\ UNCHANGED <<next, current, stream, index, applied, others, missed>>

PlayerRestart ==     \* from the smallest index of the targets that are up
  LET start == Min({index[t] : t \in {u \in Targets : up[u]}}) IN
  /\ restarts < RestartsMax /\ restarts' = restarts + 1 /\ \E t \in Targets : up[t]
  /\ next' = start + 1 /\ current' = (IF RestartCurrent = "start" THEN start ELSE 0)
  /\ queue' = [t \in Targets |-> IF up[t] THEN NewQueue ELSE [NewQueue EXCEPT !.state = "S"]]
  /\ acked' = [t \in Targets |-> IF up[t] THEN index[t] ELSE 0]
  /\ stream' = [t \in Targets |-> <<>>] /\ readers' = {} /\ dummy' = [t \in Targets |-> 0] /\ dummiesAt' = 0
  /\ UNCHANGED <<index, applied, up, trim, failures, missed>>

TrimLog ==
  LET to == CASE Trim = "every"   -> Min({acked[t] : t \in Targets})
              [] Trim = "up"      -> IF \E t \in Targets : up[t] THEN Min({acked[t] : t \in {u \in Targets : up[u]}}) ELSE 0
              [] Trim = "largest" -> Max({acked[t] : t \in Targets})
              [] Trim = "current" -> current
              [] OTHER            -> 0 IN
  /\ to > trim /\ trim' = to
  /\ UNCHANGED <<player, stream, index, applied, up, readers, dummy, dummiesAt, failures, restarts, missed>>

Next == \/ Dispatch \/ DummyRound \/ PlayerRestart \/ TrimLog
        \/ \E r \in readers : RecoveryReads(r) \/ FetchingCompleted(r) \/ RecoveryStops(r)
        \/ \E t \in Targets : SendNext(t) \/ Apply(t) \/ PushLate(t) \/ Fail(t) \/ Recover(t)
Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

ExactlyOnce   == \A t \in Targets : /\ Len(applied[t]) <= Len(EntriesFor(t))
                                    /\ applied[t] = SubSeq(EntriesFor(t), 1, Len(applied[t]))
NoTrimmedRead == ~missed
QueueBound    == \A t \in Targets : Len(queue[t].normal) <= 2     \* nothing in the design keeps it, or any other bound
EverythingArrives == <>(\A t \in Targets : applied[t] = EntriesFor(t))
=============================================================================

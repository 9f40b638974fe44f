----------------------------- MODULE LogPlayer -----------------------------
(* The protocol that plays a log into its targets: every entry reaches each  *)
(* of its targets exactly once and in order.                                 *)
(*                                                                           *)
(* A player has one bounded queue for each target, in one of three states:   *)
(*                                                                           *)
(*   SUSPENDED --Opened--> CATCHING_UP --covered reached current--> LIVE     *)
(*       ^                     ^                                     |       *)
(*       |                     +------------- queue full ------------+       *)
(*       +---------------- session lost, from any state -------------+       *)
(*                                                                           *)
(* and three indexes, acked <= sent <= covered: every entry up to covered    *)
(* that is for the target is applied, on its way, or queued.                 *)
(*                                                                           *)
(* A session is <<epoch, target, term>>: a player is named by its epoch, and *)
(* the terms of one player with one target rise.  A session has two ends.    *)
(* toTarget[s] is what the target's end can still read, toPlayer[s] what the *)
(* player's end can still read; each end vanishes by itself, so that either  *)
(* side may learn first, or never, that the session is over.                 *)
(*                                                                           *)
(* Nothing is bounded here: MCLogPlayer adds bounds and mutants by replacing *)
(* definitions of this module, TraceLogPlayer replays recorded runs.         *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Players,           \* a set of numbers: the epochs
  Targets,           \* a set of names
  Dest,              \* a sequence: log index -> the targets that the entry is for
  Absent,            \* the indexes that hold no entry: a log's indexes rise but may have gaps
  QueueCountMax,     \* entries in one queue
  WindowBatchesMax,  \* batches sent and not acked in one session
  BatchCountMax      \* entries in one batch

Last    == Len(Dest)
Indexes == 0..Last
Entries == (1..Last) \ Absent

ASSUME Absent \subseteq 1..Last /\ \A i \in Absent : Dest[i] = {}
ASSUME \A i \in 1..Last : Dest[i] \subseteq Targets

VARIABLES
  trim,      \* entries up to here are gone from the log
  player,    \* epoch -> status, and current: the main stream has dispatched everything up to it
  queue,     \* epoch, target -> state, term, covered, sent, acked, entries, window (ends of unacked batches)
  reader,    \* epoch, target -> what the catch-up reader holds: entries (after, through], fetched for this term
  toTarget,  \* session -> opening (its Open is not yet read), batches
  toPlayer,  \* session -> trim as read before the Open, opened, acks, ended
  target,    \* target -> index, applied entries, epoch and term of the last accepted session; all durable
  reseed     \* a player was told that a target needs entries that are gone
vars == <<trim, player, queue, reader, toTarget, toPlayer, target, reseed>>

----------------------------------------------------------------------------
None        == -1
Min(S)      == CHOOSE x \in S : \A y \in S : x <= y
Max(S)      == CHOOSE x \in S : \A y \in S : x >= y
Put(f, s, v)   == (s :> v) @@ f
Remove(f, S)   == [s \in DOMAIN f \ S |-> f[s]]
EntriesFor(t, after, through) ==     \* the entries of (after, through] that are for t
  SelectSeq([i \in 1..(through - after) |-> after + i], LAMBDA i : t \in Dest[i])

Epoch(s)  == s[1]
Name(s)   == s[2]
Term(s)   == s[3]

Idle      == [term |-> 0, after |-> 0, through |-> 0]
NewQueue  == [state |-> "SUSPENDED", term |-> 0, covered |-> 0, sent |-> 0, acked |-> 0,
              entries |-> <<>>, window |-> <<>>]

Init ==
  /\ trim = 0 /\ reseed = FALSE
  /\ player = [p \in Players |-> [status |-> "waiting", current |-> 0]]
  /\ queue  = [p \in Players |-> [t \in Targets |-> NewQueue]]
  /\ reader = [p \in Players |-> [t \in Targets |-> Idle]]
  /\ toTarget = <<>> /\ toPlayer = <<>>
  /\ target = [t \in Targets |-> [index |-> 0, applied |-> <<>>, epoch |-> 0, term |-> 0]]

----------------------------------------------------------------------------
(* The player: start, sessions, stop *)

Playing(p)    == player[p].status = "playing"
Session(p, t) == <<p, t, queue[p][t].term>>
HasSession(p, t) == Session(p, t) \in DOMAIN toPlayer

\* A player starts at any index: a target that stands elsewhere catches up.  Players may start in any
\* order, and whether an older one still plays does not matter.
Start(p, at) ==
  /\ player[p].status = "waiting"
  /\ player' = [player EXCEPT ![p] = [status |-> "playing", current |-> at]]
  /\ UNCHANGED <<trim, queue, reader, toTarget, toPlayer, target, reseed>>

\* A new stream, whose first message is Open(epoch, term).  The trim point is read before the Open is sent.
Open(p, t, term) ==
  LET s == <<p, t, term>> IN
  /\ Playing(p) /\ ~HasSession(p, t) /\ term > queue[p][t].term
  /\ queue' = [queue EXCEPT ![p][t].term = term]
  /\ toTarget' = Put(toTarget, s, [opening |-> TRUE, batches |-> <<>>])
  /\ toPlayer' = Put(toPlayer, s, [trim |-> trim, opened |-> None, acks |-> {}, ended |-> "no"])
  /\ UNCHANGED <<trim, player, reader, target, reseed>>

\* A target below the trim point must be filled anew.  Only a trim point that was read before the Open can
\* tell: entries may well be trimmed between the answer and its arrival, if a newer player delivered them.
TrimForReseed(s) == toPlayer[s].trim

ReceiveOpened(p, t) ==
  LET s == Session(p, t)
      i == toPlayer[s].opened IN
  /\ Playing(p) /\ HasSession(p, t) /\ i # None
  /\ queue' = [queue EXCEPT ![p][t] = [NewQueue EXCEPT !.state = "CATCHING_UP", !.term = Term(s),
                                                       !.covered = i, !.sent = i, !.acked = i]]
  /\ toPlayer' = [toPlayer EXCEPT ![s].opened = None]
  /\ reseed' = (reseed \/ i < TrimForReseed(s))
  /\ UNCHANGED <<trim, player, reader, toTarget, target>>

\* What remains of a queue without a session: the term, and the ack as a lower bound for the trim.
Suspended(x) == [NewQueue EXCEPT !.term = x.term, !.acked = x.acked, !.sent = x.acked, !.covered = x.acked]

\* The player's end of a session is over, for whatever reason; the target may go on reading the other end.
Suspend(p, t) ==
  /\ Playing(p) /\ HasSession(p, t)
  /\ queue' = [queue EXCEPT ![p][t] = Suspended(@)]
  /\ toPlayer' = Remove(toPlayer, {Session(p, t)})
  /\ UNCHANGED <<trim, player, reader, toTarget, target, reseed>>

\* A player that stops forgets everything; nothing of what it knew was durable.
Stop(p) ==
  /\ Playing(p)
  /\ player' = [player EXCEPT ![p].status = "stopped"]
  /\ queue'  = [queue EXCEPT ![p] = [t \in Targets |-> [NewQueue EXCEPT !.term = queue[p][t].term]]]
  /\ reader' = [reader EXCEPT ![p] = [t \in Targets |-> Idle]]
  /\ toPlayer' = Remove(toPlayer, {s \in DOMAIN toPlayer : Epoch(s) = p})
  /\ UNCHANGED <<trim, toTarget, target, reseed>>

\* A newer player has started, so its takeover record is in the log.  Only the log tells: the main stream comes past
\* the record, or a refusal (FENCED) makes the player look.  The word of a target alone does not stop a player.
Superseded(p) == \E q \in Players : q > p /\ player[q].status # "waiting"
StepDown(p)   == Superseded(p) /\ Stop(p)

----------------------------------------------------------------------------
(* The player: the main stream *)

HasCovered(x, e) == e <= x.covered
MustDemote(x)    == Len(x.entries) >= QueueCountMax
Demoted(x, e)    == [x EXCEPT !.state = "CATCHING_UP"]   \* keeps its session and what is queued

\* The live targets that entry e must still be queued for.
Takers(p, e) == {t \in Targets : /\ queue[p][t].state = "LIVE" /\ ~HasCovered(queue[p][t], e)
                                 /\ t \in Dest[e]}

Fed(x, t, e, demote) ==
  IF x.state # "LIVE" \/ HasCovered(x, e) THEN x
  ELSE IF t \notin Dest[e] THEN [x EXCEPT !.covered = e]
  ELSE IF demote THEN Demoted(x, e)
  ELSE [x EXCEPT !.entries = Append(@, e), !.covered = e]

\* The main stream never waits for a target: one whose queue is full, by count or by bytes, is demoted.
\* The entry may have been fetched before it was trimmed, so the trim point does not matter here.
Dispatch(p, e, demoted) ==
  /\ Playing(p) /\ e \in Entries /\ e > player[p].current
  /\ \A i \in (player[p].current + 1)..(e - 1) : i \notin Entries
  /\ demoted \subseteq Takers(p, e)
  /\ {t \in Takers(p, e) : MustDemote(queue[p][t])} \subseteq demoted
  /\ player' = [player EXCEPT ![p].current = e]
  /\ queue' = [queue EXCEPT ![p] = [t \in Targets |-> Fed(queue[p][t], t, e, t \in demoted)]]
  /\ UNCHANGED <<trim, reader, toTarget, toPlayer, target, reseed>>

LeftBehind(p, to) == {t \in Targets : queue[p][t].state = "LIVE" /\ queue[p][t].covered < to}

\* A main stream that finds itself before the trim point jumps to it: what is trimmed is durable everywhere.
\* A live target that stands lower has a session that is over; it may not stay live.
Jump(p, to) ==
  /\ Playing(p) /\ player[p].current < to /\ to <= trim
  /\ player' = [player EXCEPT ![p].current = to]
  /\ queue' = [queue EXCEPT ![p] = [t \in Targets |->
                 IF t \in LeftBehind(p, to) THEN [queue[p][t] EXCEPT !.state = "CATCHING_UP"] ELSE queue[p][t]]]
  /\ UNCHANGED <<trim, reader, toTarget, toPlayer, target, reseed>>

----------------------------------------------------------------------------
(* The player: the catch-up reader of one target *)

\* The reader fetches outside the player's step; much may happen before the entries come back.
Fetch(p, t, through) ==
  LET x == queue[p][t] IN
  /\ Playing(p) /\ x.state = "CATCHING_UP" /\ reader[p][t] = Idle
  /\ x.covered >= trim /\ x.covered < through /\ through <= Last
  /\ reader' = [reader EXCEPT ![p][t] = [term |-> x.term, after |-> x.covered, through |-> through]]
  /\ UNCHANGED <<trim, player, queue, toTarget, toPlayer, target, reseed>>

\* So what it brings is taken only for the session and the coverage that it was fetched for.
StillWanted(x, r) == x.state = "CATCHING_UP" /\ x.term = r.term /\ x.covered = r.after
HasRoom(x, t, e)  == t \in Dest[e] => Len(x.entries) < QueueCountMax
Caught(x, t, e)   == [x EXCEPT !.covered = e, !.entries = IF t \in Dest[e] THEN Append(@, e) ELSE @]

Push(p, t) ==
  LET x == queue[p][t]
      r == reader[p][t]
      e == r.after + 1 IN
  /\ Playing(p) /\ r # Idle
  /\ IF StillWanted(x, r)
     THEN /\ HasRoom(x, t, e)     \* else the reader waits
          /\ queue' = [queue EXCEPT ![p][t] = Caught(x, t, e)]
          /\ reader' = [reader EXCEPT ![p][t] = IF e = r.through THEN Idle ELSE [r EXCEPT !.after = e]]
     ELSE /\ reader' = [reader EXCEPT ![p][t] = Idle]     \* fetched for an earlier session or coverage
          /\ UNCHANGED queue
  /\ UNCHANGED <<trim, player, toTarget, toPlayer, target, reseed>>

\* The next entry is gone, so this session is not the target's last: open another.
OutOfRange(p, t) == queue[p][t].state = "CATCHING_UP" /\ queue[p][t].covered < trim /\ Suspend(p, t)

\* The test and the switch are one step, so no entry can be dispatched between them.
Join(p, t) ==
  /\ Playing(p) /\ queue[p][t].state = "CATCHING_UP" /\ queue[p][t].covered >= player[p].current
  /\ queue' = [queue EXCEPT ![p][t].state = "LIVE"]
  /\ UNCHANGED <<trim, player, reader, toTarget, toPlayer, target, reseed>>

----------------------------------------------------------------------------
(* The player: batches, acks, trim *)

\* A range may end anywhere before the next entry that is still queued.
RangeLimit(x, n) == IF n = Len(x.entries) THEN x.covered ELSE x.entries[n + 1] - 1
RangeFloor(x, n) == IF n = 0 THEN x.sent + 1 ELSE x.entries[n]

\* Batch (sent, to] with the first n queued entries.  Without entries it moves an idle target forward.
Send(p, t, n, to) ==
  LET x == queue[p][t]
      s == Session(p, t)
      b == [prev |-> x.sent, to |-> to, entries |-> SubSeq(x.entries, 1, n)] IN
  /\ Playing(p) /\ x.state # "SUSPENDED"
  /\ n <= Len(x.entries) /\ n <= BatchCountMax /\ Len(x.window) < WindowBatchesMax
  /\ RangeFloor(x, n) <= to /\ to <= RangeLimit(x, n)
  /\ queue' = [queue EXCEPT ![p][t] = [x EXCEPT !.sent = to, !.window = Append(@, to),
                                                !.entries = SubSeq(@, n + 1, Len(@))]]
  /\ toTarget' = IF s \in DOMAIN toTarget THEN [toTarget EXCEPT ![s].batches = Append(@, b)]
                 ELSE toTarget     \* written into a stream that the target no longer reads
  /\ UNCHANGED <<trim, player, reader, toPlayer, target, reseed>>

\* Only acks of the current session count.  One ack may answer for several batches, and may be repeated.
ReceiveAck(p, t, i) ==
  LET s == Session(p, t) IN
  /\ Playing(p) /\ HasSession(p, t) /\ queue[p][t].state # "SUSPENDED"
  /\ i \in toPlayer[s].acks \cup {queue[p][t].acked}
  /\ queue' = [queue EXCEPT ![p][t].acked = i, ![p][t].window = SelectSeq(@, LAMBDA to : to > i)]
  /\ toPlayer' = [toPlayer EXCEPT ![s].acks = {a \in @ : a > i}]
  /\ UNCHANGED <<trim, player, reader, toTarget, target, reseed>>

\* What every target has, present or absent, as far as this player was told.
TrimPoint(p) == Min({queue[p][t].acked : t \in Targets})

TrimLog(p, to) ==
  /\ Playing(p) /\ to <= TrimPoint(p)
  /\ trim' = Max({trim, to})
  /\ UNCHANGED <<player, queue, reader, toTarget, toPlayer, target, reseed>>

----------------------------------------------------------------------------
(* The target *)

Ended(S, why) ==     \* the player's end of these sessions will read, in the end, that they are over
  [s \in DOMAIN toPlayer |-> IF s \in S THEN [toPlayer[s] EXCEPT !.ended = why] ELSE toPlayer[s]]

Opening(s) == s \in DOMAIN toTarget /\ toTarget[s].opening
Reading(s) == s \in DOMAIN toTarget /\ ~toTarget[s].opening

MayOpen(s) == LET x == target[Name(s)] IN
              Epoch(s) > x.epoch \/ (Epoch(s) = x.epoch /\ Term(s) > x.term)

\* Accepting an Open fences every older session and reads the index, in one step.
Accept(s) ==
  /\ Opening(s) /\ MayOpen(s)
  /\ target' = [target EXCEPT ![Name(s)].epoch = Epoch(s), ![Name(s)].term = Term(s)]
  /\ toTarget' = [toTarget EXCEPT ![s].opening = FALSE]
  /\ toPlayer' = IF s \in DOMAIN toPlayer THEN [toPlayer EXCEPT ![s].opened = target[Name(s)].index]
                 ELSE toPlayer
  /\ UNCHANGED <<trim, player, queue, reader, reseed>>

Refuse(s) ==
  /\ Opening(s) /\ ~MayOpen(s)
  /\ toTarget' = Remove(toTarget, {s})
  /\ toPlayer' = Ended({s}, IF Epoch(s) < target[Name(s)].epoch THEN "FENCED" ELSE "STALE_SESSION")
  /\ UNCHANGED <<trim, player, queue, reader, target, reseed>>

SessionFits(s)  == target[Name(s)].epoch = Epoch(s) /\ target[Name(s)].term = Term(s)
RangeFits(t, b) == b.prev = target[t].index

Chained(bs) == \A k \in 2..Len(bs) : bs[k].prev = bs[k - 1].to

RECURSIVE Joined(_)
Joined(bs) == IF bs = <<>> THEN <<>> ELSE Head(bs).entries \o Joined(Tail(bs))

Acknowledged(s, i) ==
  IF s \in DOMAIN toPlayer THEN [toPlayer EXCEPT ![s].acks = @ \cup {i}] ELSE toPlayer

\* The next n batches in one transaction: entries, index and session together; one ack answers for them all.
Apply(s, n) ==
  LET t  == Name(s)
      bs == SubSeq(toTarget[s].batches, 1, n) IN
  /\ Reading(s) /\ n \in 1..Len(toTarget[s].batches)
  /\ SessionFits(s) /\ RangeFits(t, Head(bs)) /\ Chained(bs)
  /\ target' = [target EXCEPT ![t].index = bs[n].to, ![t].applied = @ \o Joined(bs)]
  /\ toTarget' = [toTarget EXCEPT ![s].batches = SubSeq(@, n + 1, Len(@))]
  /\ toPlayer' = Acknowledged(s, bs[n].to)
  /\ UNCHANGED <<trim, player, queue, reader, reseed>>

\* A stream that was fenced, or whose next batch does not start where the target stands, is ended.
Unfit(s) == \/ ~SessionFits(s)
            \/ toTarget[s].batches # <<>> /\ ~RangeFits(Name(s), Head(toTarget[s].batches))
Reject(s) ==
  /\ Reading(s) /\ Unfit(s)
  /\ toTarget' = Remove(toTarget, {s})
  /\ toPlayer' = Ended({s}, "ended")
  /\ UNCHANGED <<trim, player, queue, reader, target, reseed>>

\* The store refuses an entry after `to` for good: what precedes it is applied, up to the last place that the target can
\* name, and the session ends.
ApplyPart(s, n, to) ==
  LET t  == Name(s)
      bs == SubSeq(toTarget[s].batches, 1, n) IN
  /\ Reading(s) /\ n \in 1..Len(toTarget[s].batches)
  /\ SessionFits(s) /\ RangeFits(t, Head(bs)) /\ Chained(bs)
  /\ Head(bs).prev < to /\ to < bs[n].to /\ \E e \in (to + 1)..bs[n].to : t \in Dest[e]
  /\ \A k \in 1..n : bs[k].to # to     \* else it is Apply of fewer batches, and then the end
  /\ target' = [target EXCEPT ![t].index = to, ![t].applied = @ \o SelectSeq(Joined(bs), LAMBDA e : e <= to)]
  /\ toTarget' = Remove(toTarget, {s})
  /\ toPlayer' = Ended({s}, "ended")
  /\ UNCHANGED <<trim, player, queue, reader, reseed>>

----------------------------------------------------------------------------
(* Faults.  Suspend, at any time, is the fault of the player's end of a session. *)

\* The target's end of a session is over, with what it had not yet read.
Lose(s) ==
  /\ s \in DOMAIN toTarget
  /\ toTarget' = Remove(toTarget, {s})
  /\ toPlayer' = Ended({s}, "ended")
  /\ UNCHANGED <<trim, player, queue, reader, target, reseed>>

\* The target's process dies and comes back with what is durable, which is everything that it acked.
\* An Open that was still on its way may reach the new process.
AfterCrash(x) == x
Crash(t) ==
  LET S == {s \in DOMAIN toTarget : Name(s) = t /\ ~toTarget[s].opening} IN
  /\ target' = [target EXCEPT ![t] = AfterCrash(@)]
  /\ toTarget' = Remove(toTarget, S)
  /\ toPlayer' = Ended(S, "ended")
  /\ UNCHANGED <<trim, player, queue, reader, reseed>>

\* A target says FENCED although nobody has fenced the session; nothing at the target has changed.
Lie(s) ==
  /\ s \in DOMAIN toTarget
  /\ toTarget' = Remove(toTarget, {s})
  /\ toPlayer' = Ended({s}, "FENCED")
  /\ UNCHANGED <<trim, player, queue, reader, target, reseed>>

----------------------------------------------------------------------------
Next ==
  \/ \E p \in Players :
       \/ StepDown(p)
       \/ \E i \in Indexes : Start(p, i) \/ Jump(p, i) \/ TrimLog(p, i)
       \/ \E e \in Entries, demoted \in SUBSET Targets : Dispatch(p, e, demoted)
       \/ \E t \in Targets :
            \/ Open(p, t, queue[p][t].term + 1) \/ ReceiveOpened(p, t) \/ Suspend(p, t)
            \/ Push(p, t) \/ Join(p, t)
            \/ \E i \in Indexes : Fetch(p, t, i) \/ ReceiveAck(p, t, i)
            \/ \E n \in 0..Len(queue[p][t].entries), to \in Indexes : Send(p, t, n, to)
  \/ \E s \in DOMAIN toTarget :
       \/ Accept(s) \/ Refuse(s) \/ Reject(s) \/ Lose(s) \/ Lie(s)
       \/ \E n \in 1..Len(toTarget[s].batches) : Apply(s, n) \/ \E i \in Indexes : ApplyPart(s, n, i)
  \/ \E t \in Targets : Crash(t)

----------------------------------------------------------------------------
(* Safety.  The core asserts these under the same names while it runs, as far as a player can see them. *)

ExactlyOnce == \A t \in Targets : target[t].applied = EntriesFor(t, 0, target[t].index)

MemoryBound ==
  \A p \in Players, t \in Targets :
    Len(queue[p][t].entries) <= QueueCountMax /\ Len(queue[p][t].window) <= WindowBatchesMax

\* The queue is exactly the target's entries of (sent, covered].
QueueHoldsCoverage ==
  \A p \in Players, t \in Targets :
    queue[p][t].entries = EntriesFor(t, queue[p][t].sent, queue[p][t].covered)

IndexOrder ==
  \A p \in Players, t \in Targets :
    queue[p][t].acked <= queue[p][t].sent /\ queue[p][t].sent <= queue[p][t].covered

LiveCoversMain ==
  \A p \in Players, t \in Targets :
    queue[p][t].state = "LIVE" => queue[p][t].covered >= player[p].current

TrimSafe == \A t \in Targets : trim <= target[t].index

\* Nothing is ever trimmed too early here, so nobody may be told to fill a target anew.
NoFalseReseed == ~reseed

AckSound == \A p \in Players, t \in Targets : queue[p][t].acked <= target[t].index

(* Liveness, under the fairness that a model states. *)

EverythingArrives == <>(\A t \in Targets : target[t].index = Last)
EverythingAcked   == <>(\E p \in Players : \A t \in Targets : queue[p][t].acked = Last)
=============================================================================

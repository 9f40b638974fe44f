---------------------------- MODULE MCLogPlayer ----------------------------
(* Bounds for LogPlayer, so that TLC can walk through all of it, and its     *)
(* mutants.  models.toml gives the constants of each run and, for a mutant,  *)
(* the definition of LogPlayer that is replaced by one from the end of this  *)
(* file.                                                                     *)
EXTENDS LogPlayer

CONSTANTS
  DisconnectsMax,  \* sessions that one end gives up although the other does not
  CrashesMax,      \* crashes of targets
  RefusalsMax,     \* entries that a target's store refuses, until the next session
  LiesMax,         \* sessions that a target ends with FENCED although nobody has fenced them
  Liars,           \* targets that answer every Open so
  TermMax,         \* sessions of one player with one target; only a model without epochs comes near it
  FetchCountMax,   \* entries that the catch-up reader fetches at once
  AnyStart,        \* players start anywhere in the log, not at the trim point only
  AnyBatch,        \* batches are cut anywhere, not as large as possible only
  AnyTrim,         \* the log is trimmed to any safe point, not to the highest only
  AnyDemotion      \* a live target may be demoted before its queue is full by count, as by bytes

VARIABLE faults    \* how many are left
mcvars == <<vars, faults>>

MCInit ==
  Init /\ faults = [disconnects |-> DisconnectsMax, crashes |-> CrashesMax, refusals |-> RefusalsMax, lies |-> LiesMax]

Honest == Targets \ Liars

----------------------------------------------------------------------------
FullTakers(p, e) == {t \in Takers(p, e) : MustDemote(queue[p][t])}

MCStart(p) == \E at \in (IF AnyStart THEN Indexes ELSE {trim}) : Start(p, at)

MCTrim(p) ==
  LET top == TrimPoint(p) IN
  top > trim /\ \E to \in (IF AnyTrim THEN (trim + 1)..top ELSE {top}) : TrimLog(p, to)

MCDispatch(p) ==
  \E e \in Entries :
    IF AnyDemotion THEN \E D \in SUBSET Takers(p, e) : Dispatch(p, e, D)
    ELSE Dispatch(p, e, FullTakers(p, e))

MCFetch(p, t) == Fetch(p, t, Min({queue[p][t].covered + FetchCountMax, Last}))

MCSend(p, t) ==
  LET x == queue[p][t]
      n == Min({Len(x.entries), BatchCountMax}) IN
  IF AnyBatch THEN \E k \in 0..n, to \in (x.sent + 1)..x.covered : Send(p, t, k, to)
  ELSE Send(p, t, n, IF n = Len(x.entries) THEN x.covered ELSE x.entries[n])

Abandoned(s) == s \notin DOMAIN toPlayer

\* What needs no fault: an end that reads that its session is over, or that nobody cares for any more.  A player that
\* reads FENCED looks at the log: if it shows a newer player it steps down, else that target alone waits.
Disbelieved(p) == ~Superseded(p)
Noticed(p, t) ==
  /\ HasSession(p, t) /\ Suspend(p, t)
  /\ LET why == toPlayer[Session(p, t)].ended IN why \in {"ended", "STALE_SESSION"} \/ (why = "FENCED" /\ Disbelieved(p))
Forgotten(s) == Abandoned(s) /\ (toTarget[s].opening \/ toTarget[s].batches # <<>>) /\ Lose(s)

Working ==
  \/ \E p \in Players :
       \/ MCStart(p) \/ StepDown(p) \/ Jump(p, trim) \/ MCTrim(p) \/ MCDispatch(p)
       \/ \E t \in Targets :
            \/ queue[p][t].term < TermMax /\ Open(p, t, queue[p][t].term + 1)
            \/ ReceiveOpened(p, t) \/ Noticed(p, t) \/ OutOfRange(p, t)
            \/ MCFetch(p, t) \/ Push(p, t) \/ Join(p, t) \/ MCSend(p, t)
            \/ HasSession(p, t) /\ \E i \in toPlayer[Session(p, t)].acks : ReceiveAck(p, t, i)
  \/ \E s \in DOMAIN toTarget :
       \/ Name(s) \in Honest /\ (Accept(s) \/ Refuse(s))
       \/ Name(s) \in Liars /\ Lie(s)
       \/ Apply(s, 1) \/ Forgotten(s)
       \/ toTarget[s].batches # <<>> /\ Reject(s)

Disconnect ==
  \/ \E p \in Players, t \in Targets :
       HasSession(p, t) /\ toPlayer[Session(p, t)].ended = "no" /\ Suspend(p, t)
  \/ \E s \in DOMAIN toTarget : ~Abandoned(s) /\ Lose(s)

MCNext ==
  \/ Working /\ UNCHANGED faults
  \/ faults.disconnects > 0 /\ Disconnect /\ faults' = [faults EXCEPT !.disconnects = @ - 1]
  \/ faults.crashes > 0 /\ (\E t \in Targets : Crash(t)) /\ faults' = [faults EXCEPT !.crashes = @ - 1]
  \/ /\ faults.lies > 0 /\ (\E s \in DOMAIN toTarget : ~Abandoned(s) /\ Lie(s))
     /\ faults' = [faults EXCEPT !.lies = @ - 1]
  \/ /\ faults.refusals > 0 /\ faults' = [faults EXCEPT !.refusals = @ - 1]
     /\ \E s \in DOMAIN toTarget : toTarget[s].batches # <<>> /\ \E i \in Indexes : ApplyPart(s, 1, i)

\* No behaviour is endless but by standing still, so fairness of the whole suffices.
MCSpec == MCInit /\ [][MCNext]_mcvars /\ WF_mcvars(MCNext)

\* The same as an invariant, which TLC checks far quicker: where nothing but a fault can happen any more,
\* everything has arrived and one player knows it.  A target that always lies gets nothing; the others get everything.
RestsOnlyWhenDone ==
  \/ \E p \in Players : \A t \in Honest : queue[p][t].acked = Last
  \/ ENABLED Working

\* The bounds leave things out and add none.
OnlyOurSteps == [][Next]_vars

----------------------------------------------------------------------------
(* Mutants: each replaces one definition of LogPlayer. *)

AnySession(s)     == TRUE                 \* for SessionFits: no fence at the target
AnyRange(t, b)    == TRUE                 \* for RangeFits: no check of prev
AnyEpoch(s)       == LET x == target[Name(s)] IN   \* for MayOpen: no order between players
                     Epoch(s) # x.epoch \/ Term(s) > x.term
AnyTerm(s)        == Epoch(s) >= target[Name(s)].epoch   \* for MayOpen: no order between terms
NothingCovered(x, e) == FALSE             \* for HasCovered: dispatch what catch-up has brought already
NeverFull(x)      == FALSE                \* for MustDemote: the queue grows
DroppedEntry(x, e) == [x EXCEPT !.covered = e]           \* for Demoted: a full queue loses the entry
CoveredAnyway(x, n) == x.covered          \* for RangeLimit: a range over entries that are still queued
SentPoint(p)      == Min({queue[p][t].sent : t \in Targets})   \* for TrimPoint: trim what is not acked
PresentPoint(p)   ==                      \* for TrimPoint: trim what the targets in session have
  LET up == {t \in Targets : queue[p][t].state # "SUSPENDED"} IN
  IF up = {} THEN 0 ELSE Min({queue[p][t].acked : t \in up})
TrimNow(s)        == trim                 \* for TrimForReseed: the trim point of the answer, not of the Open
StillAlive(x, r)  == x.state # "SUSPENDED"               \* for StillWanted: the reader checks the state only
ForgetsSession(x) == [x EXCEPT !.epoch = 0, !.term = 0]  \* for AfterCrash: the fence is not durable
ForgetsIndex(x)   ==                      \* for AfterCrash: the last entry was acked and not durable
  IF x.applied = <<>> THEN x
  ELSE LET kept == SubSeq(x.applied, 1, Len(x.applied) - 1) IN
       [x EXCEPT !.applied = kept, !.index = IF kept = <<>> THEN 0 ELSE kept[Len(kept)]]

StepDownOnWord(p) ==                      \* for StepDown: a target's word stops the player
  (\E t \in Targets : HasSession(p, t) /\ toPlayer[Session(p, t)].ended = "FENCED") /\ Stop(p)
NeverDisbelieved(p) == FALSE              \* for Disbelieved: FENCED waits for a newer player that may not exist

JoinInTwoSteps(p, t) ==                   \* for Join: the test and the switch are two steps
  LET x == queue[p][t] IN
  /\ Playing(p)
  /\ \/ x.state = "CATCHING_UP" /\ x.covered >= player[p].current
        /\ queue' = [queue EXCEPT ![p][t].state = "JOINING"]
     \/ x.state = "JOINING" /\ queue' = [queue EXCEPT ![p][t].state = "LIVE"]
  /\ UNCHANGED <<trim, player, reader, toTarget, toPlayer, target, reseed>>
=============================================================================

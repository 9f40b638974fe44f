------------------------------ MODULE Identity ------------------------------
(* An index does not name an entry: a log that was restored from an older    *)
(* backup, or that lost its tail, gives the same indexes to other entries.   *)
(* Index and chain value together do.  This module asks whether a target can *)
(* ever hold a mixture of two histories, and whether a log can lose entries  *)
(* of the new history because somebody believed in the old one.              *)
(*                                                                           *)
(* An entry is a number that is never used twice.  The chain value at index  *)
(* i is the history up to i itself: a perfect hash.  The target stores the   *)
(* index and the chain value, here one sequence, beside what it applied.     *)
(* Every entry is for the one target: other targets change nothing here.     *)
(*                                                                           *)
(* Of a player's queue only the coverage remains, with the chain value that  *)
(* the player believes to be there.  It grows by the main stream or by the   *)
(* catch-up reader, and each step is sent at once as a batch of one entry.   *)
EXTENDS Integers, Sequences, TLC

CONSTANTS
  Players,        \* a set of numbers; epochs are indexes of the log, so two players may have the same one
  EntryCountMax,  \* entries that are ever appended, takeover records included
  RestoresMax,
  TermMax

VARIABLES
  log,       \* the entries of the log as it is now
  trim,      \* those up to here cannot be read any more; the chain value at the trim point is kept
  born,      \* how many entries were ever appended
  backups,   \* logs that may be restored: every state that the log was in, with its trim point
  restores,
  player,    \* status, epoch, the history that its main stream has read: Len is its index
  queue,     \* state, term, covered: the history up to the coverage; acked; agreed: what was acked up to here is
             \* what the main stream has read; the answer to an Open that is under way
  wire,      \* batches on their way, each of one session
  target,    \* applied; chain: the stored value; epoch and term of the stored session
  falsely    \* a target was called diverged that was not
vars == <<log, trim, born, backups, restores, player, queue, wire, target, falsely>>

Upto(s, i)     == SubSeq(s, 1, IF i < Len(s) THEN i ELSE Len(s))
IsPrefix(s, t) == Len(s) <= Len(t) /\ Upto(t, Len(s)) = s
NoAnswer       == [index |-> -1, chain |-> <<>>]
NewQueue       == [state |-> "none", term |-> 0, covered |-> <<>>, acked |-> 0, agreed |-> 0, answer |-> NoAnswer]

Init ==
  /\ log = <<>> /\ trim = 0 /\ born = 0 /\ backups = {[log |-> <<>>, trim |-> 0]} /\ restores = 0
  /\ player = [p \in Players |-> [status |-> "waiting", epoch |-> 0, read |-> <<>>]]
  /\ queue = [p \in Players |-> NewQueue]
  /\ wire = [p \in Players |-> <<>>]
  /\ target = [applied |-> <<>>, chain |-> <<>>, epoch |-> 0, term |-> 0]
  /\ falsely = FALSE

----------------------------------------------------------------------------
(* The log *)

Appended == Append(log, born + 1)

AppendEntry ==
  /\ born < EntryCountMax
  /\ log' = Appended /\ born' = born + 1
  /\ backups' = backups \cup {[log |-> Appended, trim |-> trim]}
  /\ UNCHANGED <<trim, restores, player, queue, wire, target, falsely>>

\* An older backup is put in the log's place, or its tail is lost.  Nobody is told.
Restore(b) ==
  /\ restores < RestoresMax /\ b \in backups /\ b.log # log
  /\ log' = b.log /\ trim' = b.trim /\ restores' = restores + 1
  /\ UNCHANGED <<born, backups, player, queue, wire, target, falsely>>

\* The log's chain value at index i, as far as it still has one.
HasChain(i) == trim <= i /\ i <= Len(log)
ChainAt(i)  == Upto(log, i)

----------------------------------------------------------------------------
(* The player *)

Playing(p) == player[p].status = "playing"
Session(p) == [epoch |-> player[p].epoch, term |-> queue[p].term]

\* Its takeover record is appended, and the main stream begins anywhere up to it.  One that ended may start again:
\* then it is another player, with another epoch, unless the log that it finds is another one.
Start(p) ==
  /\ ~Playing(p) /\ born < EntryCountMax
  /\ log' = Appended /\ born' = born + 1
  /\ backups' = backups \cup {[log |-> Appended, trim |-> trim]}
  /\ \E at \in trim..Len(Appended) :
       player' = [player EXCEPT ![p] = [status |-> "playing", epoch |-> Len(Appended), read |-> Upto(Appended, at)]]
  /\ UNCHANGED <<trim, restores, queue, wire, target, falsely>>

Stop(p) ==
  /\ player' = [player EXCEPT ![p].status = "stopped"]
  /\ queue' = [queue EXCEPT ![p] = NewQueue]
  /\ UNCHANGED <<log, trim, born, backups, restores, wire, target, falsely>>

Lost(p)    == [NewQueue EXCEPT !.term = queue[p].term]
Suspend(p) ==
  /\ Playing(p) /\ queue[p].state # "none"
  /\ queue' = [queue EXCEPT ![p] = Lost(p)]
  /\ UNCHANGED <<log, trim, born, backups, restores, player, wire, target, falsely>>

Newer(s) == s.epoch > target.epoch \/ (s.epoch = target.epoch /\ s.term > target.term)

\* The target accepts the session, fences all others, and answers with its index and its chain value, in one step.
Open(p) ==
  LET s == [epoch |-> player[p].epoch, term |-> queue[p].term + 1] IN
  /\ Playing(p) /\ queue[p].state = "none" /\ s.term <= TermMax
  /\ IF Newer(s)
     THEN /\ target' = [target EXCEPT !.epoch = s.epoch, !.term = s.term]
          /\ queue' = [queue EXCEPT ![p] = [NewQueue EXCEPT !.state = "opened", !.term = s.term,
                          !.answer = [index |-> Len(target.applied), chain |-> target.chain]]]
     ELSE /\ queue' = [queue EXCEPT ![p] = [NewQueue EXCEPT !.term = s.term]]
          /\ UNCHANGED target
  /\ UNCHANGED <<log, trim, born, backups, restores, player, wire, falsely>>     \* what was on its way stays there

\* What the main stream has read itself needs no look at the log.
KnowsItself(p, a) == a.index = Len(player[p].read) /\ a.chain = player[p].read
Confirmed(a)      == HasChain(a.index) /\ a.chain = ChainAt(a.index)

\* A target ahead of the main stream agrees with what that has read so far; of the rest only the look has told.
Agreed(p, index) == IF index > Len(player[p].read) THEN Len(player[p].read) ELSE EntryCountMax
Feed(p, a) == queue' = [queue EXCEPT ![p].state = "feeding", ![p].covered = a.chain, ![p].acked = a.index,
                                     ![p].agreed = Agreed(p, a.index), ![p].answer = NoAnswer]

\* The log is asked whether it has what the target says that it has.
Judge(p) ==
  LET a == queue[p].answer IN
  /\ Playing(p) /\ queue[p].state = "opened"
  /\ \/ KnowsItself(p, a) /\ Feed(p, a) /\ UNCHANGED falsely
     \/ Confirmed(a) /\ Feed(p, a) /\ UNCHANGED falsely
     \/ /\ ~KnowsItself(p, a) /\ ~Confirmed(a) /\ a.index >= trim
        /\ queue' = [queue EXCEPT ![p] = [Lost(p) EXCEPT !.state = "DIVERGED"]]
        /\ falsely' = (falsely \/ IsPrefix(a.chain, log))
     \/ /\ ~KnowsItself(p, a) /\ a.index < trim     \* needs what is gone: RESEED
        /\ queue' = [queue EXCEPT ![p] = [Lost(p) EXCEPT !.state = "RESEED"]] /\ UNCHANGED falsely
  /\ UNCHANGED <<log, trim, born, backups, restores, player, wire, target>>

Batch(p, e, chain) == [session |-> Session(p), prev |-> Len(queue[p].covered), prevChain |-> queue[p].covered,
                       entry |-> e, toChain |-> chain]

\* What is read continues what was read before: the entry carries the chain value of all that precedes it.
Continues(before) == IsPrefix(before, log)

\* A target ahead of the main stream: what the log had there was looked up.  It is compared once more when the main
\* stream comes there, since another log may have taken the place of the one that answered.
AgreesAhead(x, read) == Len(x.covered) = Len(read) => x.covered = read

\* The main stream reads the next entry; if the target is covered up to there, it gets it.
Dispatch(p) ==
  LET i == Len(player[p].read)
      e == log[i + 1]
      read == Append(player[p].read, e)
      x == queue[p]
      joined == x.state = "feeding" /\ Len(x.covered) = i IN
  /\ Playing(p) /\ i >= trim /\ i < Len(log) /\ Continues(player[p].read)
  /\ player' = [player EXCEPT ![p].read = read]
  /\ IF joined
     THEN /\ wire' = [wire EXCEPT ![p] = Append(@, Batch(p, e, read))]
          /\ queue' = [queue EXCEPT ![p].covered = read]
     ELSE /\ UNCHANGED wire
          /\ IF x.state = "feeding" /\ ~AgreesAhead(x, read)
             THEN queue' = [queue EXCEPT ![p] = [Lost(p) EXCEPT !.state = "DIVERGED"]]
             ELSE queue' = [queue EXCEPT ![p].agreed = IF Len(x.covered) = Len(read) THEN EntryCountMax ELSE @]
  /\ UNCHANGED <<log, trim, born, backups, restores, target, falsely>>

\* The log does not continue what the main stream has read, or ends before it: the player ends.
Notice(p) ==
  /\ Playing(p) /\ Len(player[p].read) >= trim
  /\ ~Continues(player[p].read)
  /\ Stop(p)

\* The catch-up reader reads the next entry for a target that lags.
CatchUp(p) ==
  LET x == queue[p]
      i == Len(x.covered)
      e == log[i + 1] IN
  /\ Playing(p) /\ x.state = "feeding" /\ i < Len(player[p].read) /\ i >= trim /\ i < Len(log)
  /\ IF Continues(x.covered)
     THEN /\ wire' = [wire EXCEPT ![p] = Append(@, Batch(p, e, Append(x.covered, e)))]
          /\ queue' = [queue EXCEPT ![p].covered = Append(@, e)]
     ELSE queue' = [queue EXCEPT ![p] = Lost(p)] /\ UNCHANGED wire     \* the next Open asks the log
  /\ UNCHANGED <<log, trim, born, backups, restores, player, target, falsely>>

\* A trim says which history the player has read, and the log compares: an index alone would cut into another one.
\* Nor by what a target has that is ahead: which history that is, the main stream will see.
TrimHold(p)    == queue[p].agreed
SameHistory(p) == IsPrefix(player[p].read, log)
TrimLog(p, to) ==
  /\ Playing(p) /\ queue[p].state = "feeding"
  /\ to > trim /\ to <= Len(player[p].read) /\ to <= queue[p].acked /\ to <= TrimHold(p)
  /\ SameHistory(p) /\ to <= Len(log)
  /\ trim' = to
  /\ backups' = backups \cup {[log |-> log, trim |-> to]}
  /\ UNCHANGED <<log, born, restores, player, queue, wire, target, falsely>>

----------------------------------------------------------------------------
(* The target *)

SessionFits(b) == b.session = [epoch |-> target.epoch, term |-> target.term]
RangeFits(b)   == b.prev = Len(target.applied)
ChainFits(b)   == b.prevChain = target.chain

Receive(p) ==
  LET b == Head(wire[p]) IN
  /\ wire[p] # <<>>
  /\ wire' = [wire EXCEPT ![p] = Tail(@)]
  /\ IF SessionFits(b) /\ RangeFits(b) /\ ChainFits(b)
     THEN /\ target' = [target EXCEPT !.applied = Append(@, b.entry), !.chain = b.toChain]
          /\ queue' = IF queue[p].state = "feeding" /\ Session(p) = b.session
                      THEN [queue EXCEPT ![p].acked = b.prev + 1] ELSE queue
     ELSE UNCHANGED <<target, queue>>
  /\ UNCHANGED <<log, trim, born, backups, restores, player, falsely>>

Next ==
  \/ AppendEntry
  \/ \E b \in backups : Restore(b)
  \/ \E p \in Players :
       \/ Start(p) \/ Suspend(p) \/ Open(p) \/ Judge(p) \/ Dispatch(p) \/ Notice(p) \/ CatchUp(p) \/ Receive(p)
       \/ (Playing(p) /\ Stop(p))
       \/ \E to \in 1..EntryCountMax : TrimLog(p, to)
Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
\* What a target holds is the beginning of one history: never the start of one and the rest of another.
OneHistory == \E b \in backups : IsPrefix(target.applied, b.log)

\* The stored value names what was applied.
ChainNames == target.chain = target.applied

\* Nothing is trimmed that the target lacks, whichever log is in place: else the entries are nowhere.
TrimmedIsApplied == IsPrefix(Upto(log, trim), target.applied)

NoFalseAlarm == ~falsely
----------------------------------------------------------------------------
(* Mutants *)

ByIndex(a)         == HasChain(a.index)
FeedFromLog(p, a)  == queue' = [queue EXCEPT ![p].state = "feeding", ![p].covered = ChainAt(a.index), ![p].acked = a.index,
                                             ![p].agreed = 0, ![p].answer = NoAnswer]
Unchecked(before)  == TRUE
Forgotten(x, read) == TRUE
AnyHistory(p)      == TRUE
NoHold(p)          == EntryCountMax
AnyChain(b)        == TRUE
=============================================================================

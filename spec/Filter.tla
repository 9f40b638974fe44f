------------------------------- MODULE Filter -------------------------------
(* A transformation of the user (a filter, a projection, an explode) between *)
(* the log and the targets, inside a task of Spark: how does the end of the  *)
(* task know what is covered, if rows may vanish on the way?                 *)
(*                                                                           *)
(* A reader and a writer run in one task and one thread.  An entry is one or *)
(* more rows; the transformation drops, changes or multiplies each.  Spark   *)
(* pulls: when the reader is asked for the row after the last one of entry   *)
(* i, each row of the entries up to i has reached the writer or was dropped. *)
(* Only then does the reader say "covered up to i", past the transformation, *)
(* and the writer sends what survived of (prev, i], whole entries only.      *)
(*                                                                           *)
(* Tasks crash at any step, are replaced while they live, and queries start  *)
(* again.  The index at the target, read at Open, says what it has.          *)
(*                                                                           *)
(* Left out: the window (one batch of each task to each target is on its     *)
(* way), a target that fails (its task then crashes), a log that grows (its  *)
(* later entries are those that the reader has not reached).                 *)
(*                                                                           *)
(* A transformation with a choice is one that is not deterministic.  What    *)
(* holds of it is OneEvaluation; what needs determinism is ExactlyOnce and   *)
(* TargetsAgree.  An operator with state is deterministic only if its state  *)
(* is of the entry where the reader begins.                                  *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  Targets,       \* those of one partition: one task serves them all
  EntryCount,
  Rows,          \* the rows of all entries for these targets, in the order of the log
  HoldMax,       \* rows that an operator may hold back when it asks for the next: none if it works row by row
  FaultsMax,     \* crashes, tasks that are replaced while they live, restarts of the query
  BatchEndsMax   \* how often a batch of Spark ends and the next begins

\* A row of an entry for a target.  Each evaluation chooses from yields how many rows it makes of it: {0} is a row that
\* is dropped, {1} one that is kept or changed, {2} one that is exploded.  With more than one choice the transformation
\* is not deterministic.  Of rows with one key an operator with state keeps the first; key 0 means that it has none.
KeyedRow(entry, target, yields, key) == [entry |-> entry, target |-> target, yields |-> yields, key |-> key]
Row(entry, target, yields)           == KeyedRow(entry, target, yields, 0)

VARIABLES
  epoch,      \* of the newest query; a query that was taken for dead may go on with its own
  launched,   \* how many tasks were launched: a task's number is its term
  faults, ends,
  offset,     \* where Spark's checkpoint says that the next batch begins
  task,       \* state; epoch; offset, where its batch begins; opened, the index of each target at Open; from, the
              \* entry after which its reader began; at, the last row that the reader gave; hand, the rows inside the
              \* transformation; covered, what the reader has said; pending and sent, what the writer keeps for each
              \* target and up to which entry it has sent
  wire,       \* the batch on its way from each task to each target; it outlives the task
  target,     \* the stored session, index and rows; by: which task covered each entry
  made        \* of each task and row: how many rows its evaluation made of it
vars == <<epoch, launched, faults, ends, offset, task, wire, target, made>>

TaskCountMax == 1 + FaultsMax + BatchEndsMax
Tasks   == 1..TaskCountMax
Unseen  == -1
NoBatch == [prev |-> 0, to |-> 0, rows |-> <<>>]
NoTask  == [state |-> "none", epoch |-> 0, offset |-> 0, opened |-> [t \in Targets |-> -1], from |-> 0, at |-> 0,
            hand |-> <<>>, covered |-> 0, pending |-> [t \in Targets |-> <<>>], sent |-> [t \in Targets |-> 0]]

Init ==
  /\ epoch = 0 /\ launched = 0 /\ faults = 0 /\ ends = 0 /\ offset = 0
  /\ task = [x \in Tasks |-> NoTask]
  /\ wire = [x \in Tasks |-> [t \in Targets |-> NoBatch]]
  /\ target = [t \in Targets |-> [epoch |-> 0, term |-> 0, index |-> 0, rows |-> <<>>, by |-> <<>>]]
  /\ made = [x \in Tasks |-> [r \in DOMAIN Rows |-> Unseen]]

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b

\* The number of rows of the entries up to i, and the last entry that has no row after the first `at`.
RowCount(i) == Cardinality({r \in DOMAIN Rows : Rows[r].entry <= i})
Through(at) == IF at >= Len(Rows) THEN EntryCount ELSE Rows[at + 1].entry - 1

\* The writer goes on from what the target has.
Resume(opened, from) == opened

Alive(x)       == task[x].state \in {"opening", "running", "ending"}
Newest(e)      == CHOOSE x \in 1..launched : task[x].epoch = e /\ \A y \in 1..launched : task[y].epoch = e => y <= x
Gone(x, state) == [NoTask EXCEPT !.state = state, !.epoch = task[x].epoch]

\* Nothing depends any more on how a task that is gone evaluated what it never sent.
Kept(x) == [r \in DOMAIN Rows |->
              IF \E t \in Targets : /\ task[x].sent[t] > Resume(task[x].opened[t], task[x].from)
                                   /\ task[x].sent[t] >= Rows[r].entry
              THEN made[x][r] ELSE Unseen]

----------------------------------------------------------------------------
(* Spark *)

\* The allow list: a query whose operators hold rows back is refused.
Admitted(holds) == holds = 0

\* A query is started; a task that crashed is replaced; the next batch begins; a task that lives is taken for dead, and
\* so is a whole query.  A query that was fenced stops.
Launch(e, fault) ==
  /\ Admitted(HoldMax) /\ launched < TaskCountMax
  /\ IF e = epoch + 1 THEN fault = (IF epoch = 0 THEN 0 ELSE 1)
     ELSE \/ task[Newest(e)].state \in {"crashed", "ended"} /\ fault = 0
          \/ Alive(Newest(e)) /\ fault = 1
  /\ faults + fault <= FaultsMax /\ faults' = faults + fault
  /\ epoch' = Max(epoch, e) /\ launched' = launched + 1
  /\ task' = [task EXCEPT ![launched + 1] = [NoTask EXCEPT !.state = "opening", !.epoch = e, !.offset = offset]]
  /\ UNCHANGED <<ends, offset, wire, target, made>>

Crash(x) ==
  /\ Alive(x) /\ faults < FaultsMax /\ faults' = faults + 1
  /\ task' = [task EXCEPT ![x] = Gone(x, "crashed")] /\ made' = [made EXCEPT ![x] = Kept(x)]
  /\ UNCHANGED <<epoch, launched, ends, offset, wire, target>>

\* Spark takes the end of the batch into its checkpoint when the writer has nothing left that the targets lack.
Flushed(x) == \A t \in Targets : task[x].sent[t] >= task[x].covered /\ wire[x][t] = NoBatch
Commit(x) ==
  /\ task[x].state = "ending" /\ x = Newest(task[x].epoch) /\ task[x].hand = <<>> /\ Flushed(x)
  /\ offset' = task[x].covered
  /\ task' = [task EXCEPT ![x] = Gone(x, "ended")] /\ made' = [made EXCEPT ![x] = Kept(x)]
  /\ UNCHANGED <<epoch, launched, faults, ends, wire, target>>

----------------------------------------------------------------------------
(* The reader, and the transformation *)

Smallest(opened) == CHOOSE i \in {opened[t] : t \in Targets} : \A t \in Targets : i <= opened[t]

\* The reader begins at the smallest index of its targets, or where Spark's batch begins, if that is not after it.
Starts(x) == {i \in {task[x].offset, Smallest(task[x].opened)} : i <= Smallest(task[x].opened)}

Begin(x) ==
  /\ task[x].state = "opening" /\ \A t \in Targets : task[x].opened[t] >= 0
  /\ \E from \in Starts(x) :
       task' = [task EXCEPT ![x].state = "running", ![x].from = from, ![x].at = RowCount(from), ![x].covered = from,
                            ![x].sent = [t \in Targets |-> Resume(task[x].opened[t], from)]]
  /\ UNCHANGED <<epoch, launched, faults, ends, offset, wire, target, made>>

\* An operator with state has that of the checkpoint, and has seen the rows since the reader began.
Seen(x, r)   == \E q \in 1..(r - 1) :
                  /\ Rows[q].key = Rows[r].key
                  /\ Rows[q].entry <= task[x].offset \/ Rows[q].entry > task[x].from
Yields(x, r) == IF Rows[r].key # 0 /\ Seen(x, r) THEN {0} ELSE Rows[r].yields
Out(x, r, n) == [c \in 1..n |-> [row |-> r, copy |-> c, by |-> x]]

\* What the reader says to the writer when it is asked for another row.
CoveredAtPull(x) == Through(task[x].at)

\* And what the writer concludes from a row: nothing.
CoveredAtRow(x, row) == task[x].covered

\* The reader is asked, says what is covered, and gives a row, which the transformation evaluates.  At the end of the
\* log it has none, says what is covered all the same, and waits.
Pull(x) ==
  LET r == task[x].at + 1
      said == Max(task[x].covered, CoveredAtPull(x)) IN
  /\ task[x].state = "running" /\ Len(task[x].hand) <= HoldMax
  /\ IF r <= Len(Rows)
     THEN \E n \in Yields(x, r) :
            /\ task' = [task EXCEPT ![x].at = r, ![x].covered = said, ![x].hand = @ \o Out(x, r, n)]
            /\ made' = [made EXCEPT ![x][r] = n]
     ELSE task[x].covered # said /\ task' = [task EXCEPT ![x].covered = said] /\ UNCHANGED made
  /\ UNCHANGED <<epoch, launched, faults, ends, offset, wire, target>>

\* The reader ends the batch between two entries.
LastPull(x) ==
  /\ task[x].state = "running" /\ task[x].hand = <<>> /\ task[x].at = RowCount(Through(task[x].at))
  /\ ends < BatchEndsMax /\ ends' = ends + 1
  /\ task' = [task EXCEPT ![x].state = "ending", ![x].covered = Max(@, CoveredAtPull(x))]
  /\ UNCHANGED <<epoch, launched, faults, offset, wire, target, made>>

----------------------------------------------------------------------------
(* The writer *)

EntryOf(row)   == Rows[row.row].entry
TargetOf(row)  == Rows[row.row].target
Has(x, row)    == EntryOf(row) <= task[x].opened[TargetOf(row)]     \* the target had it at Open
Upto(rows, i)  == SelectSeq(rows, LAMBDA row : EntryOf(row) <= i)
After(rows, i) == SelectSeq(rows, LAMBDA row : EntryOf(row) > i)

Newer(x, t) == \/ task[x].epoch > target[t].epoch
               \/ task[x].epoch = target[t].epoch /\ x > target[t].term

\* The target accepts the session, fences all others, and answers with its index, in one step.
Open(x, t) ==
  /\ task[x].state = "opening" /\ task[x].opened[t] < 0
  /\ IF Newer(x, t)
     THEN /\ target' = [target EXCEPT ![t].epoch = task[x].epoch, ![t].term = x]
          /\ task' = [task EXCEPT ![x].opened[t] = target[t].index]
     ELSE task' = [task EXCEPT ![x] = Gone(x, "fenced")] /\ UNCHANGED target
  /\ UNCHANGED <<epoch, launched, faults, ends, offset, wire, made>>

\* A row leaves the transformation.
Write(x) ==
  LET row == Head(task[x].hand) IN
  /\ task[x].state \in {"running", "ending"} /\ task[x].hand # <<>>
  /\ task' = [task EXCEPT ![x].hand = Tail(@), ![x].covered = CoveredAtRow(x, row),
                          ![x].pending[TargetOf(row)] = IF Has(x, row) THEN @ ELSE Append(@, row)]
  /\ UNCHANGED <<epoch, launched, faults, ends, offset, wire, target, made>>

Send(x, t) ==
  LET to == task[x].covered IN
  /\ task[x].state \in {"running", "ending"} /\ wire[x][t] = NoBatch /\ task[x].sent[t] < to
  /\ wire' = [wire EXCEPT ![x][t] = [prev |-> task[x].sent[t], to |-> to, rows |-> Upto(task[x].pending[t], to)]]
  /\ task' = [task EXCEPT ![x].sent[t] = to, ![x].pending[t] = After(@, to)]
  /\ UNCHANGED <<epoch, launched, faults, ends, offset, target, made>>

SessionFits(x, t) == target[t].term = x     \* a term is never used twice here, so it names the epoch too
PrevFits(x, t)    == wire[x][t].prev = target[t].index

\* The target applies rows, index and session in one transaction, or refuses the batch and so ends its task.
Receive(x, t) ==
  LET b == wire[x][t] IN
  /\ b # NoBatch /\ wire' = [wire EXCEPT ![x][t] = NoBatch]
  /\ IF SessionFits(x, t) /\ PrevFits(x, t)
     THEN /\ target' = [target EXCEPT ![t].index = b.to, ![t].rows = @ \o b.rows,
                          ![t].by = [i \in 1..Max(Len(@), b.to) |-> IF b.prev < i /\ i <= b.to THEN x ELSE @[i]]]
          /\ UNCHANGED <<task, made>>
     ELSE /\ IF Alive(x)
             THEN /\ task' = [task EXCEPT ![x] = Gone(x, IF target[t].term = x THEN "crashed" ELSE "fenced")]
                  /\ made' = [made EXCEPT ![x] = Kept(x)]
             ELSE UNCHANGED <<task, made>>
          /\ UNCHANGED target
  /\ UNCHANGED <<epoch, launched, faults, ends, offset>>

Progress ==
  \/ \E e \in 1..(epoch + 1) : Launch(e, 0)
  \/ \E x \in 1..launched :
       \/ Begin(x) \/ Pull(x) \/ LastPull(x) \/ Write(x) \/ Commit(x)
       \/ \E t \in Targets : Open(x, t) \/ Send(x, t) \/ Receive(x, t)
Fault == (\E e \in 1..(epoch + 1) : Launch(e, 1)) \/ \E x \in 1..launched : Crash(x)
Next  == Progress \/ Fault
Spec  == Init /\ [][Next]_vars /\ WF_vars(Progress)

----------------------------------------------------------------------------
Joined(part) ==
  LET upto[r \in 0..Len(Rows)] == IF r = 0 THEN <<>> ELSE upto[r - 1] \o part[r] IN upto[Len(Rows)]
RowsOf(t, i)     == {r \in DOMAIN Rows : Rows[r].target = t /\ Rows[r].entry = i}
MadeOf(x, t, i)  == Joined([r \in DOMAIN Rows |-> IF r \in RowsOf(t, i) THEN Out(x, r, made[x][r]) ELSE <<>>])
AllSeen(x, t, i) == \A r \in RowsOf(t, i) : made[x][r] # Unseen
Applied(t, i)    == SelectSeq(target[t].rows, LAMBDA row : EntryOf(row) = i)
Elements(s)      == {s[k] : k \in DOMAIN s}

\* What a deterministic transformation makes of a row.
Transformed(r) ==
  IF Rows[r].key # 0 /\ \E q \in 1..(r - 1) : Rows[q].key = Rows[r].key THEN 0
  ELSE CHOOSE n \in Rows[r].yields : \A m \in Rows[r].yields : n <= m

\* A target with index i holds the transformed entries up to i: each once, in order.
ExactlyOnce ==
  \A t \in Targets :
    [k \in DOMAIN target[t].rows |-> [target[t].rows[k] EXCEPT !.by = 0]]
      = Joined([r \in DOMAIN Rows |-> IF Rows[r].target = t /\ Rows[r].entry <= target[t].index
                                      THEN Out(0, r, Transformed(r)) ELSE <<>>])

\* The same of any transformation: each entry comes whole, once and in order from the one evaluation that covered it.
OneEvaluation ==
  \A t \in Targets :
    /\ \A i \in 1..target[t].index : AllSeen(target[t].by[i], t, i)
    /\ target[t].rows
         = Joined([r \in DOMAIN Rows |-> IF Rows[r].target = t /\ Rows[r].entry <= target[t].index
                                         THEN LET x == target[t].by[Rows[r].entry] IN Out(x, r, made[x][r]) ELSE <<>>])

\* Nobody ever sees a part of an entry, nor parts of two evaluations of it.
EntryWhole ==
  \A t \in Targets : \A i \in 1..EntryCount :
    LET rows == Applied(t, i) IN
    rows # <<>> => AllSeen(rows[1].by, t, i) /\ rows = MadeOf(rows[1].by, t, i)

\* An index is claimed only if all that survived up to it is there.
CoverageSound ==
  \A t \in Targets : \A i \in 1..target[t].index :
    LET x == target[t].by[i] IN
    AllSeen(x, t, i) /\ Elements(MadeOf(x, t, i)) \subseteq Elements(target[t].rows)

\* Two targets have the same evaluation of an entry: this takes a deterministic transformation.
TargetsAgree ==
  \A t, u \in Targets : \A i \in 1..Min(target[t].index, target[u].index) :
    \A r \in DOMAIN Rows : Rows[r].entry = i => made[target[t].by[i]][r] = made[target[u].by[i]][r]

\* Every target gets to the end of the log, also if nothing survives of its last entries.
EverythingArrives == <>(\A t \in Targets : target[t].index = EntryCount)
----------------------------------------------------------------------------
(* Mutants *)

\* Who says what is covered, and when.
AtFirstRow(x, row) == EntryOf(row)
BeforeRow(x, row)  == Max(task[x].covered, EntryOf(row) - 1)
AtLastRow(x, row)  == IF row.row = RowCount(EntryOf(row)) THEN EntryOf(row) ELSE BeforeRow(x, row)
AtEmit(x)          == Through(task[x].at + 1)
NotAtPull(x)       == task[x].covered
AnyPlan(holds)     == TRUE

\* Where a task begins.
AtOffset(x)             == {task[x].offset}
AtLargest(x)            == {i \in {task[x].opened[t] : t \in Targets} : \A t \in Targets : i >= task[x].opened[t]}
FromStart(opened, from) == from
NotDropped(x, row)      == FALSE
Unflushed(x)            == TRUE

\* What the target checks.
AnySession(x, t) == TRUE
AnyPrev(x, t)    == TRUE
=============================================================================

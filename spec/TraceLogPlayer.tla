--------------------------- MODULE TraceLogPlayer ---------------------------
(* Is a recorded run of the real code a behaviour of LogPlayer?              *)
(*                                                                           *)
(* Every player and every target writes a line at each of its steps.  The    *)
(* generated module TraceData holds the lines of each node in its own order; *)
(* no clock relates the nodes.  A line names one action of LogPlayer and     *)
(* what the node saw of it.                                                  *)
(*                                                                           *)
(* The order between nodes need not be searched.  A step of one node never   *)
(* takes away what the next line of another needs: messages stay until they  *)
(* are read, an ack that was given stays given, the trim point only rises    *)
(* and no line needs it low, and what else a line depends on is its own      *)
(* node's.  So the first node whose next line fits may go on, and where no   *)
(* line fits no other order would have come further.  A trace of n lines     *)
(* costs n + 1 states.                                                       *)
(*                                                                           *)
(* The verdict is printed, one line that begins with "trace": TLC would      *)
(* print a violated invariant together with all the states before it.        *)
EXTENDS LogPlayer, TraceData

VARIABLE at     \* node -> its next line
tracevars == <<vars, at>>

Nodes == 1..Len(Lines)
Line(n) == Lines[n][at[n]]
Finished(n) == at[n] > Len(Lines[n])

----------------------------------------------------------------------------
(* Lines of a player *)

Own(l)   == queue[l.epoch][l.target]
Known(l) == Own(l).term = l.term /\ HasSession(l.epoch, l.target)

Opened(l) == Known(l) /\ toPlayer[Session(l.epoch, l.target)].opened = l.index /\ ReceiveOpened(l.epoch, l.target)

Jumped(l) == l.demoted = LeftBehind(l.epoch, l.current) /\ Jump(l.epoch, l.current)

\* Several pushes of the catch-up reader in one step.  When it fetched is not recorded, so this line does not
\* ask whether the entries are still in the log.
Read(l) ==
  LET x == Own(l)
      found == EntriesFor(l.target, l.after, l.through) IN
  /\ Playing(l.epoch) /\ l.after <= l.through
  /\ StillWanted(x, [term |-> l.term, after |-> l.after, through |-> l.through])
  /\ Len(x.entries) + Len(found) <= QueueCountMax
  /\ queue' = [queue EXCEPT ![l.epoch][l.target] = [x EXCEPT !.covered = l.through, !.entries = @ \o found]]
  /\ UNCHANGED <<trim, player, reader, toTarget, toPlayer, target, reseed>>

Sent(l) ==
  /\ Known(l) /\ Own(l).sent = l.prev
  /\ Len(l.indexes) <= Len(Own(l).entries) /\ SubSeq(Own(l).entries, 1, Len(l.indexes)) = l.indexes
  /\ Send(l.epoch, l.target, Len(l.indexes), l.to)

----------------------------------------------------------------------------
(* Lines of a target *)

Of(l) == <<l.epoch, l.target, l.term>>

Accepted(l) == target[l.target].index = l.index /\ Accept(Of(l))

\* One line may stand for several batches that were committed together, the last perhaps not as a whole.
Applied(l) ==
  LET s == Of(l) IN
  /\ Reading(s)
  /\ \E n \in 1..Len(toTarget[s].batches) :
       \/ toTarget[s].batches[n].to = l.index /\ Apply(s, n)
       \/ ApplyPart(s, n, l.index)

\* Batches after a rejected one may be rejected in their turn; the session is over by then.
Rejected(l) ==
  \/ Reject(Of(l))
  \/ Of(l) \notin DOMAIN toTarget /\ ~MayOpen(Of(l)) /\ UNCHANGED vars

Crashed(l) == target[l.target].index = l.index /\ Crash(l.target)

----------------------------------------------------------------------------
Explained(l) ==
  CASE l.ev = "start"    -> Start(l.epoch, l.current)
    [] l.ev = "open"     -> Open(l.epoch, l.target, l.term)
    [] l.ev = "opened"   -> Opened(l)
    [] l.ev = "dispatch" -> Dispatch(l.epoch, l.index, l.demoted)
    [] l.ev = "jump"     -> Jumped(l)
    [] l.ev = "read"     -> Read(l)
    [] l.ev = "join"     -> Known(l) /\ Join(l.epoch, l.target)
    [] l.ev = "send"     -> Sent(l)
    [] l.ev = "ack"      -> Known(l) /\ ReceiveAck(l.epoch, l.target, l.index)
    [] l.ev = "suspend"  -> Known(l) /\ Suspend(l.epoch, l.target)
    [] l.ev = "stepdown" -> Stop(l.epoch)
    [] l.ev = "trim"     -> TrimLog(l.epoch, l.to)
    [] l.ev = "accept"   -> Accepted(l)
    [] l.ev = "refuse"   -> Refuse(Of(l))
    [] l.ev = "apply"    -> Applied(l)
    [] l.ev = "reject"   -> Rejected(l)
    [] l.ev = "crash"    -> Crashed(l)

Fits(n) == ~Finished(n) /\ ENABLED Explained(Line(n))

RECURSIVE FirstFit(_)
FirstFit(n) == IF n > Len(Lines) THEN 0 ELSE IF Fits(n) THEN n ELSE FirstFit(n + 1)

TraceInit == Init /\ at = [n \in Nodes |-> 1]
TraceNext ==
  LET n == FirstFit(1) IN
  n # 0 /\ Explained(Line(n)) /\ at' = [at EXCEPT ![n] = @ + 1]
TraceSpec == TraceInit /\ [][TraceNext]_tracevars

----------------------------------------------------------------------------
(* Why a line does not fit, in words for the report; it decides nothing. *)

WhySession(l) ==
  CASE ~Playing(l.epoch) -> "the player does not play"
    [] Own(l).term # l.term -> "the player's session with this target is another one"
    [] ~HasSession(l.epoch, l.target) -> "the player has no session with this target"
    [] OTHER -> "ok"

WhyOpened(l) ==
  LET m == toPlayer[Session(l.epoch, l.target)] IN
  CASE m.opened = None -> "the target has not accepted this session, or Opened was read before"
    [] m.opened # l.index -> "the target answered with another index"
    [] OTHER -> "ok"

WhyRead(l) ==
  CASE Own(l).state # "CATCHING_UP" -> "the target is not catching up"
    [] Own(l).covered # l.after -> "the coverage is not the one that was read for"
    [] Len(Own(l).entries) + Len(EntriesFor(l.target, l.after, l.through)) > QueueCountMax -> "the queue has no room"
    [] OTHER -> "the range is not one"

WhyJoin(l) ==
  CASE Own(l).state # "CATCHING_UP" -> "the target is not catching up"
    [] Own(l).covered < player[l.epoch].current -> "the coverage has not reached the main stream"
    [] OTHER -> "ok"

WhySend(l) ==
  LET n == Len(l.indexes) IN
  CASE Own(l).state = "SUSPENDED" -> "the target is suspended"
    [] Own(l).sent # l.prev -> "prev is not the end of the last range"
    [] n > Len(Own(l).entries) \/ SubSeq(Own(l).entries, 1, n) # l.indexes -> "these are not the first entries of the queue"
    [] n > BatchCountMax -> "the batch holds too many entries"
    [] Len(Own(l).window) >= WindowBatchesMax -> "the window is full"
    [] l.to < RangeFloor(Own(l), n) -> "the range ends before its last entry, or is empty"
    [] l.to > RangeLimit(Own(l), n) -> "the range passes an entry that is still queued, or the coverage"
    [] OTHER -> "ok"

WhyDispatch(l) ==
  CASE ~Playing(l.epoch) -> "the player does not play"
    [] l.index <= player[l.epoch].current -> "the main stream has passed this entry"
    [] ~(l.index \in Entries) \/ \E i \in (player[l.epoch].current + 1)..(l.index - 1) : i \in Entries ->
         "it is not the next entry of the log"
    [] ~(l.demoted \subseteq Takers(l.epoch, l.index)) -> "a target was demoted that had nothing to take"
    [] OTHER -> "a full queue was not demoted"

WhyOfPlayer(l) ==
  CASE l.ev = "start" -> "the player has started before"
    [] l.ev = "open" -> IF ~Playing(l.epoch) THEN "the player does not play"
                        ELSE IF HasSession(l.epoch, l.target) THEN "the session before is not over" ELSE "the term does not rise"
    [] l.ev = "dispatch" -> WhyDispatch(l)
    [] l.ev = "jump" -> IF l.current > trim THEN "nothing is trimmed up to there"
                        ELSE IF l.demoted # LeftBehind(l.epoch, l.current) THEN "other targets would lag" ELSE "it is no jump forward"
    [] l.ev = "trim" -> IF ~Playing(l.epoch) THEN "the player does not play" ELSE "not every target has acked that much to this player"
    [] l.ev = "stepdown" -> "the player does not play"
    [] WhySession(l) # "ok" -> WhySession(l)
    [] l.ev = "opened" -> WhyOpened(l)
    [] l.ev = "read" -> WhyRead(l)
    [] l.ev = "join" -> WhyJoin(l)
    [] l.ev = "send" -> WhySend(l)
    [] l.ev = "ack" -> "the target has not given this ack in this session"
    [] OTHER -> "ok"

WhyApply(l) ==
  LET s == Of(l) IN
  CASE ~SessionFits(s) -> "a newer session was accepted"
    [] toTarget[s].batches = <<>> -> "no batch was sent that the target has not read"
    [] ~RangeFits(l.target, Head(toTarget[s].batches)) -> "prev is not the target's index"
    [] OTHER -> "no batch of this session ends there"

WhyOfTarget(l) ==
  CASE l.ev = "crash" -> "the target stands at another index"
    [] l.ev \in {"accept", "refuse"} /\ ~Opening(Of(l)) -> "no Open of this session is waiting"
    [] l.ev = "accept" -> IF MayOpen(Of(l)) THEN "the target stands at another index" ELSE "a newer session was accepted"
    [] l.ev = "refuse" -> "the session is newer than any that was accepted"
    [] ~Reading(Of(l)) -> "the session is not open at the target"
    [] l.ev = "apply" -> WhyApply(l)
    [] OTHER -> "the session is current and its batch fits, or there is none"

Why(l) == IF l.ev \in {"accept", "refuse", "apply", "reject", "crash"} THEN WhyOfTarget(l) ELSE WhyOfPlayer(l)

----------------------------------------------------------------------------
RECURSIVE Words(_)
Words(f) == IF f = <<>> THEN "" ELSE " " \o ToString(Head(f)) \o Words(Tail(f))

\* The names of the invariants that do not hold.
Broken ==
  (IF ExactlyOnce THEN "" ELSE " ExactlyOnce")
  \o (IF MemoryBound THEN "" ELSE " MemoryBound")
  \o (IF QueueHoldsCoverage THEN "" ELSE " QueueHoldsCoverage")
  \o (IF IndexOrder THEN "" ELSE " IndexOrder")
  \o (IF LiveCoversMain THEN "" ELSE " LiveCoversMain")
  \o (IF TrimSafe THEN "" ELSE " TrimSafe")
  \o (IF NoFalseReseed THEN "" ELSE " NoFalseReseed")
  \o (IF AckSound THEN "" ELSE " AckSound")

Stuck == {n \in Nodes : ~Finished(n)}

\* As a constraint TLC evaluates this once in every state, and leaves off where it is false.
Report ==
  IF Broken # "" THEN PrintT("trace broken" \o Broken \o " at" \o Words(at)) /\ FALSE
  ELSE IF Stuck = {} THEN PrintT("trace accepted")
  ELSE IF FirstFit(1) # 0 THEN TRUE
  ELSE PrintT("trace stuck at" \o Words(at)) /\ \A n \in Stuck : PrintT("trace why " \o ToString(n) \o " " \o Why(Line(n)))
=============================================================================

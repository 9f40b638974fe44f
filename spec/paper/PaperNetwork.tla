---------------------------- MODULE PaperNetwork ----------------------------
(* What a network does to the published design.  Its own model lets a failed *)
(* stream vanish at both ends at once; here the target may go on reading a   *)
(* stream that the player has given up, there may be two players, and a      *)
(* target may crash between two of its writes.  A player is only a cursor    *)
(* over the log: PaperQueue has its insides.                                 *)
EXTENDS Integers, Sequences

CONSTANTS
  EntryCount, Players, ConnectionsMax, DisconnectsMax, CrashesMax, LostAcksMax, BatchCountMax, WindowBatchesMax,
  Handshake,   \* "call": getLastAck is a call of its own, as published; "stream": the stream's first answer
  Fence,       \* what the target checks of a stream: "none" as published, "epoch", "session" or "both"
  RangeCheck,  \* a batch says where it begins, and the target compares
  Writes,      \* data and index: "together", "data first" or "index first"
  Durable,     \* the target acks only what survives a crash
  Trim,        \* the log is trimmed up to "nothing", what is "acked", or what is "sent"
  Probes       \* a player that waits for an ack asks for it again

VARIABLES
  index, data,            \* of the target
  durableIndex, durableData,
  half,                   \* the connection whose batch is half applied, or 0
  epoch, session,         \* the highest epoch the target saw, and the stream it accepted last
  conns,                  \* a sequence: player, state, batches on their way, acks on their way
  player,                 \* connection (0: none), cursor, acked, asked, alive
  trim, faults
vars == <<index, data, durableIndex, durableData, half, epoch, session, conns, player, trim, faults>>

Range(a, b) == [i \in 1..(b - a) |-> a + i]
Conns       == DOMAIN conns
targetVars  == <<index, data, durableIndex, durableData, half>>
fenceVars   == <<epoch, session>>

Init ==
  /\ index = 0 /\ data = <<>> /\ durableIndex = 0 /\ durableData = <<>> /\ half = 0
  /\ epoch = 0 /\ session = 0 /\ conns = <<>> /\ trim = 0
  /\ player = [p \in Players |-> [alive |-> TRUE, conn |-> 0, cursor |-> 0, acked |-> 0, asked |-> FALSE]]
  /\ faults = [disconnects |-> DisconnectsMax, crashes |-> CrashesMax, acks |-> LostAcksMax]

----------------------------------------------------------------------------
Ask(p) ==
  /\ Handshake = "call" /\ player[p].alive /\ player[p].conn = 0 /\ ~player[p].asked /\ half = 0
  /\ player' = [player EXCEPT ![p].asked = TRUE, ![p].cursor = index, ![p].acked = index]
  /\ UNCHANGED <<targetVars, fenceVars, conns, trim, faults>>

Open(p) ==
  /\ player[p].alive /\ player[p].conn = 0 /\ Len(conns) < ConnectionsMax
  /\ Handshake = "call" => player[p].asked
  /\ conns' = Append(conns, [player |-> p, state |-> "opening", batches |-> <<>>, acks |-> <<>>])
  /\ player' = [player EXCEPT ![p].conn = Len(conns) + 1, ![p].asked = FALSE]
  /\ UNCHANGED <<targetVars, fenceVars, trim, faults>>

Send(p) ==
  LET c == player[p].conn IN
  /\ player[p].alive /\ c # 0
  /\ conns[c].state = "open" /\ Len(conns[c].batches) < WindowBatchesMax
  /\ \E n \in 1..BatchCountMax :
       /\ player[p].cursor + n <= EntryCount
       /\ conns' = [conns EXCEPT ![c].batches = Append(@, [prev |-> player[p].cursor, to |-> player[p].cursor + n])]
       /\ player' = [player EXCEPT ![p].cursor = @ + n]
  /\ UNCHANGED <<targetVars, fenceVars, trim, faults>>

ReceiveAck(c) ==
  LET p == conns[c].player IN
  /\ conns[c].acks # <<>>
  /\ conns' = [conns EXCEPT ![c].acks = Tail(@)]
  /\ player' = IF player[p].conn = c THEN [player EXCEPT ![p].acked = Head(conns[c].acks)] ELSE player
  /\ UNCHANGED <<targetVars, fenceVars, trim, faults>>

Probe(p) ==
  LET c == player[p].conn IN
  /\ Probes /\ player[p].alive /\ c # 0 /\ half = 0
  /\ conns[c].state = "open" /\ conns[c].batches = <<>> /\ conns[c].acks = <<>> /\ player[p].acked < index
  /\ conns' = [conns EXCEPT ![c].acks = <<index>>]
  /\ UNCHANGED <<targetVars, fenceVars, player, trim, faults>>

TrimLog(p) ==
  LET to == IF Trim = "acked" THEN player[p].acked ELSE player[p].cursor IN
  /\ Trim # "nothing" /\ player[p].alive /\ to > trim /\ trim' = to
  /\ UNCHANGED <<targetVars, fenceVars, conns, player, faults>>

----------------------------------------------------------------------------
Closed(c) == [conns EXCEPT ![c].state = "closed", ![c].batches = <<>>]
LeftBy(c) == [player EXCEPT ![conns[c].player].conn = IF @ = c THEN 0 ELSE @]

Accept(c) ==
  LET p == conns[c].player IN
  /\ conns[c].state = "opening" /\ half = 0
  /\ IF Fence \in {"epoch", "both"} /\ p < epoch
     THEN /\ conns' = Closed(c)     \* the player learns that there is a newer one
          /\ player' = [player EXCEPT ![p].alive = FALSE, ![p].conn = 0]
          /\ UNCHANGED fenceVars
     ELSE /\ conns' = [conns EXCEPT ![c].state = "open"]
          /\ epoch' = (IF p > epoch THEN p ELSE epoch) /\ session' = c
          /\ player' = IF Handshake = "stream" /\ player[p].conn = c
                       THEN [player EXCEPT ![p].cursor = index, ![p].acked = index] ELSE player
  /\ UNCHANGED <<targetVars, trim, faults>>

Fenced(c) == \/ Fence \in {"session", "both"} /\ c # session
             \/ Fence = "epoch" /\ conns[c].player < epoch

Apply(c) ==
  LET b == Head(conns[c].batches)
      grown == data \o Range(b.prev, b.to) IN
  /\ conns[c].state \in {"open", "orphan"} /\ conns[c].batches # <<>> /\ half = 0
  /\ IF Fenced(c) \/ (RangeCheck /\ b.prev # index)
     THEN conns' = Closed(c) /\ player' = LeftBy(c) /\ UNCHANGED targetVars
     ELSE IF Writes = "together"
     THEN /\ data' = grown /\ index' = b.to
          /\ IF Durable THEN durableData' = grown /\ durableIndex' = b.to ELSE UNCHANGED <<durableData, durableIndex>>
          /\ conns' = [conns EXCEPT ![c].batches = Tail(@), ![c].acks = Append(@, b.to)]
          /\ UNCHANGED <<half, player>>
     ELSE /\ half' = c
          /\ IF Writes = "data first"
             THEN data' = grown /\ durableData' = grown /\ UNCHANGED <<index, durableIndex>>
             ELSE index' = b.to /\ durableIndex' = b.to /\ UNCHANGED <<data, durableData>>
          /\ UNCHANGED <<conns, player>>
  /\ UNCHANGED <<fenceVars, trim, faults>>

SecondHalf ==
  LET b == Head(conns[half].batches)
      grown == data \o Range(b.prev, b.to) IN
  /\ half # 0 /\ half' = 0
  /\ IF Writes = "data first"
     THEN index' = b.to /\ durableIndex' = b.to /\ UNCHANGED <<data, durableData>>
     ELSE data' = grown /\ durableData' = grown /\ UNCHANGED <<index, durableIndex>>
  /\ conns' = [conns EXCEPT ![half].batches = Tail(@), ![half].acks = Append(@, b.to)]
  /\ UNCHANGED <<fenceVars, player, trim, faults>>

Persist ==
  /\ ~Durable /\ durableIndex < index /\ durableIndex' = index /\ durableData' = data
  /\ UNCHANGED <<index, data, half, fenceVars, conns, player, trim, faults>>

----------------------------------------------------------------------------
Disconnect(c) ==     \* the player gives the stream up; the target may still read it
  /\ faults.disconnects > 0 /\ faults' = [faults EXCEPT !.disconnects = @ - 1]
  /\ conns[c].state \in {"opening", "open"} /\ player[conns[c].player].conn = c
  /\ conns' = [conns EXCEPT ![c].state = IF @ = "open" THEN "orphan" ELSE "closed"]
  /\ player' = LeftBy(c)
  /\ UNCHANGED <<targetVars, fenceVars, trim>>

Vanish(c) ==
  /\ conns[c].state = "orphan" /\ half # c /\ conns' = Closed(c)
  /\ UNCHANGED <<targetVars, fenceVars, player, trim, faults>>

Crash ==
  /\ faults.crashes > 0 /\ faults' = [faults EXCEPT !.crashes = @ - 1]
  /\ index' = durableIndex /\ data' = durableData /\ half' = 0 /\ session' = 0
  /\ conns' = [c \in Conns |-> [conns[c] EXCEPT !.state = "closed", !.batches = <<>>]]
  /\ player' = [p \in Players |-> [player[p] EXCEPT !.conn = 0]]
  /\ UNCHANGED <<durableIndex, durableData, epoch, trim>>

LoseAck(c) ==
  /\ faults.acks > 0 /\ faults' = [faults EXCEPT !.acks = @ - 1]
  /\ conns[c].acks # <<>> /\ conns' = [conns EXCEPT ![c].acks = Tail(@)]
  /\ UNCHANGED <<targetVars, fenceVars, player, trim>>

Next ==
  \/ \E p \in Players : Ask(p) \/ Open(p) \/ Send(p) \/ Probe(p) \/ TrimLog(p)
  \/ \E c \in Conns : Accept(c) \/ Apply(c) \/ ReceiveAck(c) \/ Disconnect(c) \/ Vanish(c) \/ LoseAck(c)
  \/ SecondHalf \/ Persist \/ Crash
Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

ExactlyOnce       == data = Range(0, Len(data))
TrimSafe          == trim <= durableIndex
EverythingArrives == <>(data = Range(0, EntryCount))
EverythingAcked   == <>(\E p \in Players : player[p].acked = EntryCount)
=============================================================================

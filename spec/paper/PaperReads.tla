----------------------------- MODULE PaperReads -----------------------------
(* The half of the published player that reads acks, which its own model     *)
(* leaves out: read_status, last_ack and the map of popped batches.  Writes  *)
(* succeed at once, and a batch is one entry.                                *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
  EntryCount, RestartsMax,
  TagsVanish,    \* a dead stream leaves no completions behind: the published abstraction of gRPC
  ResetRead,     \* a restart resets read_status too; as published it resets write_status only
  TagsNameTheStream,
  EraseUpTo,     \* an ack frees every batch up to it; as published exactly its own
  Coalesce       \* the target may answer several batches with one ack, as a footnote allows

VARIABLES term, sent, applied, lastAck, acks, ready, reads, completions, popped, restarts, twoReads
vars == <<term, sent, applied, lastAck, acks, ready, reads, completions, popped, restarts, twoReads>>

Init ==
  /\ term = 1 /\ sent = 0 /\ applied = 0 /\ lastAck = 0 /\ acks = <<>> /\ ready = TRUE
  /\ reads = {} /\ completions = <<>> /\ popped = {} /\ restarts = 0 /\ twoReads = FALSE

ReadNext(isReady, outstanding) ==
  IF isReady
  THEN ready' = FALSE /\ reads' = outstanding \cup {term} /\ twoReads' = (twoReads \/ term \in outstanding)
  ELSE ready' = isReady /\ reads' = outstanding /\ UNCHANGED twoReads

Dispatch ==
  /\ sent < EntryCount /\ sent' = sent + 1 /\ popped' = popped \cup {sent + 1} /\ ReadNext(ready, reads)
  /\ UNCHANGED <<term, applied, lastAck, acks, completions, restarts>>

Apply ==
  /\ applied < sent
  /\ \E to \in (applied + 1)..(IF Coalesce THEN sent ELSE applied + 1) : applied' = to /\ acks' = Append(acks, to)
  /\ UNCHANGED <<term, sent, lastAck, ready, reads, completions, popped, restarts, twoReads>>

Complete ==
  /\ term \in reads /\ acks # <<>>
  /\ completions' = Append(completions, [stream |-> term, ack |-> Head(acks)])
  /\ acks' = Tail(acks) /\ reads' = reads \ {term}
  /\ UNCHANGED <<term, sent, applied, lastAck, ready, popped, restarts, twoReads>>

Fail(s) ==     \* a read of a dead stream completes without a message
  /\ s < term
  /\ completions' = (IF TagsVanish THEN completions ELSE Append(completions, [stream |-> s, ack |-> -1]))
  /\ reads' = reads \ {s}
  /\ UNCHANGED <<term, sent, applied, lastAck, acks, ready, popped, restarts, twoReads>>

Handle ==
  LET tag == Head(completions) IN
  /\ completions # <<>> /\ completions' = Tail(completions)
  /\ IF TagsNameTheStream /\ tag.stream # term THEN UNCHANGED <<lastAck, popped, ready, reads, twoReads>>
     ELSE /\ lastAck' = IF tag.ack = -1 THEN lastAck ELSE tag.ack
          /\ popped' = IF tag.ack = -1 THEN popped
                       ELSE IF EraseUpTo THEN {i \in popped : i > tag.ack} ELSE popped \ {tag.ack}
          /\ ReadNext(TRUE, reads)
  /\ UNCHANGED <<term, sent, applied, acks, restarts>>

Restart ==
  /\ restarts < RestartsMax /\ restarts' = restarts + 1 /\ term' = term + 1
  /\ lastAck' = applied /\ sent' = applied /\ acks' = <<>> /\ popped' = {}
  /\ completions' = (IF TagsVanish THEN <<>> ELSE completions) /\ ready' = (ResetRead \/ ready)
  /\ UNCHANGED <<applied, reads, twoReads>>

Next == Dispatch \/ Apply \/ Complete \/ Handle \/ Restart \/ \E s \in reads : Fail(s)
Spec == Init /\ [][Next]_vars /\ WF_vars(Next)

OneRead         == ~twoReads     \* gRPC allows one outstanding read on a stream
AckRises        == [][lastAck' >= lastAck]_vars
EverythingAcked == <>[](applied = EntryCount /\ lastAck = EntryCount)
NothingLeaks    == <>[](popped = {})
=============================================================================

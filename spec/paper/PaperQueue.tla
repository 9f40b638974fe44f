----------------------------- MODULE PaperQueue -----------------------------
(* The published player, one target, step by step within its own locks.      *)
(* Fixes = {} is the pseudocode as printed; each name in Fixes repairs one   *)
(* hole.  Functions and states have their published names:                   *)
(*   N  entries come from the normal queue                                   *)
(*   RF recovery fetches: entries come from the catch-up queue               *)
(*   FC fetching is complete, the catch-up queue drains                      *)
(*   S  suspended                                                            *)
EXTENDS Integers, Sequences

CONSTANTS
  EntryCount, FailuresMax, BatchCountMax,
  Fixes,        \* a set of names, used below
  TagsSurvive,  \* completions of a dead stream show up later, as with gRPC; the published model wipes them
  QuickReturn   \* a target may be back before the health checker has noticed that it was away

AllFixes == {
  "SendInNormalBranch",     \* fetchingCompleted calls sendNext when it goes to N, as the prose says
  "LockFetchingCompleted",  \* fetchingCompleted is one step; it is printed without a lock
  "SendIsOneStep",          \* sendNext: from the pop to the write nothing can come between
  "CompletionIsOneStep",    \* the handling of a completion cannot be cut by suspend and restart
  "TagsNameTheStream",      \* completions of a dead stream are ignored
  "BatchBelowMax",          \* a batch ends at its maximum; printed is maximum + 1
  "FrontLooksFirst",        \* front does not read an empty queue
  "RestartSuspends"}        \* a restart begins with suspend
ASSUME Fixes \subseteq AllFixes
Fixed(name) == name \in Fixes

Nothing == 0
NoSuchEntry == -1     \* what front of an empty queue returns

Front(st, nq, cq) ==  \* <<state, entry>>
  IF st \in {"RF", "FC"} /\ cq # <<>> THEN <<st, Head(cq)>>
  ELSE IF st = "FC" THEN
         IF nq = <<>> THEN <<"N", IF Fixed("FrontLooksFirst") THEN Nothing ELSE NoSuchEntry>> ELSE <<"N", Head(nq)>>
  ELSE IF st = "N" /\ nq # <<>> THEN <<st, Head(nq)>>
  ELSE <<st, Nothing>>

Pop(st, nq, cq) ==    \* <<state, normal, catchup>>
  IF st \in {"RF", "FC"} /\ cq # <<>> THEN <<IF st = "FC" /\ Tail(cq) = <<>> THEN "N" ELSE st, nq, Tail(cq)>>
  ELSE IF st = "N" /\ nq # <<>> THEN <<st, Tail(nq), cq>>
  ELSE <<st, nq, cq>>

Full(n) == IF Fixed("BatchBelowMax") THEN n >= BatchCountMax ELSE n > BatchCountMax

RECURSIVE NextBatch(_, _, _, _)
NextBatch(st, nq, cq, taken) ==
  LET f == Front(st, nq, cq) IN
  IF f[2] = NoSuchEntry THEN [state |-> f[1], normal |-> nq, catchup |-> cq, batch |-> taken, bad |-> TRUE]
  ELSE IF f[2] = Nothing \/ Full(Len(taken))
  THEN [state |-> f[1], normal |-> nq, catchup |-> cq, batch |-> taken, bad |-> FALSE]
  ELSE LET p == Pop(f[1], nq, cq) IN NextBatch(p[1], p[2], p[3], Append(taken, f[2]))

(* --algorithm PaperQueue
variables
  lastAck \in 0..EntryCount,     \* a player starts anywhere
  applied = lastAck,             \* what the target has durably
  current = lastAck,
  state = "N", term = 1, normal = <<>>, catchup = <<>>,
  holdsBatch = FALSE,            \* currentBatch is allocated
  writeReady = TRUE,
  wire = <<>>, up = TRUE,
  completions = <<>>,            \* the streams (terms) whose write has completed
  Ld = 0, Ls = 0,                \* locks: the process that holds them
  batch = [p \in {1, 2} \cup 11..(10 + FailuresMax) |-> <<>>],
  failures = 0,
  recovery = [k \in 1..FailuresMax |-> [on |-> FALSE, from |-> 0, to |-> 0, term |-> 0]],
  wrong = "nothing";

define
  ExactlyOnce   == wrong # "order"
  NoEmptyFront  == wrong # "empty front"     \* front of an empty queue
  NoFreedBatch  == wrong # "freed batch"     \* a batch that suspend has freed is used
  OneWrite      == wrong # "two writes"      \* gRPC allows one outstanding write on a stream
  BatchBound    == wrong # "large batch"
  EverythingArrives == <>(lastAck = EntryCount)
end define;

macro push(e, isMain, forTerm) begin
  if state # "S" /\ (isMain \/ forTerm = term) then
    if isMain then normal := Append(normal, e); else catchup := Append(catchup, e); end if;
  end if;
end macro;

macro suspend() begin
  state := "S"; normal := <<>>; catchup := <<>>; holdsBatch := FALSE;
  if ~TagsSurvive then completions := <<>>; end if;
end macro;

macro write(b) begin
  if up then wire := wire \o b; end if;
  if \E k \in DOMAIN completions : completions[k] = term then wrong := "two writes"; end if;
  completions := Append(completions, term);
  writeReady := FALSE;
end macro;

macro popBatch() begin
  if ~holdsBatch then wrong := "freed batch"; end if;
end macro;

procedure sendNext()
begin
 take:
  await Ls = 0;
  if writeReady then
    with r = NextBatch(state, normal, catchup, <<>>) do
      state := r.state; normal := r.normal; catchup := r.catchup; holdsBatch := (r.batch # <<>>);
      if r.bad then wrong := "empty front";
      elsif Len(r.batch) > BatchCountMax then wrong := "large batch";
      elsif Fixed("SendIsOneStep") then
        if r.batch # <<>> then write(r.batch); end if;
      else
        batch[self] := r.batch; Ls := self;
      end if;
    end with;
    if Fixed("SendIsOneStep") then return; end if;
  else
    return;
  end if;
 put:
  if batch[self] # <<>> /\ state # "S" then write(batch[self]); end if;
  Ls := 0; batch[self] := <<>>;
  return;
end procedure;

procedure dispatch(e = 0, isMain = FALSE, forTerm = 0)
begin
 lock:
  await Ld = 0; Ld := self;
  if lastAck < e then push(e, isMain, forTerm); else goto unlock; end if;
 send:
  call sendNext();
 unlock:
  if isMain then current := e; end if;
  Ld := 0;
  return;
end procedure;

fair process main = 1
variables i = lastAck + 1;
begin
 fetch:
  while i <= EntryCount do
    i := i + 1;
    call dispatch(i - 1, TRUE, 0);
  end while;
end process;

fair process recover \in 11..(10 + FailuresMax)
variables j = 0, empty = FALSE;
begin
 begin_:
  await recovery[self - 10].on; j := recovery[self - 10].from;
 refetch:
  while j <= recovery[self - 10].to do
    j := j + 1;
    call dispatch(j - 1, FALSE, recovery[self - 10].term);
  end while;
 fetchingCompleted:
  if state = "RF" /\ term = recovery[self - 10].term then
    empty := (catchup = <<>>);
    if Fixed("LockFetchingCompleted") then
      state := IF empty THEN "N" ELSE "FC";
      goto completed;
    end if;
  else
    goto Done;
  end if;
 become:
  state := IF empty THEN "N" ELSE "FC";
 completed:
  if ~empty \/ Fixed("SendInNormalBranch") then call sendNext(); end if;
end process;

fair process completion = 2
variables tag = 0;
begin
 wait:
  while TRUE do
    await completions # <<>>;
    tag := Head(completions); completions := Tail(completions);
    if Fixed("TagsNameTheStream") /\ (tag # term \/ state = "S") then goto wait;
    elsif Fixed("CompletionIsOneStep") then popBatch(); writeReady := TRUE; goto sendMore;
    end if;
 free:
    popBatch();
 ready:
    writeReady := TRUE;
 sendMore:
    call sendNext();
  end while;
end process;

fair process target = 4
begin
 apply:
  while TRUE do
    await wire # <<>>;
    if Head(wire) # applied + 1 then wrong := "order"; end if;
    applied := Head(wire); lastAck := Head(wire); wire := Tail(wire);
  end while;
end process;

fair process failure = 3
begin
 fail:
  while failures < FailuresMax do
    either
      up := FALSE; wire := <<>>; failures := failures + 1;
      if ~TagsSurvive then completions := <<>>; end if;
    or
      goto Done;
    end either;
 notice:
    either suspend(); or await QuickReturn; skip; end either;
 restart:
    await Ld = 0; Ld := 3;
    if Fixed("RestartSuspends") /\ state # "S" then
      normal := <<>>; catchup := <<>>; holdsBatch := FALSE;
      if ~TagsSurvive then completions := <<>>; end if;
    end if;
    up := TRUE; term := term + 1; state := "RF"; writeReady := TRUE;
 getLastAck:
    lastAck := applied;
    if lastAck < current then
      recovery[failures] := [on |-> TRUE, from |-> lastAck + 1, to |-> current, term |-> term];
    else
      state := "N";
    end if;
    Ld := 0;
  end while;
end process;

end algorithm; *)
\* BEGIN TRANSLATION - the hash of the PCal code: PCal-94cc1e083e296cc58a0f4f89bd868ffd
VARIABLES lastAck, applied, current, state, term, normal, catchup, holdsBatch, 
          writeReady, wire, up, completions, Ld, Ls, batch, failures, 
          recovery, wrong, pc, stack

(* define statement *)
ExactlyOnce   == wrong # "order"
NoEmptyFront  == wrong # "empty front"
NoFreedBatch  == wrong # "freed batch"
OneWrite      == wrong # "two writes"
BatchBound    == wrong # "large batch"
EverythingArrives == <>(lastAck = EntryCount)

VARIABLES e, isMain, forTerm, i, j, empty, tag

vars == << lastAck, applied, current, state, term, normal, catchup, 
           holdsBatch, writeReady, wire, up, completions, Ld, Ls, batch, 
           failures, recovery, wrong, pc, stack, e, isMain, forTerm, i, j, 
           empty, tag >>

ProcSet == {1} \cup (11..(10 + FailuresMax)) \cup {2} \cup {4} \cup {3}

Init == (* Global variables *)
        /\ lastAck \in 0..EntryCount
        /\ applied = lastAck
        /\ current = lastAck
        /\ state = "N"
        /\ term = 1
        /\ normal = <<>>
        /\ catchup = <<>>
        /\ holdsBatch = FALSE
        /\ writeReady = TRUE
        /\ wire = <<>>
        /\ up = TRUE
        /\ completions = <<>>
        /\ Ld = 0
        /\ Ls = 0
        /\ batch = [p \in {1, 2} \cup 11..(10 + FailuresMax) |-> <<>>]
        /\ failures = 0
        /\ recovery = [k \in 1..FailuresMax |-> [on |-> FALSE, from |-> 0, to |-> 0, term |-> 0]]
        /\ wrong = "nothing"
        (* Procedure dispatch *)
        /\ e = [ self \in ProcSet |-> 0]
        /\ isMain = [ self \in ProcSet |-> FALSE]
        /\ forTerm = [ self \in ProcSet |-> 0]
        (* Process main *)
        /\ i = lastAck + 1
        (* Process recover *)
        /\ j = [self \in 11..(10 + FailuresMax) |-> 0]
        /\ empty = [self \in 11..(10 + FailuresMax) |-> FALSE]
        (* Process completion *)
        /\ tag = 0
        /\ stack = [self \in ProcSet |-> << >>]
        /\ pc = [self \in ProcSet |-> CASE self = 1 -> "fetch"
                                        [] self \in 11..(10 + FailuresMax) -> "begin_"
                                        [] self = 2 -> "wait"
                                        [] self = 4 -> "apply"
                                        [] self = 3 -> "fail"]

take(self) == /\ pc[self] = "take"
              /\ Ls = 0
              /\ IF writeReady
                    THEN /\ LET r == NextBatch(state, normal, catchup, <<>>) IN
                              /\ state' = r.state
                              /\ normal' = r.normal
                              /\ catchup' = r.catchup
                              /\ holdsBatch' = (r.batch # <<>>)
                              /\ IF r.bad
                                    THEN /\ wrong' = "empty front"
                                         /\ UNCHANGED << writeReady, wire, 
                                                         completions, Ls, 
                                                         batch >>
                                    ELSE /\ IF Len(r.batch) > BatchCountMax
                                               THEN /\ wrong' = "large batch"
                                                    /\ UNCHANGED << writeReady, 
                                                                    wire, 
                                                                    completions, 
                                                                    Ls, batch >>
                                               ELSE /\ IF Fixed("SendIsOneStep")
                                                          THEN /\ IF r.batch # <<>>
                                                                     THEN /\ IF up
                                                                                THEN /\ wire' = wire \o (r.batch)
                                                                                ELSE /\ TRUE
                                                                                     /\ wire' = wire
                                                                          /\ IF \E k \in DOMAIN completions : completions[k] = term
                                                                                THEN /\ wrong' = "two writes"
                                                                                ELSE /\ TRUE
                                                                                     /\ wrong' = wrong
                                                                          /\ completions' = Append(completions, term)
                                                                          /\ writeReady' = FALSE
                                                                     ELSE /\ TRUE
                                                                          /\ UNCHANGED << writeReady, 
                                                                                          wire, 
                                                                                          completions, 
                                                                                          wrong >>
                                                               /\ UNCHANGED << Ls, 
                                                                               batch >>
                                                          ELSE /\ batch' = [batch EXCEPT ![self] = r.batch]
                                                               /\ Ls' = self
                                                               /\ UNCHANGED << writeReady, 
                                                                               wire, 
                                                                               completions, 
                                                                               wrong >>
                         /\ IF Fixed("SendIsOneStep")
                               THEN /\ pc' = [pc EXCEPT ![self] = Head(stack[self]).pc]
                                    /\ stack' = [stack EXCEPT ![self] = Tail(stack[self])]
                               ELSE /\ pc' = [pc EXCEPT ![self] = "put"]
                                    /\ stack' = stack
                    ELSE /\ pc' = [pc EXCEPT ![self] = Head(stack[self]).pc]
                         /\ stack' = [stack EXCEPT ![self] = Tail(stack[self])]
                         /\ UNCHANGED << state, normal, catchup, holdsBatch, 
                                         writeReady, wire, completions, Ls, 
                                         batch, wrong >>
              /\ UNCHANGED << lastAck, applied, current, term, up, Ld, 
                              failures, recovery, e, isMain, forTerm, i, j, 
                              empty, tag >>

put(self) == /\ pc[self] = "put"
             /\ IF batch[self] # <<>> /\ state # "S"
                   THEN /\ IF up
                              THEN /\ wire' = wire \o (batch[self])
                              ELSE /\ TRUE
                                   /\ wire' = wire
                        /\ IF \E k \in DOMAIN completions : completions[k] = term
                              THEN /\ wrong' = "two writes"
                              ELSE /\ TRUE
                                   /\ wrong' = wrong
                        /\ completions' = Append(completions, term)
                        /\ writeReady' = FALSE
                   ELSE /\ TRUE
                        /\ UNCHANGED << writeReady, wire, completions, wrong >>
             /\ Ls' = 0
             /\ batch' = [batch EXCEPT ![self] = <<>>]
             /\ pc' = [pc EXCEPT ![self] = Head(stack[self]).pc]
             /\ stack' = [stack EXCEPT ![self] = Tail(stack[self])]
             /\ UNCHANGED << lastAck, applied, current, state, term, normal, 
                             catchup, holdsBatch, up, Ld, failures, recovery, 
                             e, isMain, forTerm, i, j, empty, tag >>

sendNext(self) == take(self) \/ put(self)

lock(self) == /\ pc[self] = "lock"
              /\ Ld = 0
              /\ Ld' = self
              /\ IF lastAck < e[self]
                    THEN /\ IF state # "S" /\ (isMain[self] \/ forTerm[self] = term)
                               THEN /\ IF isMain[self]
                                          THEN /\ normal' = Append(normal, e[self])
                                               /\ UNCHANGED catchup
                                          ELSE /\ catchup' = Append(catchup, e[self])
                                               /\ UNCHANGED normal
                               ELSE /\ TRUE
                                    /\ UNCHANGED << normal, catchup >>
                         /\ pc' = [pc EXCEPT ![self] = "send"]
                    ELSE /\ pc' = [pc EXCEPT ![self] = "unlock"]
                         /\ UNCHANGED << normal, catchup >>
              /\ UNCHANGED << lastAck, applied, current, state, term, 
                              holdsBatch, writeReady, wire, up, completions, 
                              Ls, batch, failures, recovery, wrong, stack, e, 
                              isMain, forTerm, i, j, empty, tag >>

send(self) == /\ pc[self] = "send"
              /\ stack' = [stack EXCEPT ![self] = << [ procedure |->  "sendNext",
                                                       pc        |->  "unlock" ] >>
                                                   \o stack[self]]
              /\ pc' = [pc EXCEPT ![self] = "take"]
              /\ UNCHANGED << lastAck, applied, current, state, term, normal, 
                              catchup, holdsBatch, writeReady, wire, up, 
                              completions, Ld, Ls, batch, failures, recovery, 
                              wrong, e, isMain, forTerm, i, j, empty, tag >>

unlock(self) == /\ pc[self] = "unlock"
                /\ IF isMain[self]
                      THEN /\ current' = e[self]
                      ELSE /\ TRUE
                           /\ UNCHANGED current
                /\ Ld' = 0
                /\ pc' = [pc EXCEPT ![self] = Head(stack[self]).pc]
                /\ e' = [e EXCEPT ![self] = Head(stack[self]).e]
                /\ isMain' = [isMain EXCEPT ![self] = Head(stack[self]).isMain]
                /\ forTerm' = [forTerm EXCEPT ![self] = Head(stack[self]).forTerm]
                /\ stack' = [stack EXCEPT ![self] = Tail(stack[self])]
                /\ UNCHANGED << lastAck, applied, state, term, normal, catchup, 
                                holdsBatch, writeReady, wire, up, completions, 
                                Ls, batch, failures, recovery, wrong, i, j, 
                                empty, tag >>

dispatch(self) == lock(self) \/ send(self) \/ unlock(self)

fetch == /\ pc[1] = "fetch"
         /\ IF i <= EntryCount
               THEN /\ i' = i + 1
                    /\ /\ e' = [e EXCEPT ![1] = i' - 1]
                       /\ forTerm' = [forTerm EXCEPT ![1] = 0]
                       /\ isMain' = [isMain EXCEPT ![1] = TRUE]
                       /\ stack' = [stack EXCEPT ![1] = << [ procedure |->  "dispatch",
                                                             pc        |->  "fetch",
                                                             e         |->  e[1],
                                                             isMain    |->  isMain[1],
                                                             forTerm   |->  forTerm[1] ] >>
                                                         \o stack[1]]
                    /\ pc' = [pc EXCEPT ![1] = "lock"]
               ELSE /\ pc' = [pc EXCEPT ![1] = "Done"]
                    /\ UNCHANGED << stack, e, isMain, forTerm, i >>
         /\ UNCHANGED << lastAck, applied, current, state, term, normal, 
                         catchup, holdsBatch, writeReady, wire, up, 
                         completions, Ld, Ls, batch, failures, recovery, wrong, 
                         j, empty, tag >>

main == fetch

begin_(self) == /\ pc[self] = "begin_"
                /\ recovery[self - 10].on
                /\ j' = [j EXCEPT ![self] = recovery[self - 10].from]
                /\ pc' = [pc EXCEPT ![self] = "refetch"]
                /\ UNCHANGED << lastAck, applied, current, state, term, normal, 
                                catchup, holdsBatch, writeReady, wire, up, 
                                completions, Ld, Ls, batch, failures, recovery, 
                                wrong, stack, e, isMain, forTerm, i, empty, 
                                tag >>

refetch(self) == /\ pc[self] = "refetch"
                 /\ IF j[self] <= recovery[self - 10].to
                       THEN /\ j' = [j EXCEPT ![self] = j[self] + 1]
                            /\ /\ e' = [e EXCEPT ![self] = j'[self] - 1]
                               /\ forTerm' = [forTerm EXCEPT ![self] = recovery[self - 10].term]
                               /\ isMain' = [isMain EXCEPT ![self] = FALSE]
                               /\ stack' = [stack EXCEPT ![self] = << [ procedure |->  "dispatch",
                                                                        pc        |->  "refetch",
                                                                        e         |->  e[self],
                                                                        isMain    |->  isMain[self],
                                                                        forTerm   |->  forTerm[self] ] >>
                                                                    \o stack[self]]
                            /\ pc' = [pc EXCEPT ![self] = "lock"]
                       ELSE /\ pc' = [pc EXCEPT ![self] = "fetchingCompleted"]
                            /\ UNCHANGED << stack, e, isMain, forTerm, j >>
                 /\ UNCHANGED << lastAck, applied, current, state, term, 
                                 normal, catchup, holdsBatch, writeReady, wire, 
                                 up, completions, Ld, Ls, batch, failures, 
                                 recovery, wrong, i, empty, tag >>

fetchingCompleted(self) == /\ pc[self] = "fetchingCompleted"
                           /\ IF state = "RF" /\ term = recovery[self - 10].term
                                 THEN /\ empty' = [empty EXCEPT ![self] = (catchup = <<>>)]
                                      /\ IF Fixed("LockFetchingCompleted")
                                            THEN /\ state' = IF empty'[self] THEN "N" ELSE "FC"
                                                 /\ pc' = [pc EXCEPT ![self] = "completed"]
                                            ELSE /\ pc' = [pc EXCEPT ![self] = "become"]
                                                 /\ state' = state
                                 ELSE /\ pc' = [pc EXCEPT ![self] = "Done"]
                                      /\ UNCHANGED << state, empty >>
                           /\ UNCHANGED << lastAck, applied, current, term, 
                                           normal, catchup, holdsBatch, 
                                           writeReady, wire, up, completions, 
                                           Ld, Ls, batch, failures, recovery, 
                                           wrong, stack, e, isMain, forTerm, i, 
                                           j, tag >>

become(self) == /\ pc[self] = "become"
                /\ state' = IF empty[self] THEN "N" ELSE "FC"
                /\ pc' = [pc EXCEPT ![self] = "completed"]
                /\ UNCHANGED << lastAck, applied, current, term, normal, 
                                catchup, holdsBatch, writeReady, wire, up, 
                                completions, Ld, Ls, batch, failures, recovery, 
                                wrong, stack, e, isMain, forTerm, i, j, empty, 
                                tag >>

completed(self) == /\ pc[self] = "completed"
                   /\ IF ~empty[self] \/ Fixed("SendInNormalBranch")
                         THEN /\ stack' = [stack EXCEPT ![self] = << [ procedure |->  "sendNext",
                                                                       pc        |->  "Done" ] >>
                                                                   \o stack[self]]
                              /\ pc' = [pc EXCEPT ![self] = "take"]
                         ELSE /\ pc' = [pc EXCEPT ![self] = "Done"]
                              /\ stack' = stack
                   /\ UNCHANGED << lastAck, applied, current, state, term, 
                                   normal, catchup, holdsBatch, writeReady, 
                                   wire, up, completions, Ld, Ls, batch, 
                                   failures, recovery, wrong, e, isMain, 
                                   forTerm, i, j, empty, tag >>

recover(self) == begin_(self) \/ refetch(self) \/ fetchingCompleted(self)
                    \/ become(self) \/ completed(self)

wait == /\ pc[2] = "wait"
        /\ completions # <<>>
        /\ tag' = Head(completions)
        /\ completions' = Tail(completions)
        /\ IF Fixed("TagsNameTheStream") /\ (tag' # term \/ state = "S")
              THEN /\ pc' = [pc EXCEPT ![2] = "wait"]
                   /\ UNCHANGED << writeReady, wrong >>
              ELSE /\ IF Fixed("CompletionIsOneStep")
                         THEN /\ IF ~holdsBatch
                                    THEN /\ wrong' = "freed batch"
                                    ELSE /\ TRUE
                                         /\ wrong' = wrong
                              /\ writeReady' = TRUE
                              /\ pc' = [pc EXCEPT ![2] = "sendMore"]
                         ELSE /\ pc' = [pc EXCEPT ![2] = "free"]
                              /\ UNCHANGED << writeReady, wrong >>
        /\ UNCHANGED << lastAck, applied, current, state, term, normal, 
                        catchup, holdsBatch, wire, up, Ld, Ls, batch, failures, 
                        recovery, stack, e, isMain, forTerm, i, j, empty >>

free == /\ pc[2] = "free"
        /\ IF ~holdsBatch
              THEN /\ wrong' = "freed batch"
              ELSE /\ TRUE
                   /\ wrong' = wrong
        /\ pc' = [pc EXCEPT ![2] = "ready"]
        /\ UNCHANGED << lastAck, applied, current, state, term, normal, 
                        catchup, holdsBatch, writeReady, wire, up, completions, 
                        Ld, Ls, batch, failures, recovery, stack, e, isMain, 
                        forTerm, i, j, empty, tag >>

ready == /\ pc[2] = "ready"
         /\ writeReady' = TRUE
         /\ pc' = [pc EXCEPT ![2] = "sendMore"]
         /\ UNCHANGED << lastAck, applied, current, state, term, normal, 
                         catchup, holdsBatch, wire, up, completions, Ld, Ls, 
                         batch, failures, recovery, wrong, stack, e, isMain, 
                         forTerm, i, j, empty, tag >>

sendMore == /\ pc[2] = "sendMore"
            /\ stack' = [stack EXCEPT ![2] = << [ procedure |->  "sendNext",
                                                  pc        |->  "wait" ] >>
                                              \o stack[2]]
            /\ pc' = [pc EXCEPT ![2] = "take"]
            /\ UNCHANGED << lastAck, applied, current, state, term, normal, 
                            catchup, holdsBatch, writeReady, wire, up, 
                            completions, Ld, Ls, batch, failures, recovery, 
                            wrong, e, isMain, forTerm, i, j, empty, tag >>

completion == wait \/ free \/ ready \/ sendMore

apply == /\ pc[4] = "apply"
         /\ wire # <<>>
         /\ IF Head(wire) # applied + 1
               THEN /\ wrong' = "order"
               ELSE /\ TRUE
                    /\ wrong' = wrong
         /\ applied' = Head(wire)
         /\ lastAck' = Head(wire)
         /\ wire' = Tail(wire)
         /\ pc' = [pc EXCEPT ![4] = "apply"]
         /\ UNCHANGED << current, state, term, normal, catchup, holdsBatch, 
                         writeReady, up, completions, Ld, Ls, batch, failures, 
                         recovery, stack, e, isMain, forTerm, i, j, empty, tag >>

target == apply

fail == /\ pc[3] = "fail"
        /\ IF failures < FailuresMax
              THEN /\ \/ /\ up' = FALSE
                         /\ wire' = <<>>
                         /\ failures' = failures + 1
                         /\ IF ~TagsSurvive
                               THEN /\ completions' = <<>>
                               ELSE /\ TRUE
                                    /\ UNCHANGED completions
                         /\ pc' = [pc EXCEPT ![3] = "notice"]
                      \/ /\ pc' = [pc EXCEPT ![3] = "Done"]
                         /\ UNCHANGED <<wire, up, completions, failures>>
              ELSE /\ pc' = [pc EXCEPT ![3] = "Done"]
                   /\ UNCHANGED << wire, up, completions, failures >>
        /\ UNCHANGED << lastAck, applied, current, state, term, normal, 
                        catchup, holdsBatch, writeReady, Ld, Ls, batch, 
                        recovery, wrong, stack, e, isMain, forTerm, i, j, 
                        empty, tag >>

notice == /\ pc[3] = "notice"
          /\ \/ /\ state' = "S"
                /\ normal' = <<>>
                /\ catchup' = <<>>
                /\ holdsBatch' = FALSE
                /\ IF ~TagsSurvive
                      THEN /\ completions' = <<>>
                      ELSE /\ TRUE
                           /\ UNCHANGED completions
             \/ /\ QuickReturn
                /\ TRUE
                /\ UNCHANGED <<state, normal, catchup, holdsBatch, completions>>
          /\ pc' = [pc EXCEPT ![3] = "restart"]
          /\ UNCHANGED << lastAck, applied, current, term, writeReady, wire, 
                          up, Ld, Ls, batch, failures, recovery, wrong, stack, 
                          e, isMain, forTerm, i, j, empty, tag >>

restart == /\ pc[3] = "restart"
           /\ Ld = 0
           /\ Ld' = 3
           /\ IF Fixed("RestartSuspends") /\ state # "S"
                 THEN /\ normal' = <<>>
                      /\ catchup' = <<>>
                      /\ holdsBatch' = FALSE
                      /\ IF ~TagsSurvive
                            THEN /\ completions' = <<>>
                            ELSE /\ TRUE
                                 /\ UNCHANGED completions
                 ELSE /\ TRUE
                      /\ UNCHANGED << normal, catchup, holdsBatch, completions >>
           /\ up' = TRUE
           /\ term' = term + 1
           /\ state' = "RF"
           /\ writeReady' = TRUE
           /\ pc' = [pc EXCEPT ![3] = "getLastAck"]
           /\ UNCHANGED << lastAck, applied, current, wire, Ls, batch, 
                           failures, recovery, wrong, stack, e, isMain, 
                           forTerm, i, j, empty, tag >>

getLastAck == /\ pc[3] = "getLastAck"
              /\ lastAck' = applied
              /\ IF lastAck' < current
                    THEN /\ recovery' = [recovery EXCEPT ![failures] = [on |-> TRUE, from |-> lastAck' + 1, to |-> current, term |-> term]]
                         /\ state' = state
                    ELSE /\ state' = "N"
                         /\ UNCHANGED recovery
              /\ Ld' = 0
              /\ pc' = [pc EXCEPT ![3] = "fail"]
              /\ UNCHANGED << applied, current, term, normal, catchup, 
                              holdsBatch, writeReady, wire, up, completions, 
                              Ls, batch, failures, wrong, stack, e, isMain, 
                              forTerm, i, j, empty, tag >>

failure == fail \/ notice \/ restart \/ getLastAck

(* Allow infinite stuttering to prevent deadlock on termination. *)
Terminating == /\ \A self \in ProcSet: pc[self] = "Done"
               /\ UNCHANGED vars

Next == main \/ completion \/ target \/ failure
           \/ (\E self \in ProcSet: sendNext(self) \/ dispatch(self))
           \/ (\E self \in 11..(10 + FailuresMax): recover(self))
           \/ Terminating

Spec == /\ Init /\ [][Next]_vars
        /\ WF_vars(main) /\ WF_vars(dispatch(1)) /\ WF_vars(sendNext(1))
        /\ \A self \in 11..(10 + FailuresMax) : /\ WF_vars(recover(self))
                                                /\ WF_vars(dispatch(self))
                                                /\ WF_vars(sendNext(self))
        /\ WF_vars(completion) /\ WF_vars(sendNext(2))
        /\ WF_vars(target)
        /\ WF_vars(failure)

Termination == <>(\A self \in ProcSet: pc[self] = "Done")

\* END TRANSLATION - the hash of the generated TLA code (remove to silence divergence warnings): TLA-665c39f47c2fa954b62169aa8d953510

\* One step after the other, for as long as there is one.
Going == Init /\ [][Next]_vars /\ WF_vars(Next)
=============================================================================

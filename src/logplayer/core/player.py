"""The player's core: facts in, effects out. It decides everything and does nothing.

The idea. Nothing between the log and the targets is durable. A target keeps its index in the same transaction as its
data, and tells it in the answer to an Open; so whatever is lost with a session is read from the log again, from there.
All that this machine must get right is that each target is sent every entry that is for it, once per session, in the
order of the log, in batches that each cover a range ``(prev, to]`` and begin where the last one ended.

Two streams feed a target. The *main stream* reads the log once for all of them and waits for none of them: only while
nobody would gain from more is it held back (``wants_entries``). A target that it cannot serve, because its queue is
full or because it has just come back, is fed by a *catch-up reader* of its own until its coverage has reached the main
stream; then it joins, in the step that finds it so. ``core.target_queue`` has the states and the three indexes.

    Fetched ──▶ decide a record, route the entry ──▶ LIVE targets: SendBatch at once, or queue it, or demote
    CaughtUp ─▶ push what was read, if session and coverage are still those it was read for ──▶ join, or ReadCatchUp
    Written ──▶ the stream is ready: the next batch        Acked ──▶ the window opens, the trim point may move
    Ticked ───▶ open what is due, give up what is silent, move idle targets forward, trim

Why the obvious ways are wrong:

* *Wait for a target that is full.* Then the slowest of all sets the pace of the others. Growing the queue instead is
  unbounded, dropping loses, and closing the session livelocks under steady load: by the time the target has caught up,
  the queue is full again. A demotion keeps the session and what is queued, and costs that target a read of the log.
* *Ask a target for its index, then open a stream.* A batch of the old stream may be applied in between, and the entries
  that follow the answer are then applied twice. Open fences and reads the index in one step.
* *Join when a read comes back.* The main stream has moved on meanwhile, so the target would follow it for ever at a
  read's distance, or miss what was dispatched since. The newest entries are kept while somebody catches up
  (``core.tail_buffer``), and coverage and main stream are compared in the same step as the switch.
* *Take an index for the name of an entry.* A log that was restored from a backup gives the same indexes to others. A
  target says with its index which history filled it (``core.chain``), and the log is asked whether that is its own; a
  batch says which history it continues, and a trim which one was read. spec/Identity.tla has the argument.
* *Believe a target that claims something about the log.* One that is wrong would stop all the others. The log is asked
  (``core.claims``), and until it has answered only that target waits.
* *Drop the queue of a session and resend it on the next.* The target may have applied any part of it. Whatever belongs
  to a session ends with it; the next one begins at what Opened says.

An event of a session that is over may arrive at any time. It is dropped, and each such line says why that is right.
Effects are performed while the step still runs: the first batch of an entry is encoded and with its link before the
second is decided. When it leaves, and with what, is the transport's business (``wire.turn``). Of what the streams can
take the core knows one thing only, one flag for each target: whether Written has answered the last SendBatch. A trace
only observes (``core.trace``).

The caller's duties:

1. Feed events to ``take`` one at a time, from one thread. Perform each effect when it is handed out, and do not come
   back with another event before ``take`` has returned.
2. Append a takeover record to the log before making a core; the record's index is the ``epoch``.
3. Give ``cut``, which takes payloads apart (core.routing), and ``control`` as decided by every control record up to the
   takeover record, a copy of its own: the core goes on deciding on it. Records read again change nothing.
4. Feed ``Ticked`` at least every ``limits.tick_ms_max``, and once at the start: sessions are opened on ticks.
5. Answer each ``OpenSession`` with ``Opened``, ``Refused`` or ``Lost``; each ``SendBatch`` with ``Written`` or
   ``Lost``; each ``ReadCatchUp`` with ``CaughtUp``, ``CatchUpTrimmed`` or ``CatchUpFailed``; each ``LookUp`` with
   ``LookedUp`` or ``LookUpFailed``, within a few seconds. Late answers do no harm.
6. After ``StepDown`` or ``Stop``, close everything; the core answers nothing more.
7. With ``trims``, read ``(trimmed, epoch]`` once and feed ``Surveyed``: until then nothing there is trimmed.
8. An ``InvariantViolation`` ends the process: the state cannot be trusted, and all that matters is at the targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from logplayer.core import catch_up, claims, effects, events
from logplayer.core.chain import GENESIS
from logplayer.core.control_state import ControlState
from logplayer.core.entry import Decision, Delivery, Entry, QuarantineRevoked, Refusal, Session, Takeover
from logplayer.core.invariants import broken
from logplayer.core.limits import Limits
from logplayer.core.reconnect import Blocked
from logplayer.core.routing import Cut
from logplayer.core.tail_buffer import TailBuffer
from logplayer.core.target_queue import State, TargetQueue
from logplayer.core.trace import PlayerTrace, Sink
from logplayer.core.trim import trim_point
from logplayer.core.unroutable import MalformedSeen, Unroutable, describe
from logplayer.errors import ConfigError

LIVE = State.LIVE
CATCHING_UP = State.CATCHING_UP
SUSPENDED = State.SUSPENDED
_new_tuple = tuple.__new__  # A third of the time that the class itself takes.


class Player:
    """Plays the log into the targets of one group."""

    def __init__(
        self,
        epoch: int,
        current: int,
        control: ControlState,
        limits: Limits | None = None,
        *,
        cut: Cut,
        group: str = "",
        owns: Callable[[str], bool] | None = None,
        trims: bool = False,
        trims_unroutable: bool = False,
        archived: int | None = None,
        trimmed: int = 0,
        trace: Sink | None = None,
        terms: Mapping[str, int] | None = None,
        chain: bytes = GENESIS,
        asks: bool = True,
    ) -> None:
        if trims and owns is not None:
            raise ConfigError(
                "a player of some of the targets cannot trim: it does not know what the others have. Trim with a "
                "player that owns every target, or leave trims off"
            )
        self.epoch = epoch
        # The main stream has dispatched every entry up to here. It starts no later than at the takeover record: a
        # record after it is not yet in ``control``, and nobody else would read it.
        self.current = min(current, epoch)
        self.chain = chain  # The log's chain value at ``current``.
        self.control = control
        self.limits = limits or Limits()
        self.now = 0  # Milliseconds of our own waking time: a pause of ours does not age the targets.
        self.trimmed = trimmed  # The trim point as far as we know; it may be further.
        self.skipped = 0  # The main stream jumped to here: it has not read all that it passed.
        self.draining = False
        self.stopped = False
        self.queues: dict[str, TargetQueue] = {}
        self.recent = TailBuffer(self.limits.queue_count_max, self.limits.queue_bytes_max)
        self._cut = cut
        self._malformed = MalformedSeen()
        self._request: Callable[[effects.Effect], None]  # Of the step that runs.
        self._trace = PlayerTrace(epoch, trace) if trace else None
        self.group = group
        self.archived = archived  # None: no archive policy.
        # Of members that left: one that comes back must not reuse a session. ``terms`` is for an epoch that is not new.
        self._terms = dict(terms or {})
        self._unroutable = Unroutable()  # Met by the main stream after our takeover.
        self._unroutable_before = Unroutable()  # Found by the survey of what lies before it.
        self._unroutable_passed = Unroutable()  # Met by the main stream there; holds nothing: see _note_unroutable.
        self._surveyed = trimmed  # What is trimmed already needs no look.
        self._trims_unroutable = trims_unroutable
        self._owns = owns  # Which members are this group's; None: all of them.
        self._trims = trims
        self._trim_asked = trimmed  # The log may have obeyed only in part, or not at all.
        self._clock: int | None = None
        self._asks = asks  # Whether there is a log to ask what a target says about it.
        self._ahead = False  # Whether a target may have an index that the main stream has not come to.
        self._swept = self.current  # Where idle targets were last looked at.
        self._admit_members()
        if self._trace:
            self._trace.main("start", current=self.current)

    def __repr__(self) -> str:
        return f"<Player epoch={self.epoch} current={self.current} targets={len(self.queues)} stopped={self.stopped}>"

    def step(self, fact: events.Event) -> list[effects.Effect]:
        """Take in one fact; return what to do about it, in order."""
        requested: list[effects.Effect] = []
        self.take(fact, requested.append)
        return requested

    def take(self, fact: events.Event, request: Callable[[effects.Effect], None]) -> None:
        """The same, but each effect goes to ``request`` as soon as it is decided: the first batch leaves the earlier.

        It may perform the effect at once. It must not come back with another fact before this one is done.
        """
        if self.stopped:
            return
        self._request = request
        self._handlers[type(fact)](self, fact)

    # --- The main stream ------------------------------------------------------------------------------------

    def _fetched(self, fact: events.Fetched) -> None:
        if self.draining:
            return  # What is not dispatched will be read by the next player.
        touched: dict[str, TargetQueue] = {}
        alone = len(fact.entries) == 1
        for entry in fact.entries:
            self._dispatch(entry, touched, alone)
            if self.stopped:
                return
        for queue in touched.values():
            if queue.writable:
                self._send(queue)
        if self.current - self._swept >= self.limits.idle_entries_max:
            self._swept = self.current
            for queue in self.queues.values():
                self._pump(queue)

    def _dispatch(self, entry: Entry, touched: dict[str, TargetQueue], alone: bool) -> None:
        """Give the entry to its LIVE targets. The main stream never waits: a target that is full is demoted.

        An entry that came alone goes past the queues that are empty, which is the usual case and cheaper.
        """
        index = entry.index
        if index <= self.current:
            raise broken("MainRises", current=self.current, index=index)
        if entry.record is not None:
            self._decide(entry)
            if self.stopped:
                return
        demoted: list[str] = []
        passed: list[effects.SendBatch] = []
        queues, quarantined, chain = self.queues, self.control.quarantined, entry.chain
        parts = self.control.router.split(entry, self._cut)
        if entry.malformed:
            self._note_malformed(entry)
        for name, payload in parts.items():
            queue = queues.get(name)
            if queue is None:
                self._note_unroutable(name, index)
                continue
            if queue.state is not LIVE or index <= queue.covered:
                continue  # Fed by its own reader, or already covered when it joined.
            aside = bool(quarantined) and index in quarantined.get(name, ())
            message = _new_tuple(Delivery, (index, payload, aside, chain))
            if alone and queue.writable and not queue.messages:
                batch = queue.pass_on(message)
                if batch is not None:
                    self._request(batch)
                    self._sent(queue)
                    if self._trace:
                        passed.append(batch)
                    continue
            if queue.offer(message) or (queue.writable and self._offer_again(queue, message)):
                touched[name] = queue
            else:
                queue.demote(self.current, self.chain)
                demoted.append(name)
        if self._ahead:
            self._compare_ahead(self.current, index - 1, self.chain)  # Where there is no entry, the value stays.
            self._compare_ahead(index - 1, index, chain)
        self.current = index
        self.chain = chain
        if self.recent.keeping:
            self.recent.add(entry)
        if self._trace:
            self._trace.dispatch(index, demoted, passed)
        for name in demoted:
            self._catch_up(self.queues[name])

    def _compare_ahead(self, after: int, through: int, chain: bytes) -> None:
        """The main stream passes ``(after, through]``, and the log's chain value is the same there.

        A target that was ahead of it must have that value.
        """
        self._ahead = False
        for queue in self.queues.values():
            ahead = queue.ahead
            if ahead is None:
                continue
            if not after < ahead.index <= through:
                self._ahead = True
            elif not queue.agrees(ahead.index, chain) and queue.session is not None:
                self._diverged(queue, claims.diverged(ahead.index, ahead.agreed))

    def _note_unroutable(self, name: str, index: int) -> None:
        """A part of an entry is for a target without a queue here: another group's, or an unknown one.

        Up to our takeover the members are known only as of the takeover, and one that was removed since must not hold
        the trim point: what is there is reported, and left to the survey, which sees the records between the entries.
        """
        if name in self.control.members:
            return
        seen = self._unroutable if index > self.epoch else self._unroutable_passed
        if seen.note(name, index):
            self._request(effects.Report(name, describe(name, index)))

    def _offer_again(self, queue: TargetQueue, message: Delivery) -> bool:
        """A long fetch has filled the queue of a target that is ready for more: send before giving up on it."""
        self._send(queue)
        return queue.offer(message)

    def _decide(self, entry: Entry) -> None:
        """Act on a control record at its position in the log."""
        record = entry.record
        if isinstance(record, Takeover):
            if claims.takes_over(record, entry.index, self.group, self.epoch):
                self._superseded(entry.index, record)
            return
        before = {name: len(indexes) for name, indexes in self.control.quarantined.items()}
        if not self.control.decide(entry):
            return
        self._admit_members()
        for name, indexes in self.control.quarantined.items():
            queue = self.queues.get(name)
            blocked = queue.reconnect.blocked if queue is not None else None
            if queue is not None and blocked and not blocked.stays and len(indexes) > before.get(name, 0):
                queue.reconnect.unblock(self.now)
        if isinstance(record, QuarantineRevoked):
            self._tell_if_too_late(record)

    def _tell_if_too_late(self, record: QuarantineRevoked) -> None:
        """What a target has put aside stays there: whoever took the decision back should know."""
        queue = self.queues.get(record.target)
        if queue is not None and queue.known and queue.acked >= record.index:
            what = f"has index {queue.acked}: the decision to quarantine entry {record.index} was revoked too late"
            self._request(effects.Report(queue.name, what))

    def _main_trimmed(self, fact: events.MainTrimmed) -> None:
        """The main stream is behind the trim point: every registered target has what is gone, so it jumps there."""
        self._learn_trim(fact.first - 1)
        if fact.control.through > self.control.through:
            self.control = fact.control
            self._admit_members()
        if fact.first - 1 <= self.current:
            return
        demoted = [queue for queue in self.queues.values() if queue.state is LIVE and queue.covered < fact.first - 1]
        for queue in demoted:
            queue.demote(self.current, self.chain)
        self._compare_ahead(fact.first - 2, fact.first - 1, fact.chain)
        self.current = self.skipped = fact.first - 1
        self.chain = fact.chain
        self.recent.forget()
        if self._trace:
            self._trace.main("jump", current=self.current, demoted=[queue.name for queue in demoted])
        for queue in self.queues.values():
            self._catch_up(queue)

    def _admit_members(self) -> None:
        """Make the set of queues equal to the members that are ours."""
        members = self.control.members
        for name in [name for name in self.queues if name not in members]:
            queue = self.queues.pop(name)
            self._terms[name] = queue.term
            self._end_session(queue)
        for name, added in members.items():
            self._unroutable.forgive(name)
            self._unroutable_before.forgive(name)
            if name not in self.queues and (self._owns is None or self._owns(name)):
                # Until it reports its own index, it holds the trim point at the index that it reserved.
                self.queues[name] = TargetQueue(name, self.limits, added.at or 0, self._terms.pop(name, 0))

    def wants_entries(self) -> bool:
        """Whether anybody would gain from the next entries of the main stream.

        The main stream waits for no target. But when every target with a session has plenty queued, or reads the log
        for itself, to dispatch more now would only turn LIVE targets into lagging ones. With no session at all there
        may still be control records to see.
        """
        served = False
        for queue in self.queues.values():
            if queue.state is LIVE and queue.has_room():
                return True
            served = served or queue.state is not SUSPENDED
        return not served

    # --- Sending --------------------------------------------------------------------------------------------

    def _pump(self, queue: TargetQueue) -> None:
        """Send what is queued, or an empty batch that is due, if the stream is ready."""
        if queue.writable and (queue.messages or self._coverage_due(queue)):
            self._send(queue)

    def _send(self, queue: TargetQueue) -> None:
        """Send the next batch, if the window has room. The stream is ready: the caller has looked."""
        batch = queue.take(self.current, self.chain)
        if batch is None:
            return
        self._request(batch)
        self._sent(queue)
        if self._trace:
            self._trace.send(batch)
        if queue.state is not LIVE:
            self._catch_up(queue)

    def _sent(self, queue: TargetQueue) -> None:
        """A batch is on its way: note the time."""
        deadlines = queue.deadlines
        deadlines.sent_at = self.now
        if len(queue.window.flight) == 1:
            deadlines.progress_at = self.now  # The wait for progress starts with the first batch in flight.

    def _coverage_due(self, queue: TargetQueue) -> bool:
        """Whether an idle target should be moved forward by an empty batch."""
        behind = queue.coverage(self.current) - queue.sent
        if behind <= 0:
            return False
        if behind >= self.limits.idle_entries_max or self.draining:
            return True
        return self.now - queue.deadlines.sent_at >= self.limits.idle_ms_max

    def _written(self, fact: events.Written) -> None:
        queue = self.queues.get(fact.target)
        if queue is None or queue.session != fact.session or queue.state is SUSPENDED:
            return  # A stream that is gone.
        queue.writable = True
        if queue.messages:
            self._send(queue)

    def _acked(self, fact: events.Acked) -> None:
        target, session, index = fact.target, fact.session, fact.index
        queue = self.queues.get(target)
        if queue is None or queue.session != session or queue.state is SUSPENDED:
            return  # Acks of an older session are ignored: its index may be lower than what Opened reported.
        if not queue.acked <= index <= queue.sent:
            self._lose(queue, f"the target acked {index}, which is not within [{queue.acked}, {queue.sent}]")
            return
        if self._trace:
            self._trace.session("ack", target, session, index=index)
        queue.ack(index, self.now)
        queue.digest = fact.digest
        if queue.messages and queue.writable:
            self._send(queue)
        if self.draining:
            self._stop_if_drained()

    # --- Catching up ----------------------------------------------------------------------------------------

    def _catch_up(self, queue: TargetQueue) -> None:
        """Join the main stream if the coverage has reached it, else read on: from memory if the rest is there."""
        if self._join(queue) or self.draining or not catch_up.wants_more(queue, self.current):
            return
        rest = self.recent.since(queue.covered, queue.covered_chain)
        if rest is None or queue.session is None:
            self.recent.keep(self.current, self.chain)
            self._request(catch_up.next_read(queue, self.current))
            return
        read = events.CaughtUp(queue.name, queue.session, queue.covered, self.current, rest, self.chain)
        if self._push(queue, read):
            self._join(queue)

    def _join(self, queue: TargetQueue) -> bool:
        if queue.covered == self.current and queue.covered_chain != self.chain and queue.state is CATCHING_UP:
            # The log that was read for it is not the one that the main stream has read.
            self._lose(queue, f"what was read up to {self.current} is of another history of the log; asking the log")
            return True
        if not queue.join(self.current):
            return False
        if self._trace and queue.session:
            self._trace.session("join", queue.name, queue.session)
        return True

    def _caught_up(self, fact: events.CaughtUp | events.DeliveriesRead) -> None:
        queue = self._current_queue(fact.target, fact.session)
        if queue is None:
            return  # A reader from an earlier session, still winding down.
        if self._push(queue, fact):
            self._catch_up(queue)
        # A read that found no room is not repeated here, or it would spin until the target takes something: the next
        # batch makes room and reads on, and so does the next tick.
        self._pump(queue)

    def _push(self, queue: TargetQueue, read: events.CaughtUp | events.DeliveriesRead) -> bool:
        if isinstance(read, events.DeliveriesRead):
            pushed = catch_up.push_deliveries(queue, read)
        else:
            pushed = catch_up.push(queue, read, self.control, self._cut)
            for entry in read.entries:
                if entry.malformed:
                    self._note_malformed(entry)
        if not pushed:
            return False
        if queue.covered > self.current:
            raise broken("QueueHoldsCoverage", queue=queue, current=self.current)
        if self._trace:
            self._trace.session("read", queue.name, read.session, after=read.after, through=queue.covered)
        return True

    def _note_malformed(self, entry: Entry) -> None:
        """The entry cannot be split, so it is unroutable. The log goes on after it; an operator should know."""
        if self._malformed.note(entry.index):
            self._request(effects.Report("", f"entry {entry.index} is unroutable: {entry.malformed}"))

    def _catch_up_trimmed(self, fact: events.CatchUpTrimmed) -> None:
        self._learn_trim(fact.first - 1)
        queue = self._current_queue(fact.target, fact.session)
        if queue is not None:
            # Either the target has moved on without us and says so in the next Opened, or it must be re-seeded.
            self._lose(queue, f"the log begins at {fact.first}, the target needs {queue.covered + 1}")

    def _catch_up_diverged(self, fact: events.CatchUpDiverged) -> None:
        queue = self._current_queue(fact.target, fact.session)
        if queue is not None:
            self._lose(queue, fact.error)  # The next Open asks the log which of the two is right.

    def _catch_up_failed(self, fact: events.CatchUpFailed) -> None:
        queue = self._current_queue(fact.target, fact.session)
        if queue is not None:
            queue.reading = False  # The next tick asks again.
            queue.read_error = fact.error

    # --- Sessions -------------------------------------------------------------------------------------------

    def _opened(self, fact: events.Opened) -> None:
        queue = self._current_queue(fact.target, fact.session)
        if queue is None or queue.state is not SUSPENDED or queue.claim is not None:
            return  # An Open that we gave up, and the target has fenced or will fence it; or one that was answered.
        reseed = max(queue.trimmed_before_open, self.control.members[queue.name].at or 0)
        if fact.index < reseed:
            self._block(queue, claims.lacks(fact.index, reseed, queue.trimmed_before_open))
        elif self._confirms(fact):
            self._admit(queue, fact)
        elif not self._asks and fact.index == self.current:
            self._diverged(queue, claims.diverged(fact.index, None))
        else:
            # It was filled by a player before us, from this log or from one that was in its place: the log knows.
            self._look_up(queue, claims.Claim(fact.index, fact))

    def _confirms(self, fact: events.Opened) -> bool:
        """Whether what the target has is known to be the log's without a look."""
        if fact.index == self.current:
            return fact.chain == self.chain
        if not self._asks:
            return fact.index < self.current
        return fact.index == 0 and fact.chain == GENESIS

    def _admit(self, queue: TargetQueue, fact: events.Opened) -> None:
        """The target's session is open, at an index that the log has."""
        if queue.known and fact.index < queue.acked:
            self._request(effects.Report(queue.name, f"went back from {queue.acked} to {fact.index}"))
        queue.opened(fact.index, fact.chain, self.current, self.now)
        self._ahead = self._ahead or queue.ahead is not None
        queue.reconnect.admitted()
        queue.digest = fact.digest
        if self._trace:
            self._trace.session("opened", queue.name, fact.session, index=fact.index)
        self._catch_up(queue)
        self._pump(queue)

    def _refused(self, fact: events.Refused) -> None:
        queue = self._current_queue(fact.target, fact.session)
        if queue is None:
            return  # Whatever an old session was refused for, it is over.
        if fact.reason is Refusal.FENCED:
            self._fenced(queue, fact)
        elif fact.reason is Refusal.DIVERGED:
            self._diverged(queue, Blocked(fact.reason.name, f"{fact.detail}. {claims.REMEDY}", fact.index))
        elif fact.reason in (Refusal.STALE_SESSION, Refusal.OUT_OF_SYNC):
            self._lose(queue, f"{fact.reason.name}: {fact.detail}")
        else:
            self._block(queue, Blocked(fact.reason.name, fact.detail, fact.index))

    def _diverged(self, queue: TargetQueue, blocked: Blocked) -> None:
        """What the target has is not what the log has: nothing that it has lets the log be trimmed."""
        queue.disown()
        self._block(queue, blocked)

    def _fenced(self, queue: TargetQueue, fact: events.Refused) -> None:
        """The target says that a newer player has taken over. The log knows; this target waits until it answers."""
        epoch = fact.epoch
        self._lose(queue, f"FENCED: the target says that epoch {epoch} has taken over; looking at the log")
        if self.stopped:  # It may have been the last that was waited for at the end.
            return
        claim = claims.Claim(epoch, fenced=fact)
        if self._has_read(epoch):
            self._not_shown(queue, claim, claims.not_shown(epoch))
        else:
            self._look_up(queue, claim)

    def _not_shown(self, queue: TargetQueue, claim: claims.Claim, blocked: Blocked) -> None:
        """Nobody of this log has that epoch. Is the target of this log at all? Then only its fence is wrong."""
        fenced = claim.fenced
        if not self._asks or fenced is None or fenced.index == 0:
            self._block(queue, blocked)
        else:
            self._look_up(queue, claims.Claim(fenced.index, fenced=fenced, blocked=blocked))

    def _has_read(self, epoch: int) -> bool:
        """Whether we would know of a takeover at ``epoch``: it is not newer than ours, or the main stream came past."""
        return epoch <= self.epoch or self.skipped < epoch <= self.current

    def _look_up(self, queue: TargetQueue, claim: claims.Claim) -> None:
        queue.claim = claim
        self._request(effects.LookUp(queue.name, claim.at))

    def _looked_up(self, fact: events.LookedUp) -> None:
        self._learn_trim(fact.first - 1)
        if claims.takes_over(fact.record, fact.index, self.group, self.epoch):
            self._superseded(fact.index, fact.record)  # Whoever made us look: the log shows it.
            return
        queue = self.queues.get(fact.target)
        if queue is None or queue.claim is None or queue.claim.at != fact.index:
            return  # The target has been given up or tried again since.
        claim, queue.claim = queue.claim, None
        if claim.opened is not None:
            self._judge(queue, claim.opened, fact)
        elif claim.blocked is not None and claim.fenced is not None:
            other = claims.judge(fact, claim.fenced.chain)
            self._block(queue, claim.blocked) if other is None else self._diverged(queue, other)
        elif fact.index < fact.first and not self._has_read(fact.index):
            self._superseded(fact.index, None)  # Trimmed before we came to read it: then this player is the old one.
        else:
            self._not_shown(queue, claim, claims.not_shown(fact.index, fact))

    def _judge(self, queue: TargetQueue, opened: events.Opened, fact: events.LookedUp) -> None:
        """The log has answered what it has at the index that the target has."""
        other = claims.judge(fact, opened.chain)
        if other is not None:
            self._diverged(queue, other)
        elif fact.chain is None:
            # Trimmed meanwhile. If the target has moved on without us, the next Opened says so; else it is judged then.
            self._lose(queue, f"the log begins at {fact.first} now, the target has {fact.index}")
        else:
            self._admit(queue, opened)

    def _look_up_failed(self, fact: events.LookUpFailed) -> None:
        queue = self.queues.get(fact.target)
        if queue is not None and queue.claim is not None and queue.claim.at == fact.index:
            queue.claim = None
            self._lose(queue, f"the log cannot be asked for {fact.index}: {fact.error}")  # The next Open asks again.

    def _lost(self, fact: events.Lost) -> None:
        queue = self._current_queue(fact.target, fact.session)
        if queue is not None:
            self._lose(queue, fact.error)

    def _lose(self, queue: TargetQueue, error: str) -> None:
        """Give the session up and plan the next one."""
        self._end_session(queue)
        queue.reconnect.lost(self.now, error)
        if self.draining:
            self._stop_if_drained()

    def _block(self, queue: TargetQueue, blocked: Blocked) -> None:
        """Stop this target alone, loudly."""
        news = queue.reconnect.blocked != blocked
        self._end_session(queue)
        queue.reconnect.block(self.now, blocked)
        if news:
            where = f"entry {blocked.index}: " if blocked.kind == "POISON" else ""
            self._request(effects.Report(queue.name, f"{blocked.kind}: {where}{blocked.detail}", blocked=True))
        if self.draining:
            self._stop_if_drained()

    def _end_session(self, queue: TargetQueue) -> None:
        if queue.session is None:
            return
        session = queue.session
        queue.suspend()
        self._request(effects.CloseSession(queue.name, session))
        if self._trace:
            self._trace.session("suspend", queue.name, session)

    def _current_queue(self, target: str, session: Session) -> TargetQueue | None:
        """The target's queue if ``session`` is its newest and alive, else None."""
        queue = self.queues.get(target)
        return queue if queue is not None and queue.session == session else None

    def _open_if_due(self, queue: TargetQueue) -> None:
        if self.draining or queue.claim is not None or not queue.reconnect.due(self.now):
            return
        session = queue.open(self.epoch, self.trimmed, self.now)
        self._request(effects.OpenSession(queue.name, session))
        if self._trace:
            self._trace.session("open", queue.name, session)

    def _look_after(self, queue: TargetQueue) -> None:
        """Deadlines, a probe, an empty batch, a read that is to be tried again: what time alone brings."""
        queue.verify()
        overdue = queue.deadlines.overdue(self.now, len(queue.window.flight))
        if overdue:
            self._lose(queue, overdue)
            return
        if queue.state is SUSPENDED:
            return
        if queue.deadlines.probe_due(self.now) and queue.session is not None:
            self._request(effects.SendProbe(queue.name, queue.session))
        self._catch_up(queue)
        self._pump(queue)

    # --- Time -----------------------------------------------------------------------------------------------

    def _ticked(self, fact: events.Ticked) -> None:
        if self._clock is not None and fact.now > self._clock:
            self.now += min(fact.now - self._clock, self.limits.tick_ms_max)
        self._clock = fact.now
        for queue in list(self.queues.values()):
            if queue.session is None:
                self._open_if_due(queue)
            else:
                self._look_after(queue)
            if self.stopped:
                return
        if self.recent.keeping and not any(queue.state is CATCHING_UP for queue in self.queues.values()):
            self.recent.forget()
        if self._trims and not self.draining:
            self._trim_if_worth_it()

    # --- Trim and the end -----------------------------------------------------------------------------------

    def trim_point(self) -> int:
        """Up to where nobody in this group needs the log any more."""
        return trim_point(self.queues.values(), self.current, self.archived, self._kept())

    @property
    def unroutable(self) -> int:
        """How many entries, as far as they were looked at, reach nobody in part or as a whole."""
        return self._unroutable.entries + max(self._unroutable_before.entries, self._unroutable_passed.entries)

    def _kept(self) -> int | None:
        """The first entry that must stay in the log whatever the targets have."""
        if self._trims_unroutable:
            return None
        unseen = self._surveyed + 1 if self._surveyed < self.epoch else None
        kept = (self._unroutable.first(), self._unroutable_before.first(), unseen)
        return min((index for index in kept if index is not None), default=None)

    def _look_back(self, fact: events.Surveyed) -> None:
        for entry in fact.entries:
            for name in self._unroutable_before.look_at(entry, self.control, self._cut):
                if self._unroutable_passed.note(name, entry.index):
                    self._request(effects.Report(name, describe(name, entry.index)))
            if entry.malformed:
                self._note_malformed(entry)
        self._surveyed = max(self._surveyed, fact.through)

    def _trim_if_worth_it(self) -> None:
        point = self.trim_point()
        if point - max(self.trimmed, self._trim_asked) < self.limits.trim_entries_min:
            return
        if any(queue.acked < point for queue in self.queues.values()):
            raise broken("TrimSafe", point=point, queues=list(self.queues.values()))
        self._trim_asked = point
        self._request(effects.TrimLog(point, self.current, self.chain))
        if self._trace:
            self._trace.main("trim", to=point)

    def _log_trimmed(self, fact: events.LogTrimmed) -> None:
        self._learn_trim(fact.up_to)

    def _archived_up_to(self, fact: events.Archived) -> None:
        self.archived = fact.up_to

    def _retry_requested(self, fact: events.RetryRequested) -> None:
        queue = self.queues.get(fact.target)
        if queue is not None and queue.session is None:
            queue.claim = None  # What the log says to it will not matter: the target is asked again.
            queue.reconnect.unblock(self.now)
            self._open_if_due(queue)

    def _hold_requested(self, fact: events.HoldRequested) -> None:
        queue = self.queues.get(fact.target)
        if queue is not None and not self.draining:
            self._block(queue, Blocked("HELD", "an operator suspended it; resume it to go on"))

    def _stop_requested(self, fact: events.StopRequested) -> None:
        self.draining = True
        for queue in self.queues.values():
            self._pump(queue)
        self._stop_if_drained()

    def _learn_trim(self, up_to: int) -> None:
        if up_to > self.trimmed:
            self.trimmed = up_to

    def _superseded(self, epoch: int, record: Decision | None) -> None:
        """The log shows a newer player of our group; ``record`` is its takeover, None if that is trimmed."""
        who = "its record is trimmed" if record is None else getattr(record, "player", "") or "another player"
        application = getattr(record, "application", 0)
        self.stopped = True
        self._request(effects.StepDown(f"epoch {epoch} has taken over ({who})", epoch, application))
        if self._trace:
            self._trace.main("stepdown")

    def _stop_if_drained(self) -> None:
        if self.stopped:
            return
        if all(queue.state is SUSPENDED or queue.idle() for queue in self.queues.values()):
            self.stopped = True
            self._request(effects.Stop())

    _handlers: ClassVar[dict[type, Callable[[Player, Any], None]]] = {
        events.Fetched: _fetched,
        events.Written: _written,
        events.Acked: _acked,
        events.CaughtUp: _caught_up,
        events.DeliveriesRead: _caught_up,
        events.CatchUpTrimmed: _catch_up_trimmed,
        events.CatchUpDiverged: _catch_up_diverged,
        events.CatchUpFailed: _catch_up_failed,
        events.MainTrimmed: _main_trimmed,
        events.Surveyed: _look_back,
        events.Opened: _opened,
        events.Refused: _refused,
        events.LookedUp: _looked_up,
        events.LookUpFailed: _look_up_failed,
        events.Lost: _lost,
        events.Ticked: _ticked,
        events.LogTrimmed: _log_trimmed,
        events.Archived: _archived_up_to,
        events.StopRequested: _stop_requested,
        events.RetryRequested: _retry_requested,
        events.HoldRequested: _hold_requested,
    }

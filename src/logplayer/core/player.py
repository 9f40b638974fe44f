"""The player's core: ``step(event) -> effects``. It decides everything and does nothing.

The caller's duties:

1. Feed events one at a time, from one thread. Perform the returned effects in order.
2. Append a takeover record to the log before making a core; the record's index is the ``epoch``.
3. Give ``control`` as decided by every control record up to the takeover record, a copy of its own: the core goes on
   deciding on it. Records read again change nothing.
4. Feed ``Ticked`` at least every ``limits.tick_ms_max``, and once at the start: sessions are opened on ticks.
5. Answer each ``OpenSession`` with ``Opened``, ``Refused`` or ``Lost``; each ``SendBatch`` with ``Written`` or
   ``Lost``; each ``ReadCatchUp`` with ``CaughtUp``, ``CatchUpTrimmed`` or ``CatchUpFailed``. Late answers of dead
   sessions do no harm.
6. After ``StepDown`` or ``Stop``, close everything; the core answers nothing more.
7. An ``InvariantViolation`` ends the process: the state cannot be trusted, and all that matters is at the targets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logplayer.core import effect, event, recovery
from logplayer.core.entry import Entry, Message, Refusal, Session, Takeover
from logplayer.core.health import Blocked
from logplayer.core.invariant import broken
from logplayer.core.limits import Limits
from logplayer.core.membership import Control
from logplayer.core.queue import State, TargetQueue
from logplayer.core.recent import Recent
from logplayer.core.trace import PlayerTrace, Sink
from logplayer.core.trim import trim_point
from logplayer.errors import ConfigError

CATCHING_UP = State.CATCHING_UP
LIVE = State.LIVE
SUSPENDED = State.SUSPENDED


class Player:
    """Plays the log into the targets of one group."""

    def __init__(
        self,
        epoch: int,
        current: int,
        control: Control,
        limits: Limits | None = None,
        *,
        group: str = "",
        owns: Callable[[str], bool] | None = None,
        trims: bool = False,
        archived: int | None = None,
        trimmed: int = 0,
        trace: Sink | None = None,
    ) -> None:
        if trims and owns is not None:
            raise ConfigError(
                "a player of some of the targets cannot trim: it does not know what the others have. Trim with a "
                "player that owns every target, or leave trims off"
            )
        self.epoch = epoch
        # The main stream has dispatched every entry up to here. It starts no later than at the takeover record: a
        # record behind it is not yet in ``control``, and nobody else would read it.
        self.current = min(current, epoch)
        self.control = control
        self.limits = limits or Limits()
        self.group = group
        self.now = 0  # Milliseconds of our own waking time: a pause of ours does not age the targets.
        self.trimmed = trimmed  # The trim point as far as we know; it may be further.
        self.archived = archived  # None: no archive policy.
        self.draining = False
        self.stopped = False
        self.queues: dict[str, TargetQueue] = {}
        self._terms: dict[str, int] = {}  # Of members that left: one that comes back must not reuse a session.
        self._owns = owns  # Which members are this group's; None: all of them.
        self._trims = trims
        self._trim_asked = trimmed  # The log may have obeyed only in part, or not at all.
        self._clock: int | None = None
        self._swept = self.current  # Where idle targets were last looked at.
        self.recent = Recent(self.limits.queue_count_max, self.limits.queue_bytes_max)
        self._effects: list[effect.Effect] = []
        self._trace = PlayerTrace(epoch, trace) if trace else None
        self._handlers: dict[type, Callable[[Any], None]] = {
            event.Fetched: self._fetched,
            event.Written: self._written,
            event.Acked: self._acked,
            event.CaughtUp: self._caught_up,
            event.CatchUpTrimmed: self._catch_up_trimmed,
            event.CatchUpFailed: self._catch_up_failed,
            event.MainTrimmed: self._main_trimmed,
            event.Opened: self._opened,
            event.Refused: self._refused,
            event.Lost: self._lost,
            event.Ticked: self._ticked,
            event.LogTrimmed: self._log_trimmed,
            event.Archived: self._archived_up_to,
            event.StopRequested: self._stop_requested,
            event.RetryRequested: self._retry_requested,
        }
        self._admit_members()
        if self._trace:
            self._trace.main("start", current=self.current)

    def __repr__(self) -> str:
        return f"<Player epoch={self.epoch} current={self.current} targets={len(self.queues)} stopped={self.stopped}>"

    def step(self, fact: event.Event) -> list[effect.Effect]:
        """Take in one fact; return what to do about it, in order."""
        if self.stopped:
            return []
        effects: list[effect.Effect] = []
        self._effects = effects
        self._handlers[type(fact)](fact)
        return effects

    # --- The main stream ------------------------------------------------------------------------------------

    def _fetched(self, fact: event.Fetched) -> None:
        if self.draining:
            return  # What is not dispatched will be read by the next player.
        touched: dict[str, TargetQueue] = {}
        for entry in fact.entries:
            self._dispatch(entry, touched)
            if self.stopped:
                return
        for queue in touched.values():
            if queue.writable:
                self._send(queue)
        if self.current - self._swept >= self.limits.idle_entries_max:
            self._swept = self.current
            for queue in self.queues.values():
                self._pump(queue)

    def _dispatch(self, entry: Entry, touched: dict[str, TargetQueue]) -> None:
        """Give the entry to its LIVE targets. The main stream never waits: a target that is full is demoted."""
        index = entry.index
        if index <= self.current:
            raise broken("MainRises", current=self.current, index=index)
        if entry.record is not None:
            self._decide(entry)
            if self.stopped:
                return
        demoted: list[str] = []
        queues, quarantined = self.queues, self.control.quarantined
        for name, payload in self.control.router.split(entry).items():
            queue = queues.get(name)
            if queue is None or queue.state is not LIVE or index <= queue.covered:
                continue  # Another group's, fed by its own reader, or already covered when it joined.
            aside = bool(quarantined) and index in quarantined.get(name, ())
            message = Message(index, payload, aside)
            if queue.offer(message) or (queue.writable and self._offer_again(queue, message)):
                touched[name] = queue
            else:
                queue.demote(self.current)
                demoted.append(name)
        self.current = index
        if self.recent.keeping:
            self.recent.add(entry)
        if self._trace:
            self._trace.main("dispatch", index=index, demoted=demoted)
        for name in demoted:
            self._catch_up(self.queues[name])

    def _offer_again(self, queue: TargetQueue, message: Message) -> bool:
        """A long fetch has filled the queue of a target that is ready for more: send before giving up on it."""
        self._send(queue)
        return queue.offer(message)

    def _decide(self, entry: Entry) -> None:
        """Act on a control record at its position in the log."""
        record = entry.record
        if isinstance(record, Takeover):
            if record.group == self.group and entry.index > self.epoch:
                self._step_down(f"epoch {entry.index} has taken over ({record.player or 'another player'})")
            return
        before = {name: len(indexes) for name, indexes in self.control.quarantined.items()}
        if not self.control.decide(entry):
            return
        self._admit_members()
        for name, indexes in self.control.quarantined.items():
            queue = self.queues.get(name)
            if queue is not None and len(indexes) != before.get(name, 0) and queue.health.blocked:
                queue.health.unblock(self.now)

    def _main_trimmed(self, fact: event.MainTrimmed) -> None:
        """The main stream is behind the trim point: every registered target has what is gone, so it jumps there."""
        self._learn_trim(fact.first - 1)
        if fact.control.through > self.control.through:
            self.control = fact.control
            self._admit_members()
        if fact.first - 1 <= self.current:
            return
        demoted = [queue for queue in self.queues.values() if queue.state is LIVE and queue.covered < fact.first - 1]
        for queue in demoted:
            queue.demote(self.current)
        self.current = fact.first - 1
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
        batch = queue.take(self.current)
        if batch is None:
            return
        self._effects.append(batch)
        heartbeat = queue.heartbeat
        heartbeat.sent_at = self.now
        if len(queue.window.flight) == 1:
            heartbeat.progress_at = self.now  # The wait for progress starts with the first batch in flight.
        if self._trace:
            self._trace.send(batch)
        if queue.state is not LIVE:
            self._catch_up(queue)

    def _coverage_due(self, queue: TargetQueue) -> bool:
        """Whether an idle target should be moved forward by an empty batch."""
        behind = queue.coverage(self.current) - queue.sent
        if behind <= 0:
            return False
        if behind >= self.limits.idle_entries_max or self.draining:
            return True
        return self.now - queue.heartbeat.sent_at >= self.limits.idle_ms_max

    def _written(self, fact: event.Written) -> None:
        queue = self.queues.get(fact.target)
        if queue is None or queue.session != fact.session or queue.state is SUSPENDED:
            return  # A stream that is gone.
        queue.writable = True
        if queue.messages:
            self._send(queue)

    def _acked(self, fact: event.Acked) -> None:
        target, session, index = fact.target, fact.session, fact.index
        queue = self.queues.get(target)
        if queue is None or queue.session != session or queue.state is SUSPENDED:
            return  # Acks of an older session are ignored: its index may lie behind what Opened told us.
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
        if self._join(queue) or self.draining or not recovery.wants_more(queue, self.current):
            return
        rest = self.recent.since(queue.covered)
        if rest is None or queue.session is None:
            self.recent.keep(self.current)
            self._effects.append(recovery.next_read(queue, self.current))
        elif self._push(queue, event.CaughtUp(queue.name, queue.session, queue.covered, self.current, rest)):
            self._join(queue)

    def _join(self, queue: TargetQueue) -> bool:
        if not queue.join(self.current):
            return False
        if self._trace and queue.session:
            self._trace.session("join", queue.name, queue.session)
        return True

    def _caught_up(self, fact: event.CaughtUp) -> None:
        queue = self._current_queue(fact.target, fact.session)
        if queue is None:
            return  # A reader from an earlier session, still winding down.
        if self._push(queue, fact):
            self._catch_up(queue)
        # A read that found no room is not repeated here, or it would spin until the target takes something: the next
        # batch makes room and reads on, and so does the next tick.
        self._pump(queue)

    def _push(self, queue: TargetQueue, read: event.CaughtUp) -> bool:
        if not recovery.push(queue, read, self.control):
            return False
        if queue.covered > self.current:
            raise broken("QueueHoldsCoverage", queue=queue, current=self.current)
        if self._trace:
            self._trace.session("read", queue.name, read.session, after=read.after, through=queue.covered)
        return True

    def _catch_up_trimmed(self, fact: event.CatchUpTrimmed) -> None:
        self._learn_trim(fact.first - 1)
        queue = self._current_queue(fact.target, fact.session)
        if queue is not None:
            # Either the target has moved on without us and says so in the next Opened, or it must be re-seeded.
            self._lose(queue, f"the log begins at {fact.first}, the target needs {queue.covered + 1}")

    def _catch_up_failed(self, fact: event.CatchUpFailed) -> None:
        queue = self._current_queue(fact.target, fact.session)
        if queue is not None:
            queue.reading = False  # The next tick asks again.
            queue.health.last_error = f"catch-up: {fact.error}"

    # --- Sessions -------------------------------------------------------------------------------------------

    def _opened(self, fact: event.Opened) -> None:
        queue = self._current_queue(fact.target, fact.session)
        if queue is None or queue.state is not SUSPENDED:
            return  # An Open that we gave up; the target has fenced or will fence it.
        reseed = max(queue.trimmed_before_open, self.control.members[queue.name].at or 0)
        if fact.index < reseed:
            self._block(queue, Blocked("RESEED", f"stands at {fact.index}, needs {reseed} or more: backfill it"))
            return
        if queue.known and fact.index < queue.acked:
            self._effects.append(effect.Report(queue.name, f"went back from {queue.acked} to {fact.index}"))
        queue.opened(fact.index, self.now)
        queue.health.admitted()
        queue.digest = fact.digest
        if self._trace:
            self._trace.session("opened", queue.name, fact.session, index=fact.index)
        self._catch_up(queue)
        self._pump(queue)

    def _refused(self, fact: event.Refused) -> None:
        queue = self._current_queue(fact.target, fact.session)
        if queue is None:
            return  # Whatever an old session was refused for, it is over.
        if fact.reason is Refusal.FENCED:
            self._step_down(f"{fact.target}: {fact.detail or 'fenced'}")
        elif fact.reason in (Refusal.STALE_SESSION, Refusal.OUT_OF_SYNC):
            self._lose(queue, f"{fact.reason.name}: {fact.detail}")
        else:
            self._block(queue, Blocked(fact.reason.name, fact.detail, fact.index))

    def _lost(self, fact: event.Lost) -> None:
        queue = self._current_queue(fact.target, fact.session)
        if queue is not None:
            self._lose(queue, fact.error)

    def _lose(self, queue: TargetQueue, error: str) -> None:
        """Give the session up and plan the next one."""
        self._end_session(queue)
        queue.health.lost(self.now, error)
        if self.draining:
            self._stop_if_drained()

    def _block(self, queue: TargetQueue, blocked: Blocked) -> None:
        """Stop this target alone, loudly."""
        news = queue.health.blocked != blocked
        self._end_session(queue)
        queue.health.block(self.now, blocked)
        if news:
            where = f"entry {blocked.index}: " if blocked.kind == "POISON" else ""
            self._effects.append(effect.Report(queue.name, f"{blocked.kind}: {where}{blocked.detail}"))
        if self.draining:
            self._stop_if_drained()

    def _end_session(self, queue: TargetQueue) -> None:
        if queue.session is None:
            return
        session = queue.session
        queue.suspend()
        self._effects.append(effect.CloseSession(queue.name, session))
        if self._trace:
            self._trace.session("suspend", queue.name, session)

    def _current_queue(self, target: str, session: Session) -> TargetQueue | None:
        """The target's queue if ``session`` is its newest and alive, else None."""
        queue = self.queues.get(target)
        return queue if queue is not None and queue.session == session else None

    # --- Time -----------------------------------------------------------------------------------------------

    def _ticked(self, fact: event.Ticked) -> None:
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

    def _open_if_due(self, queue: TargetQueue) -> None:
        if self.draining or not queue.health.due(self.now):
            return
        session = queue.open(self.epoch, self.trimmed, self.now)
        self._effects.append(effect.OpenSession(queue.name, session))
        if self._trace:
            self._trace.session("open", queue.name, session)

    def _look_after(self, queue: TargetQueue) -> None:
        """Deadlines, a probe, an empty batch, a read that is to be tried again: what time alone brings."""
        queue.verify()
        overdue = queue.heartbeat.overdue(self.now, len(queue.window.flight))
        if overdue:
            self._lose(queue, overdue)
            return
        if queue.state is SUSPENDED:
            return
        if queue.heartbeat.probe_due(self.now) and queue.session is not None:
            self._effects.append(effect.SendProbe(queue.name, queue.session))
        self._catch_up(queue)
        self._pump(queue)

    # --- Trim and the end -----------------------------------------------------------------------------------

    def trim_point(self) -> int:
        """Up to where nobody in this group needs the log any more."""
        return trim_point(self.queues.values(), self.current, self.archived)

    def _trim_if_worth_it(self) -> None:
        point = self.trim_point()
        if point - max(self.trimmed, self._trim_asked) < self.limits.trim_entries_min:
            return
        if any(queue.acked < point for queue in self.queues.values()):
            raise broken("TrimSafe", point=point, queues=list(self.queues.values()))
        self._trim_asked = point
        self._effects.append(effect.TrimLog(point))
        if self._trace:
            self._trace.main("trim", to=point)

    def _log_trimmed(self, fact: event.LogTrimmed) -> None:
        self._learn_trim(fact.up_to)

    def _learn_trim(self, up_to: int) -> None:
        if up_to > self.trimmed:
            self.trimmed = up_to

    def _archived_up_to(self, fact: event.Archived) -> None:
        self.archived = fact.up_to

    def _retry_requested(self, fact: event.RetryRequested) -> None:
        queue = self.queues.get(fact.target)
        if queue is not None and queue.session is None:
            queue.health.unblock(self.now)
            self._open_if_due(queue)

    def _step_down(self, reason: str) -> None:
        self.stopped = True
        self._effects.append(effect.StepDown(reason))
        if self._trace:
            self._trace.main("stepdown")

    def _stop_requested(self, fact: event.StopRequested) -> None:
        self.draining = True
        for queue in self.queues.values():
            self._pump(queue)
        self._stop_if_drained()

    def _stop_if_drained(self) -> None:
        if self.stopped:
            return
        if all(queue.state is SUSPENDED or queue.idle() for queue in self.queues.values()):
            self.stopped = True
            self._effects.append(effect.Stop())

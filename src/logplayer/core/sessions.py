"""What a player does for each of its targets: sessions, batches, acks, catch-up. :class:`Player` adds the main stream.

Each handler takes one event of one session. An event of a session that is over is dropped, and the line says why that
is right: the target's next answer to an Open tells everything that was lost with it.
"""

from __future__ import annotations

from collections.abc import Callable

from logplayer.core import effect, event, recovery
from logplayer.core.entry import Refusal, Session
from logplayer.core.health import Blocked
from logplayer.core.invariant import broken
from logplayer.core.limits import Limits
from logplayer.core.membership import Control
from logplayer.core.queue import State, TargetQueue
from logplayer.core.recent import Recent
from logplayer.core.trace import PlayerTrace, Sink

LIVE = State.LIVE
SUSPENDED = State.SUSPENDED


class Sessions:
    """The targets of one player, each with its queue and at most one session."""

    def __init__(
        self, epoch: int, current: int, control: Control, limits: Limits | None, trimmed: int, trace: Sink | None
    ) -> None:
        self.epoch = epoch
        # The main stream has dispatched every entry up to here. It starts no later than at the takeover record: a
        # record behind it is not yet in ``control``, and nobody else would read it.
        self.current = min(current, epoch)
        self.control = control
        self.limits = limits or Limits()
        self.now = 0  # Milliseconds of our own waking time: a pause of ours does not age the targets.
        self.trimmed = trimmed  # The trim point as far as we know; it may be further.
        self.draining = False
        self.stopped = False
        self.queues: dict[str, TargetQueue] = {}
        self.recent = Recent(self.limits.queue_count_max, self.limits.queue_bytes_max)
        self._request: Callable[[effect.Effect], None]  # Of the step that runs.
        self._trace = PlayerTrace(epoch, trace) if trace else None

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
        self._request(batch)
        self._sent(queue)
        if self._trace:
            self._trace.send(batch)
        if queue.state is not LIVE:
            self._catch_up(queue)

    def _sent(self, queue: TargetQueue) -> None:
        """A batch is on its way: note the time."""
        heartbeat = queue.heartbeat
        heartbeat.sent_at = self.now
        if len(queue.window.flight) == 1:
            heartbeat.progress_at = self.now  # The wait for progress starts with the first batch in flight.

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
            self._request(recovery.next_read(queue, self.current))
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
            self._request(effect.Report(queue.name, f"went back from {queue.acked} to {fact.index}"))
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
            self._request(effect.Report(queue.name, f"{blocked.kind}: {where}{blocked.detail}"))
        if self.draining:
            self._stop_if_drained()

    def _end_session(self, queue: TargetQueue) -> None:
        if queue.session is None:
            return
        session = queue.session
        queue.suspend()
        self._request(effect.CloseSession(queue.name, session))
        if self._trace:
            self._trace.session("suspend", queue.name, session)

    def _current_queue(self, target: str, session: Session) -> TargetQueue | None:
        """The target's queue if ``session`` is its newest and alive, else None."""
        queue = self.queues.get(target)
        return queue if queue is not None and queue.session == session else None

    def _open_if_due(self, queue: TargetQueue) -> None:
        if self.draining or not queue.health.due(self.now):
            return
        session = queue.open(self.epoch, self.trimmed, self.now)
        self._request(effect.OpenSession(queue.name, session))
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
            self._request(effect.SendProbe(queue.name, queue.session))
        self._catch_up(queue)
        self._pump(queue)

    # --- Ends -------------------------------------------------------------------------------------------------

    def _learn_trim(self, up_to: int) -> None:
        if up_to > self.trimmed:
            self.trimmed = up_to

    def _step_down(self, reason: str) -> None:
        self.stopped = True
        self._request(effect.StepDown(reason))
        if self._trace:
            self._trace.main("stepdown")

    def _stop_if_drained(self) -> None:
        if self.stopped:
            return
        if all(queue.state is SUSPENDED or queue.idle() for queue in self.queues.values()):
            self.stopped = True
            self._request(effect.Stop())

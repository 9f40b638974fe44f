"""One target inside a server: its worker thread, what is durable in it, and what waits for that.

Every change goes through one thread, in order. What the thread commits is durable whether or not the stream that
asked for it still lives, so the result always comes back here first and the stream hears of it if it is there. A
store that never waits may say ``inline = True``: it is called from the event loop and saves the way to the thread.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

from logplayer.core.entry import Refusal, Session
from logplayer.core.fence import NOBODY, Batch, Position, TargetRefusal, check, cut
from logplayer.errors import Poison, TargetError
from logplayer.observe import tracing
from logplayer.observe.instruments import StoreCounts
from logplayer.observe.logs import about
from logplayer.target.protocol import Change, Rejected, Target
from logplayer.wire.codec import sayable

logger = logging.getLogger("logplayer.target")

_new_tuple = tuple.__new__  # A third of the time that the class itself takes.
_CROWD = 1000  # So many may have given up waiting before anybody looks.
# What a takeover or a lost connection leads to; the player opens the next session, or is the older one.
_IN_PASSING = (Refusal.FENCED, Refusal.STALE_SESSION, Refusal.OUT_OF_SYNC)

TraceSink = Callable[[dict[str, object]], None]


class ChangeOutcome(NamedTuple):
    """What became of a change: what was committed, and what was refused; a poisoned batch may have both."""

    position: Position | None = None
    refused: TargetRefusal | None = None
    error: Exception | None = None


Then = Callable[[ChangeOutcome], None]


class StreamOwner(Protocol):
    """The stream that holds the current session."""

    def fenced(self, by: Session) -> None:
        """A newer session was accepted: this stream has nothing more to say."""

    def quiet_ms(self) -> int:
        """How long the target has waited for a word on it."""


class Host:
    """See the module. Its methods are called from the event loop; the trace sink is called from the worker thread."""

    def __init__(self, name: str, target: Target, trace: TraceSink | None = None) -> None:
        self.name = name
        self.position = Position()  # Durable, as of the last commit; None of it is a promise about the next.
        self.counts = StoreCounts()
        self._said = ""  # The last trouble, which is not said again while it stays the same.
        self._target = target
        self._trace = trace
        self._inline = bool(getattr(target, "inline", False))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"target-{name}")
        self._loop: asyncio.AbstractEventLoop
        self._owner: StreamOwner | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[Position]]] = []  # A heap by index.
        self._crowd = _CROWD  # At this many, those that have given up are sent away.
        self._order = itertools.count()

    async def start(self) -> None:
        """Read the stored position. Raises what the store raises: a target that cannot be read must not start."""
        self._loop = asyncio.get_running_loop()
        self.position = await self._loop.run_in_executor(self._thread, self._target.position)
        if self.position.session != NOBODY:
            # It was served before. How that ended nobody can tell, and whether the last commit was still noted.
            self._note("crash", self.position.session, index=self.position.index)

    async def stop(self) -> None:
        """Finish the commit that runs, then stop the thread and close the store."""
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)
        for _, _, future in self._waiting:
            future.cancel()
        close = getattr(self._target, "close", None)
        if close is not None:
            close()

    def open(self, session: Session, log_id: str, owner: StreamOwner, then: Then) -> None:
        """Ask the store to accept a session; from then on ``owner`` is the only stream that may write."""

        def opened(outcome: ChangeOutcome) -> None:
            if outcome.position is not None:
                before, self._owner = self._owner, owner
                if before is not None:
                    before.fenced(session)
            then(outcome)

        self._submit(opened, self._open, session, log_id)

    def apply(self, session: Session, batch: Batch, then: Then) -> None:
        """Ask the store to apply a batch."""
        if self._inline:  # The same with fewer calls.
            try:
                outcome = self._apply(session, batch)
            except Exception as error:  # noqa: BLE001 - as in _outcome.
                outcome = ChangeOutcome(error=error)
            self._finished(outcome, then)
        else:
            self._submit(then, self._apply, session, batch)

    def release(self, owner: StreamOwner) -> None:
        """The stream is gone; its session stays the stored one until another opens."""
        if self._owner is owner:
            self._owner = None

    @property
    def connected(self) -> bool:
        """Whether the stream of the stored session is open now."""
        return self._owner is not None

    @property
    def quiet_ms(self) -> int:
        """How long the target has waited for a word on that stream; 0 without one."""
        return self._owner.quiet_ms() if self._owner is not None else 0

    def reached(self, index: int) -> asyncio.Future[Position]:
        """Done once the durable index is at least ``index``; cancel it to stop waiting."""
        future: asyncio.Future[Position] = self._loop.create_future()
        if self.position.index >= index:
            future.set_result(self.position)
        else:
            if len(self._waiting) >= self._crowd:
                self._waiting = [waiting for waiting in self._waiting if not waiting[2].done()]
                heapq.heapify(self._waiting)
                self._crowd = max(_CROWD, 2 * len(self._waiting))
            heapq.heappush(self._waiting, (index, next(self._order), future))
        return future

    async def answers(self) -> None:
        """Ask the store for its position, in its turn. Raises what the store raises."""
        await self._loop.run_in_executor(self._thread, self._target.position)

    # --- In the worker thread ---

    def _open(self, session: Session, log_id: str) -> ChangeOutcome:
        try:
            position = self._target.apply(Change(session, log_id=log_id))
        except Rejected as rejected:
            self._note("refuse", session)
            return self._refused(rejected.refused, session, log_id)
        self._note("accept", session, index=position.index)
        self.counts.sessions += 1
        self._said = ""
        if session.epoch != self.position.session.epoch:
            text = "target %s: accepted epoch %d, has index %d"
            self._say(logging.INFO, text, session.epoch, position.index, epoch=session.epoch, log_id=log_id)
        return ChangeOutcome(position)

    def _apply(self, session: Session, batch: Batch) -> ChangeOutcome:
        began = time.perf_counter()
        try:
            position = self._target.apply(Change(session, batch=batch))
        except Rejected as rejected:
            self._note("reject", session)
            return self._refused(rejected.refused, session)
        except Poison as poison:
            return self._apply_before(session, batch, poison)
        if self._trace is not None:
            self._note("apply", session, index=position.index)
        counts = self.counts
        counts.applies.note(time.perf_counter() - began)
        counts.entries += len(batch.messages)
        if tracing.active():
            began_ns = time.time_ns() - int((time.perf_counter() - began) * 1e9)
            for message in batch.messages:
                tracing.note("apply", message.payload, began_ns, target=self.name, index=message.index)
        return _new_tuple(ChangeOutcome, (position, None, None))

    def _apply_before(self, session: Session, batch: Batch, poison: Poison) -> ChangeOutcome:
        """Apply what precedes a poisoned entry, and refuse the rest.

        The range then ends at the delivery before it, the last place whose chain value is known here.
        """
        if all(message.index != poison.index or message.quarantine for message in batch.messages):
            raise TargetError(f"the store calls entry {poison.index} poisoned, which is not in {batch[:2]}: {poison}")
        stored = self._target.position()
        refused = check(stored, session, batch)
        if refused is not None:
            self._note("reject", session)
            return ChangeOutcome(refused=refused)
        before = cut(batch, poison.index)
        outcome = ChangeOutcome() if before is None else self._apply(session, before)
        if outcome.refused:
            return outcome
        has = outcome.position or stored
        verdict = TargetRefusal(Refusal.POISON, str(poison), poison.index, has.session.epoch, has.chain)
        self._refused(verdict, session)
        return outcome._replace(refused=verdict)

    def _refused(self, verdict: TargetRefusal, session: Session, log_id: str = "") -> ChangeOutcome:
        """Count it, and say it once."""
        reason = verdict.reason.name
        self.counts.refusals[reason] += 1
        told = f"{reason} {verdict.index}"
        if told != self._said:
            self._said = told
            text = "target %s: refused epoch %d with %s: %s"
            facts = {"epoch": session.epoch, "log_id": log_id or self.position.log_id, "reason": reason}
            level = logging.INFO if verdict.reason in _IN_PASSING else logging.WARNING
            self._say(level, text, session.epoch, reason, sayable(verdict.detail), **facts)
        return ChangeOutcome(refused=verdict)

    def _say(self, level: int, text: str, *args: object, **facts: object) -> None:
        known = {"target": self.name, "index": self.position.index, "log_id": self.position.log_id, **facts}
        logger.log(level, text, self.name, *args, extra=about(**known))

    def _note(self, event: str, session: Session, **more: object) -> None:
        if self._trace is not None:
            facts = {"node": f"T{self.name}", "ev": event, "target": self.name}
            self._trace({**facts, "epoch": session.epoch, "term": session.term, **more})

    # --- Between the worker thread and the event loop ---

    def _submit(self, then: Then, work: Callable[..., ChangeOutcome], *args: object) -> None:
        if self._inline:
            self._finished(_outcome(work, *args), then)
            return

        def done(future: Future[ChangeOutcome]) -> None:
            # Cancelled means that the server stops: nobody is left to hear it.
            if not future.cancelled() and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._finished, future.result(), then)

        try:
            self._thread.submit(_outcome, work, *args).add_done_callback(done)
        except RuntimeError:
            then(ChangeOutcome(error=TargetError(f"target {self.name} is stopping")))

    def _finished(self, outcome: ChangeOutcome, then: Then) -> None:
        if outcome.error is not None:
            self.counts.failures += 1
            if str(outcome.error) != self._said:
                self._said = str(outcome.error)
                epoch = self.position.session.epoch
                self._say(logging.WARNING, "target %s: the store failed: %s", sayable(str(outcome.error)), epoch=epoch)
        if outcome.position is not None:
            self.position = outcome.position
            if self._waiting:
                self._wake()
        then(outcome)

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.position.index:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(self.position)


def _outcome(work: Callable[..., ChangeOutcome], *args: object) -> ChangeOutcome:
    try:
        return work(*args)
    except Exception as error:  # noqa: BLE001 - whatever the store raises ends the stream, not the server.
        return ChangeOutcome(error=error)

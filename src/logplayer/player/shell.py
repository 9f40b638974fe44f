"""The shell: performs what the core asks for and tells it what happened. It decides nothing.

    log ──main fetcher──▶ Fetched ─┐                      ┌─▶ SendBatch ──▶ session ──▶ target
    log ──catch-up──────▶ CaughtUp ─┼─▶ core.take(event) ──┼─▶ ReadCatchUp ─▶ catch-up reader
    target ──session────▶ Acked ────┘                      └─▶ TrimLog, OpenSession, CloseSession, StepDown, Stop

Everything runs on one event loop: it is the paper's completion queue, and the core's only caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from logplayer.core import effect, event
from logplayer.core.effect import SendBatch
from logplayer.core.entry import Checkpoint, Takeover, TargetAdded
from logplayer.core.invariant import InvariantViolation
from logplayer.core.player import Player
from logplayer.core.queue import State
from logplayer.core.trace import Sink
from logplayer.errors import ConfigError, LogError, LogPlayerError, Trimmed
from logplayer.log.protocol import Info, Log, Record
from logplayer.player import control as chain
from logplayer.player.catchup import STEP_ENTRIES_MAX, CatchUp
from logplayer.player.config import PlayerConfig
from logplayer.player.entries import route_entries
from logplayer.player.progress import Progress, Sample
from logplayer.player.session import TargetSession
from logplayer.player.status import PlayerStatus, Rates, target_status
from logplayer.target.client import position
from logplayer.wire.connections import Connections

logger = logging.getLogger("logplayer.player")

STOPPED = "stopped"
STEPPED_DOWN = "stepped down"
ASK_SECONDS = 1.0  # How long the start waits for the targets' positions; they are only a hint.
MEET_SECONDS = 0.005
RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
REST_MS_MAX = 50  # How long the main stream may rest while every target has plenty to do.
UNROUTABLE_KEPT = 10_000  # Indexes that are remembered, so that each is reported once.
CHECKPOINT_ENTRIES = 1000  # How far behind the newest control record must be before trimming writes a new one.


class Shell:
    """One player: a core, a log, and the sessions to its targets."""

    def __init__(self, log: Log, config: PlayerConfig, trace: Sink | None = None) -> None:
        self.log = log
        self.config = config
        self.core: Player
        self.log_id = ""
        self.unroutable = 0
        self._unroutable: dict[int, None] = {}  # The last of them, in the order in which they were found.
        self._seats: dict[str, TargetAdded] = {}  # The members at the start.
        self._trace = trace
        self._log_last = 0
        self._sessions: dict[str, TargetSession] = {}
        self._connections = Connections(config.security)
        self._inbox: deque[event.Event] = deque()
        self._stepping = False
        self._progress = Progress()
        self._rates = Rates()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ending: asyncio.Future[str] | None = None
        self._stop_wanted = False
        self._started = False
        self.on_dispatch: Callable[[list[Record]], None] | None = None  # For benchmarks: before the core is told.

    # --- The life of a player ---

    async def run(self) -> str:
        """Take over, play until stopped or fenced, and say which: ``stopped`` or ``stepped down: why``."""
        loop = asyncio.get_running_loop()
        self._ending = loop.create_future()
        await self._take_over()
        self._catch_up = CatchUp(
            self.log, self.config.catch_up_readers_max, self.config.catch_up_bytes, self._tell, self._note_unroutable
        )
        self._started = True
        self._spawn(self._fetch())
        self._spawn(self._tick())
        if self._stop_wanted:
            self.request_stop()
        try:
            return await self._ending
        finally:
            await self._close()

    @property
    def running(self) -> bool:
        """Whether it has taken over and has not ended: only then there is a status."""
        return self._started and self._ending is not None and not self._ending.done()

    def request_stop(self) -> None:
        """Deliver what is queued, then end. Safe to call from a signal handler, and more than once."""
        self._stop_wanted = True
        if not self.running:
            return
        self._tell(event.StopRequested())
        self._spawn(self._end_after(self.config.drain_ms_max / 1000))

    async def _take_over(self) -> None:
        """Append the takeover record: its index is the epoch, and all older players are rivals from here on."""
        config = self.config
        seats = tuple(config.targets.items())
        self.log_id = (await self.log.info()).log_id
        epoch, control = await chain.append(self.log, Takeover(config.group, config.player), config.map, seats)
        if config.owner is not None:
            control.router.replace_first(config.owner)
        info = await self.log.info()
        self._log_last = info.last
        start = await self._start_index(info, epoch)
        await self._begin_progress(info, start)
        self._seats = dict(control.members)
        for name in config.targets.keys() - control.members.keys():
            logger.warning("%s is no member of this log: add it with 'logplayer target add %s ADDRESS'", name, name)
        self.core = Player(
            epoch,
            start,
            control,
            config.limits,
            group=config.group,
            owns=config.owns,
            trims=config.trims,
            archived=config.archived,
            trimmed=info.first - 1,
            trace=self._trace,
        )
        logger.info("took over as epoch %d, main stream from %d, %d targets", epoch, start + 1, len(self.core.queues))

    async def _start_index(self, info: Info, epoch: int) -> int:
        """Where the main stream begins: at the most advanced target. The others catch up and cost it nothing.

        Never behind our own takeover: a rival's record right after it must be seen, even if no target tells of it.
        """
        owns = self.config.owns or (lambda name: True)
        asked = [
            position(address, name, timeout=ASK_SECONDS, security=self.config.security)
            for name, address in self.config.targets.items()
            if owns(name)
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        stood = [answer.index for answer in answers if not isinstance(answer, BaseException)]
        return max(info.first - 1, min(epoch, max(stood, default=epoch)))

    async def _begin_progress(self, info: Info, start: int) -> None:
        """Learn enough of the log in front of the start to tell how far a target behind it lags."""
        began = oldest = Sample(start, time.time_ns() // 1000, 0)
        with contextlib.suppress(LogError):  # Somebody may trim it meanwhile; it is only for the status.
            first = await chain.first_record(self.log, info.first, info.last)
            newest = await chain.first_record(self.log, max(start, info.first), info.last)
            share = (start - info.first + 1) / (info.last - info.first + 1)
            began = Sample(start, newest.committed_at_us, round(info.bytes * share))
            oldest = Sample(info.first - 1, first.committed_at_us, 0)
        self._progress.begin(oldest, began)

    async def _close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        self._catch_up.close()
        for task in self._tasks:
            task.cancel()
        # The readers hold the log open: whoever runs us may close it once we are done.
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end(self, how: str) -> None:
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(how)

    async def _end_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._end(STOPPED)

    # --- The inbox ---

    def _tell(self, fact: event.Event) -> None:
        """One event for the core, and its effects. An effect that leads to another event waits its turn."""
        self._inbox.append(fact)
        if self._stepping:
            return
        self._stepping = True
        self._connections.hold()
        try:
            try:
                while self._inbox:
                    self.core.take(self._inbox.popleft(), self._perform)
            finally:
                self._connections.flush()
        except (InvariantViolation, Exception) as error:  # noqa: BLE001
            # The step may be half done, and the loop would log and swallow the error: run() ends the process with it.
            if self._ending is not None and not self._ending.done():
                self._ending.set_exception(error)
        finally:
            self._stepping = False

    # --- What the core asks for ---

    def _perform(self, request: effect.Effect) -> None:
        if type(request) is SendBatch:  # Nearly all of them.
            self._sessions[request.target].send(request)
        else:
            self._performers[type(request)](self, request)

    def _open(self, request: effect.OpenSession) -> None:
        address = self._address(request.target)
        if not address:
            error = f"nobody has told where {request.target} is: give its address to the player"
            self._inbox.append(event.Lost(request.target, request.session, error))
            return
        self._sessions[request.target] = TargetSession(
            request.target, request.session, address, self.log_id, self._connections, self._tell
        )

    def _close_session(self, request: effect.CloseSession) -> None:
        session = self._sessions.get(request.target)
        if session is not None and session.session == request.session:
            del self._sessions[request.target]
            session.close()

    def _probe(self, request: effect.SendProbe) -> None:
        self._sessions[request.target].probe()

    def _read(self, request: effect.ReadCatchUp) -> None:
        self._catch_up.read(request)

    def _trim(self, request: effect.TrimLog) -> None:
        self._spawn(self._trim_log(request.up_to))

    def _step_down(self, request: effect.StepDown) -> None:
        logger.warning("stepping down: %s", request.reason)
        self._end(f"{STEPPED_DOWN}: {request.reason}")

    def _stop(self, request: effect.Stop) -> None:
        self._end(STOPPED)

    def _report(self, request: effect.Report) -> None:
        logger.error("target %s: %s", request.target, request.what)

    _performers: dict[type, Callable[[Shell, Any], None]] = {  # noqa: RUF012
        effect.OpenSession: _open,
        effect.CloseSession: _close_session,
        effect.SendProbe: _probe,
        effect.ReadCatchUp: _read,
        effect.TrimLog: _trim,
        effect.StepDown: _step_down,
        effect.Stop: _stop,
        effect.Report: _report,
    }

    def _address(self, target: str) -> str:
        """Where a member is reached: as we were told at the start, unless a record has told otherwise since then."""
        member = self.core.control.members.get(target)
        recorded = member.address if member else ""
        if recorded and member != self._seats.get(target):
            return recorded
        return self.config.targets.get(target) or recorded

    # --- The main stream ---

    async def _fetch(self) -> None:
        """Read the log for ever, from where the core stands; after trouble, again from there."""
        attempt = 0
        await self._meet_targets()
        while True:
            try:
                async with aclosing(self.log.read(self.core.current + 1)) as batches:  # type: ignore[type-var]
                    async for records in batches:
                        attempt = 0
                        await self._take(records)
            except Trimmed as error:
                await self._jump(error.first)
            except (LogError, OSError) as error:
                logger.warning("the log cannot be read at %d: %s; trying again", self.core.current + 1, error)
                await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
                attempt += 1

    async def _meet_targets(self) -> None:
        """Let the targets open before the first entry, so that those at the start join the main stream at once.

        Otherwise it would run ahead of them while they connect, and each would have to read the same entries for
        itself. Not for long: a target that is down must not hold the others up.
        """
        for _ in range(round(ASK_SECONDS / MEET_SECONDS)):
            if all(
                queue.state is not State.SUSPENDED or queue.health.attempts or queue.health.blocked
                for queue in self.core.queues.values()
            ):
                return
            await asyncio.sleep(MEET_SECONDS)

    async def _take(self, records: list[Record]) -> None:
        """Give a batch of the log to the core in steps that do not keep acks and heartbeats waiting."""
        for start in range(0, len(records), STEP_ENTRIES_MAX):
            if start:
                await asyncio.sleep(0)
            self._fetched(records[start : start + STEP_ENTRIES_MAX] if len(records) > STEP_ENTRIES_MAX else records)
            if not self.core.wants_entries():
                await self._rest()

    async def _jump(self, first: int) -> None:
        """The log begins at ``first``, behind what we read: go there, with the decisions that we can no longer read."""
        try:
            control = (await chain.load(self.log)).control(self.config.map)
        except (LogError, OSError) as error:
            logger.warning("the log's decisions cannot be read: %s; trying again", error)
            await asyncio.sleep(RETRY_SECONDS[0])
            return  # The next read finds the log trimmed again.
        if self.config.owner is not None:
            control.router.replace_first(self.config.owner)
        self._tell(event.MainTrimmed(first, control))

    async def _rest(self) -> None:
        """Let the targets work off what they have; not for long, since there may be decisions in the log."""
        for _ in range(REST_MS_MAX):
            await asyncio.sleep(0.001)
            if self.core.wants_entries():
                return

    def _fetched(self, records: list[Record]) -> None:
        if self.on_dispatch is not None:
            self.on_dispatch(records)
        self._connections.settle()
        router = self.core.control.router
        ownerless = router.ownerless
        self._tell(event.Fetched(route_entries(records, router, self._note_unroutable)))
        self._progress.fetched(records)
        self._log_last = max(self._log_last, records[-1].index)
        if router.ownerless > ownerless == 0:
            logger.error("a mutation up to entry %d names no target, and nobody owns its key", records[-1].index)

    def _note_unroutable(self, index: int, why: str) -> None:
        if index in self._unroutable:
            return  # The main stream and each catch-up reader come past it.
        self.unroutable += 1
        self._unroutable[index] = None
        if len(self._unroutable) > UNROUTABLE_KEPT:
            del self._unroutable[next(iter(self._unroutable))]
        logger.error("entry %d is for nobody: %s", index, why)

    # --- Time, trim, tasks ---

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._tell(event.Ticked(int(loop.time() * 1000)))
            self._rates.note("", self.core.current)
            for queue in self.core.queues.values():
                if queue.known:
                    self._rates.note(queue.name, queue.acked)
            self._rates.keep(self.core.queues)
            await asyncio.sleep(self.config.tick_ms / 1000)

    async def _trim_log(self, up_to: int) -> None:
        """Trim, but never the newest control record: if it is in the way, repeat it further on for the next time."""
        with contextlib.suppress(LogPlayerError):  # Trimming is housekeeping; the next time does it.
            newest = (await self.log.info()).control
            if newest <= up_to and self.core.current - newest > CHECKPOINT_ENTRIES:
                newest, _ = await chain.append(self.log, Checkpoint(), self.config.map)
            allowed = min(up_to, newest - 1)
            if allowed >= 1:
                await self.log.trim(allowed)
                self._tell(event.LogTrimmed(allowed))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and self._ending and not self._ending.done():
            self._ending.set_exception(task.exception() or LogPlayerError("a task of the player failed"))

    # --- For operators ---

    def status(self) -> PlayerStatus:
        """Where everything stands now."""
        core = self.core
        queues = core.queues.values()
        return PlayerStatus(
            group=self.config.group,
            player=self.config.player,
            epoch=core.epoch,
            current=core.current,
            log_last=self._log_last,
            consistent_cut=min((queue.acked for queue in queues), default=0),
            entries_per_second=round(self._rates.per_second("", core.current), 1),
            unroutable=self.unroutable + sum(core.homeless.values()) + core.control.router.ownerless,
            state="stopping" if core.draining else "stopped" if core.stopped else "playing",
            targets=tuple(
                target_status(queue, core, self._address(queue.name), self._progress, self._rates) for queue in queues
            ),
        )

    def retry(self, target: str) -> None:
        """Try a blocked or waiting target again at once."""
        if target not in self.core.queues:
            raise ConfigError(f"this player has no target {target!r}; it has {', '.join(self.core.queues) or 'none'}")
        self._tell(event.RetryRequested(target))

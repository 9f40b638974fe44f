"""The shell: performs what the core asks for and tells it what happened. It decides nothing.

    log ──main fetcher──▶ Fetched ─┐                      ┌─▶ SendBatch ──▶ session ──▶ target
    log ──catch-up──────▶ CaughtUp ─┼─▶ core.take(events) ──┼─▶ ReadCatchUp ─▶ catch-up reader
    target ──session────▶ Acked ────┘                      └─▶ TrimLog, OpenSession, CloseSession, StepDown, Stop

Everything runs on one event loop: it is the paper's completion queue, and the core's only caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from operator import attrgetter
from typing import Any

from logplayer.config import Config
from logplayer.core import effects, events
from logplayer.core.control_state import ControlState
from logplayer.core.effects import SendBatch
from logplayer.core.entry import ExplicitMap, Takeover, TargetAdded
from logplayer.core.invariants import InvariantViolation
from logplayer.core.player import Player
from logplayer.core.trace import Sink
from logplayer.errors import ConfigError, LogDiverged, LogError, LogPlayerError, LogUnavailable, Trimmed
from logplayer.log import control_chain as chain
from logplayer.log.chain import chain_at, continues, require_continued
from logplayer.log.protocol import History, Log, Record
from logplayer.observe.logs import about
from logplayer.observe.timeline import Timeline
from logplayer.player.catch_up_reader import STEP_ENTRIES_MAX, CatchUp
from logplayer.player.ended import STOPPED, Ended, EndKind
from logplayer.player.entries import read_entries
from logplayer.player.look_up import look_up
from logplayer.player.maps import check_start
from logplayer.player.observed import Observed
from logplayer.player.progress import survey
from logplayer.player.session import TargetSession
from logplayer.player.start import RETRY_SECONDS, Waiting, ask_targets, leave_alone, meet_targets, worth_waiting
from logplayer.player.status import PlayerStatus
from logplayer.player.survey import read_back
from logplayer.wire.connections import Connections
from logplayer.wire.entries import route_transaction

logger = logging.getLogger("logplayer.player")

REST_MS_MAX = 50  # How long the main stream may rest while every target has plenty to do.


class Shell:
    """One player: a core, a log, and the sessions to its targets."""

    def __init__(self, log: Log, config: Config, trace: Sink | None = None, timeline: Timeline | None = None) -> None:
        self.log = log
        self.config = config
        self.core: Player
        self.log_id = ""
        self._starters: dict[str, TargetAdded] = {}  # The members at the start.
        self._trace = trace
        self.observed = Observed(timeline)
        self._sessions: dict[str, TargetSession] = {}
        self._connections = Connections(config.security)
        self._inbox: deque[events.Event] = deque()
        self._stepping = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ending: asyncio.Future[Ended] | None = None
        self._stop_wanted = False
        self._started = False
        self._takeover = History(0, b"")  # Our record, and the chain value there.
        self._unfenced = False  # The log cannot refuse a second writer, so its chain may break.
        self.waiting = Waiting(config.player, config.group, "its address")
        self.on_started: Callable[[], None] | None = None  # Called once it has taken over.
        self.on_dispatch: Callable[[list[Record]], None] | None = None  # For benchmarks: before the core sees it.

    # --- The life of a player ---

    async def run(self) -> Ended:
        """Take over, and play until stopped or superseded: returns which."""
        loop = asyncio.get_running_loop()
        self._ending = loop.create_future()
        if not await self._take_over_patiently():
            return STOPPED
        readers_max, bytes_max = self.config.catch_up_readers_max, self.config.catch_up_bytes
        self._catch_up = CatchUp(self.log, readers_max, bytes_max, self._tell, self._unfenced)
        self._started = True
        if self.on_started is not None:
            self.on_started()
        self._spawn(self._fetch())
        self._spawn(self._tick())
        core, watch = self.core, self.observed.log
        self._spawn(watch.follow(self.log, core.epoch, lambda: History(core.current, core.chain)))
        self._spawn(self.observed.redriven.follow(self.log, lambda: core.control))
        if self.config.trims and not self.config.trims_unroutable:
            self._spawn(self._survey())
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
        self._tell(events.StopRequested())
        self._spawn(self._end_after(self.config.drain_ms_max / 1000))

    async def _take_over_patiently(self) -> bool:
        """Take over, however long the log is away; False if it is stopped meanwhile."""
        attempt = 0
        while attempt == 0 or not self._stop_wanted:
            try:
                await self._take_over()
                return True
            except LogUnavailable as error:
                if not worth_waiting(error):
                    raise
                self.waiting.note(error)
                await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
                attempt += 1
        return False

    async def _take_over(self) -> None:
        """Append the takeover record: its index is the epoch, and every older player is superseded from here on."""
        config = self.config
        configured = tuple(config.targets.items())
        self.log_id = (await self.log.info()).log_id
        first = ExplicitMap() if config.map is None and config.owner is not None else config.map
        head = await chain.load(self.log)
        decided = chain.begin(head, first, configured)
        check_start(decided, first, config.targets, head.state is not None)
        addresses = self._addresses(decided)
        standings = await ask_targets(addresses, config.security)
        if not config.take_over:
            await leave_alone(self.log, addresses, standings, config.security)
        epoch, control = await chain.append(
            self.log, Takeover(config.group, config.player, config.application), first, configured
        )
        if config.owner is not None:
            control.router.replace_first(config.owner)
        info = await self.log.info()
        self._unfenced = info.unfenced
        self.observed.log.learn(info)
        self.observed.log.ends_at(info.last, 0)
        # At the most advanced target: the others catch up and cost the main stream nothing. Never after our own
        # takeover: a newer player's record right after it must be seen, even if no target knows of it.
        stood = max((one.position.index for one in standings.values()), default=epoch)
        start = max(info.first - 1, min(epoch, stood))
        value, own = await chain_at(self.log, start), await chain_at(self.log, epoch)
        if value is None or own is None:
            raise LogUnavailable(f"the log was trimmed past {start} while the player started")  # The next try sees it.
        self._takeover = History(epoch, own)
        self.observed.progress.begin(*await survey(self.log, info, start))
        self._starters = dict(control.members)
        for name in config.targets.keys() - control.members.keys():
            text = "%s is not a member of this log: add it with 'logplayer target add %s ADDRESS'"
            logger.warning(text, name, name, extra=about(target=name, log_id=self.log_id))
        self.core = Player(
            epoch,
            start,
            control,
            config.limits,
            cut=route_transaction,
            group=config.group,
            owns=config.owns,
            trims=config.trims,
            trims_unroutable=config.trims_unroutable,
            archived=config.archived,
            trimmed=info.first - 1,
            trace=self._trace,
            chain=value,
        )
        self.observed.took_over(self.core, self.log_id)

    def _addresses(self, control: ControlState) -> dict[str, str]:
        """The addresses of the members that are ours, as far as they are known."""
        owns, told = self.config.owns or (lambda name: True), self.config.targets
        return {name: told.get(name) or member.address for name, member in control.members.items() if owns(name)}

    async def _close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        self._catch_up.close()
        for task in self._tasks:
            task.cancel()
        # The readers hold the log open: whoever runs us may close it once we are done.
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end(self, how: Ended) -> None:
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(how)

    async def _end_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._end(STOPPED)

    # --- The inbox ---

    def _tell(self, fact: events.Event) -> None:
        """One event for the core, and its effects. An effect that leads to another event waits its turn."""
        if self._stepping:
            self._inbox.append(fact)
            return
        try:
            with self._connections.turn():  # Its beginning may tell of streams that are ready, in steps of their own.
                self._step(fact)
        except (InvariantViolation, Exception) as error:  # noqa: BLE001
            # The step may be half done, and the loop would log and swallow the error: run() ends the process with it.
            if self._ending is not None and not self._ending.done():
                self._ending.set_exception(error)

    def _step(self, fact: events.Event) -> None:
        self._stepping = True
        try:
            self.core.take(fact, self._perform)
            while self._inbox:
                self.core.take(self._inbox.popleft(), self._perform)
        finally:
            self._stepping = False

    # --- What the core asks for ---

    def _perform(self, request: effects.Effect) -> None:
        if type(request) is SendBatch:  # Nearly all of them.
            self._sessions[request.target].send(request)
        else:
            self._performers[type(request)](self, request)

    def _open(self, request: effects.OpenSession) -> None:
        address = self._address(request.target)
        if not address:
            error = f"no address is known for {request.target}: give it to the player"
            self._inbox.append(events.Lost(request.target, request.session, error))
            return
        self._sessions[request.target] = TargetSession(
            request.target,
            request.session,
            address,
            self.log_id,
            self._connections,
            self._tell,
            self.observed.counts,
            self.observed.acked,
        )

    def _close_session(self, request: effects.CloseSession) -> None:
        session = self._sessions.get(request.target)
        if session is not None and session.session == request.session:
            del self._sessions[request.target]
            session.close()

    def _probe(self, request: effects.SendProbe) -> None:
        self._sessions[request.target].probe()

    def _read(self, request: effects.ReadCatchUp) -> None:
        self._catch_up.read(request)

    def _look_up(self, request: effects.LookUp) -> None:
        self._spawn(self._tell_looked_up(request))

    async def _tell_looked_up(self, request: effects.LookUp) -> None:
        self._tell(await look_up(self.log, request))

    def _trim(self, request: effects.TrimLog) -> None:
        self._spawn(self._trim_log(request))

    def _step_down(self, request: effects.StepDown) -> None:
        self.observed.steps_down(request)
        self._end(Ended(EndKind.SUPERSEDED, request.epoch, request.reason, request.application))

    def _stop(self, request: effects.Stop) -> None:
        self._end(STOPPED)

    def _report(self, request: effects.Report) -> None:
        self.observed.report(request)

    _performers: dict[type, Callable[[Shell, Any], None]] = {  # noqa: RUF012
        effects.OpenSession: _open,
        effects.CloseSession: _close_session,
        effects.SendProbe: _probe,
        effects.ReadCatchUp: _read,
        effects.LookUp: _look_up,
        effects.TrimLog: _trim,
        effects.StepDown: _step_down,
        effects.Stop: _stop,
        effects.Report: _report,
    }

    def _address(self, target: str) -> str:
        """A member's address: as configured at the start, unless a record has changed it since then."""
        member = self.core.control.members.get(target)
        recorded = member.address if member else ""
        if recorded and member != self._starters.get(target):
            return recorded
        return self.config.targets.get(target) or recorded

    # --- The main stream ---

    async def _fetch(self) -> None:
        """Read the log from the core's index on, until it drains; after trouble, again from there."""
        attempt = 0
        await meet_targets(self.core)
        while not self.core.draining:
            try:
                async with aclosing(self.log.read(self.core.current + 1)) as batches:  # type: ignore[type-var]
                    async for records in batches:
                        if self.core.draining:
                            return  # It takes no more entries, so what comes now continues nothing that it has.
                        attempt = 0
                        await self._take(records)
            except Trimmed as error:
                await self._jump(error.first)
            except LogDiverged:
                raise  # Nothing more can be read for what was read: the next player begins with what the log has now.
            except (LogError, OSError) as error:
                self.observed.log.failed(self.core.current + 1, error)
                await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
                attempt += 1

    async def _take(self, records: list[Record]) -> None:
        """Give a batch of the log to the core in steps that do not keep acks and heartbeats waiting."""
        self._require_continued(records)
        for start in range(0, len(records), STEP_ENTRIES_MAX):
            if start:
                await asyncio.sleep(0)
            self._fetched(records[start : start + STEP_ENTRIES_MAX] if len(records) > STEP_ENTRIES_MAX else records)
            if not self.core.wants_entries():
                await self._rest()

    def _require_takeover(self, records: list[Record]) -> None:
        """Where our own takeover was, it must still be: the epoch of a player that the log has lost orders nothing."""
        epoch, value = self._takeover
        if self.core.current < epoch <= records[-1].index:
            at = bisect_left(records, epoch, key=attrgetter("index"))
            if records[at].index != epoch or records[at].chain != value:
                raise LogDiverged(
                    f"entry {epoch} of the log is not this player's takeover any more: the log was restored from an "
                    "older backup, or lost entries",
                    epoch,
                )

    def _require_continued(self, records: list[Record]) -> None:
        """Each batch must continue what was read before: so a log that was replaced is noticed at its next entry."""
        core = self.core
        if not self._unfenced:
            require_continued(core.current, core.chain, records[0])
            self._require_takeover(records)
        elif not continues(core.chain, records[0]):
            logger.warning(
                "entry %d of the log does not continue the one before it: two writers were at work, which this log "
                "cannot refuse; let one log server write",
                records[0].index,
                extra=about(index=records[0].index, log_id=self.log_id, epoch=core.epoch),
            )

    async def _jump(self, first: int) -> None:
        """The log begins at ``first``, after what we read: go there, with the decisions that we can no longer read."""
        if self.core.current < self.core.epoch < first:
            raise LogDiverged(
                f"the log was trimmed past entry {self.core.epoch}, this player's takeover, before that was read: "
                "another player has taken over, or the log was restored from an older backup",
                self.core.epoch,
            )
        try:
            control = (await chain.load(self.log)).control(self.config.map)
            value = await chain_at(self.log, first - 1)
        except (LogError, OSError) as error:
            logger.warning("the log's decisions cannot be read: %s; trying again", error)
            await asyncio.sleep(RETRY_SECONDS[0])
            return  # The next read finds the log trimmed again.
        if self.config.owner is not None:
            control.router.replace_first(self.config.owner)
        if value is not None:  # Else it was trimmed further meanwhile.
            self._tell(events.MainTrimmed(first, control, value))

    async def _rest(self) -> None:
        """Let the targets work off what they have; not for long, since there may be decisions in the log."""
        for _ in range(REST_MS_MAX):
            await asyncio.sleep(0.001)
            if self.core.wants_entries():
                return

    def _fetched(self, records: list[Record]) -> None:
        if self.on_dispatch is not None:
            self.on_dispatch(records)
        self._tell(events.Fetched(read_entries(records, self.core.epoch)))
        self.observed.fetched(records)

    # --- Time, trim, tasks ---

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._tell(events.Ticked(int(loop.time() * 1000)))
            self.observed.tick()
            await asyncio.sleep(self.config.tick_ms / 1000)

    async def _trim_log(self, request: effects.TrimLog) -> None:
        """Trim as far as the log lets us. If the newest control record is in the way, repeat it further on."""
        history, first = History(request.index, request.chain), self.config.map
        with contextlib.suppress(LogPlayerError):  # Trimming is housekeeping; the next time does it.
            trimmed, _ = await chain.trim(
                self.log, request.up_to, history, first_map=first, repeat_after=chain.CHECKPOINT_ENTRIES
            )
            self._tell(events.LogTrimmed(trimmed))
            self.observed.counts.trims += 1

    async def _survey(self) -> None:
        """Look for what reached nobody up to our takeover: no earlier player can tell us, and it must stay."""
        core = self.core
        async with aclosing(read_back(self.log, core.trimmed + 1, core.epoch)) as entries:  # type: ignore[type-var]
            async for some in entries:
                self._tell(events.Surveyed(some[-1].index, some))
        self._tell(events.Surveyed(core.epoch, ()))

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
        """The state of every target now."""
        return self.observed.status(self.config.player, self._address)

    def retry(self, target: str) -> None:
        """Try a blocked, suspended or waiting target again at once."""
        self._require(target)
        self._tell(events.RetryRequested(target))

    def hold(self, target: str) -> None:
        """Suspend a target until :meth:`retry`, or until this player ends. The others go on."""
        self._require(target)
        self._tell(events.HoldRequested(target))

    def _require(self, target: str) -> None:
        if target not in self.core.queues:
            raise ConfigError(f"this player has no target {target!r}; it has {', '.join(self.core.queues) or 'none'}")

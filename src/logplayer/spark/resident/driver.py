"""Resident players: one endless Spark job for each group of targets, with the asyncio player inside its only task.

The driver is a shell around :mod:`logplayer.spark.resident.machine`, which decides everything. Its inbox is the
process's background event loop: heartbeats arrive there, and other threads (signals, the thread that waits for Spark)
put their events there, so the machine is stepped by one thread only. It holds no state that matters: a task that Spark
starts again takes over by a new epoch, and goes on where the targets are. Besides, the driver

- serves a ``file://`` log to the tasks, because a file has one writer;
- refuses more groups than a local master has slots: it never gets more, and the rest would wait for ever;
- ends with any error that it does not expect: ``wait`` and ``stop`` raise it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import threading
import time
import uuid
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from logplayer.admin.app import Face
from logplayer.admin.audit_report import AuditReport
from logplayer.admin.http_server import HttpServer
from logplayer.config import Config
from logplayer.core.invariants import InvariantViolation
from logplayer.core.standby import Standby
from logplayer.errors import ConfigError, LogPlayerError, LogUnavailable, Unavailable, UserError
from logplayer.log import control_chain as chain
from logplayer.log.open import LogPlace, open_log, parse
from logplayer.log.protocol import Log
from logplayer.log.server import LogServer
from logplayer.player.ended import STOPPED, Ended
from logplayer.player.standby import StandbyWatch
from logplayer.player.start import OPEN_SECONDS, RETRY_SECONDS, Waiting, worth_waiting
from logplayer.spark import event_loop
from logplayer.spark.resident import events, machine
from logplayer.spark.resident.applications import register
from logplayer.spark.resident.driver_face import driver_face
from logplayer.spark.resident.driver_port import listen
from logplayer.spark.resident.first_plan import first_plan
from logplayer.spark.resident.groups import GroupPlan, GroupTask, play_group
from logplayer.spark.resident.heartbeat import read_beat
from logplayer.spark.resident.machine import Machine
from logplayer.spark.resident.overview import Overview
from logplayer.spark.resident.placement import cancel, run_one, warm
from logplayer.spark.resident.trimmer import Trimmer
from logplayer.spark.session import executors, has_ended, is_elastic
from logplayer.wire.security import Security

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_SECONDS = 0.1


class Resident:
    """The driver of the resident players: ``start``, then ``wait`` or ``stop``."""

    def __init__(self, spark: SparkSession, config: Config, standby: Standby | None = None) -> None:
        self.spark = spark
        self.config = replace(config, group=config.group or "spark", operator_token="")  # Tasks serve no HTTP.
        self.overview = Overview(self.config.group)
        self.audit: AuditReport | None = None
        self.machine: Machine | None = None  # Stepped on the background loop only.
        self.log_address = config.log
        self._log_security = config.security
        self.waiting = Waiting("spark", self.config.group, config.log)
        self._log: Log
        self._server: LogServer | None = None
        self._beats: HttpServer
        self._token = secrets.token_hex(16)
        self._run = uuid.uuid4().hex[:8]
        self._driver = ""
        self._trimmer: Trimmer
        self._watch: StandbyWatch
        self._stop_wanted = threading.Event()  # Before there is a machine to tell.
        self._standby = standby or Standby()  # Given where it must outlive this application.
        self._over = threading.Event()
        self._error: BaseException | None = None  # Set before it is over.
        self._playing = threading.Event()
        self._log_last = 0  # As the driver itself saw it: silent groups do not tell.
        self._tasks: set[asyncio.Task[None]] = set()

    # --- The life of an application ---

    def start(self) -> bool:
        """Check that all groups fit, and submit them; ``playing`` is whether they play. Raises UserError if not.

        A log that is away is waited for; False if it is stopped meanwhile.
        """
        try:
            if not self._open_log():
                return False
            control, members = event_loop.run(self._read_members())
            plan = first_plan(self.spark, members, self.config.spark.groups, self._stop_wanted.is_set)
            self._trimmer = Trimmer(self._log, self.config.map, self.config.trims_unroutable)
            application = event_loop.run(self._number())
            conf = self.spark.sparkContext.getConf()
            host = conf.get("spark.driver.host") or "127.0.0.1"
            bind = conf.get("spark.driver.bindAddress") or host
            port = listen(self._heard, host, self.config.security, self._token, bind)
            self._beats, self._driver = event_loop.run(port)
            settings = machine.Settings(
                self.config.spark.groups, self.config.trims, self.config.drain_ms_max, is_elastic(self.spark)
            )
            self.machine = Machine(settings, plan, members, application, control, executors(self.spark))
            event_loop.run(self._begin(self.machine))
        except BaseException:
            self._close()
            raise
        return True

    def stop(self) -> Ended:
        """Drain all groups and end; what is late is cancelled. Raises as ``wait``, or Unavailable if Spark ended."""
        self.request_stop()
        self.wait()
        self._close()
        assert self.machine is not None
        if self.machine.lost is not None:
            raise Unavailable(f"Spark has ended the application: {self.machine.lost}; start it again")
        return self.machine.ended or STOPPED

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end; whether it has come. Raises, and closes the log, if the driver has failed."""
        over = self._over.wait(seconds)
        if self._error is not None:
            self._close()
            raise self._error
        return over

    def request_stop(self) -> None:
        """For signal handlers: the next heartbeats carry it to the groups."""
        self._stop_wanted.set()
        if self.machine is not None:
            self._post(events.StopAsked())

    @property
    def stop_requested(self) -> bool:
        return self._stop_wanted.is_set()

    @property
    def playing(self) -> bool:
        """Whether every group's player has taken over; what happened to it since then is in the status."""
        return self._playing.is_set()

    @property
    def warm(self) -> bool:
        """Whether every group's task has started: a standby is warm then."""
        return self.machine is not None and self.machine.warm

    @property
    def plan(self) -> GroupPlan:
        assert self.machine is not None
        return self.machine.plan

    @property
    def jobs(self) -> dict[int, str]:
        """Of each group the job in Spark, by its job group, which its task names in heartbeats."""
        assert self.machine is not None
        return {group: self._job_name(job) for group, job in self.machine.jobs().items()}

    @property
    def targets(self) -> int:
        """How many members the log has."""
        return len(self.machine.members) if self.machine is not None else 0

    def status(self) -> dict[str, Any]:
        """All groups as one player, in the shape that ``logplayer status`` shows."""
        assert self.machine is not None
        return self.overview.status(self.machine, _now(), self._log_last)

    def face(self) -> Face:
        """What the application shows over HTTP; on the background loop."""
        return driver_face(self)

    @property
    def log(self) -> Log:
        """Since it was opened."""
        return self._log

    def now(self) -> int:
        """The machine's time."""
        return _now()

    def tell(self, event: events.DriverEvent) -> None:
        """On the background loop, once there is a machine."""
        self._step(event)

    # --- The inbox ---

    async def _begin(self, made: Machine) -> None:
        self._perform(made.begin(_now()))
        if self._stop_wanted.is_set():
            self._step(events.StopAsked())
        self._spawn(self._tick())
        if not made.application:
            self._spawn(self._activate())

    def _post(self, event: events.DriverEvent) -> None:
        """From any thread."""
        event_loop.background().call_soon_threadsafe(self._step, event)

    def _step(self, event: events.DriverEvent) -> Mapping[str, Any]:
        """On the background loop. Returns the answer to a heartbeat, if the event is one."""
        assert self.machine is not None
        if self._error is not None:
            return {"stop": True}  # A step may be half done, so the machine takes no more.
        try:
            return self._perform(self.machine.step(event))
        except (InvariantViolation, Exception) as error:  # noqa: BLE001 - the loop would log it and go on.
            self._fail(error)
            return {"stop": True}

    def _fail(self, error: BaseException) -> None:
        if not self._over.is_set():
            self._error = error
            self._over.set()

    def _perform(self, effects: list[events.DriverEffect]) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = {}
        for effect in effects:
            match effect:
                case events.Answer(stop, retry, application, hold):
                    answer = {"stop": stop, "retry": list(retry), "application": application, "hold": list(hold)}
                case events.SubmitJob():
                    threading.Thread(target=self._submit, args=(effect,), name="logplayer-job", daemon=True).start()
                case events.CancelJob(job):
                    self._spawn(asyncio.to_thread(cancel, self.spark.sparkContext, self._job_name(job)))
                case events.WarmExecutor(executor):
                    threading.Thread(target=warm, args=(self.spark.sparkContext, executor), daemon=True).start()
                case events.Look():
                    self._spawn(self._look())
                case events.TrimForMembers(indexes):
                    self._spawn(self._trim(indexes))
                case events.SayPlaying():
                    self._playing.set()
                case events.Note(text):
                    self.overview.note(text)
                case events.End():
                    self._over.set()
        return answer

    def _heard(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """A task's heartbeat."""
        if question.get("do") != "beat":
            raise UserError(f"unknown question {question.get('do')!r}")
        made = self.machine
        jobs = {self._job_name(job): job for job in made.jobs().values()} if made is not None else {}
        job = jobs.get(str(question.get("job")))
        if made is None or job is None:
            return {"stop": True}  # It may speak of another plan, and cannot be read by ours.
        beat = read_beat(question, made.plan, made.members)
        if made.jobs().get(beat.group) == job:
            self.overview.heard(beat)
        return self._step(events.Heard(job, beat))

    # --- What the machine asks for ---

    async def _tick(self) -> None:
        while not self._over.is_set():
            self._step(events.TimePassed(_now()))
            await asyncio.sleep(TICK_SECONDS)

    async def _number(self) -> int:
        """The application's number in the log; a standby has none yet."""
        if not self.config.standby:
            return await register(self._log, self.config)
        self._watch = StandbyWatch(self._log, self.config, self._standby)
        await self._watch.check()
        return 0

    async def _activate(self) -> None:
        """Of a standby: wait until nobody plays, then register, and play."""
        while True:
            try:
                if await self._watch.until_gone(lambda: self._stop_wanted.is_set() or self._over.is_set()):
                    self._step(events.Activated(await register(self._log, self.config)))
                return
            except (LogPlayerError, OSError) as error:
                self.overview.note(f"the standby cannot take over, and tries again: {error}")
                await asyncio.sleep(RETRY_SECONDS[-1])

    def _submit(self, request: events.SubmitJob) -> None:
        """On a thread of its own, for as long as the job lasts."""
        name = self._job_name(request.job)
        try:
            context = self.spark.sparkContext
            context.setJobGroup(name, f"logplayer play, group {request.group}", interruptOnCancel=True)
            task = self._task(request.group, request.plan, name)
            ended: events.DriverEvent = events.JobEnded(
                request.job, run_one(context, play_group, task, request.executor)
            )
        except Exception as error:  # noqa: BLE001 - whatever Spark says, the job is over.
            said = _first_line(error)
            ended = events.SparkEnded(said) if has_ended(self.spark) else events.JobEnded(request.job, error=said)
        self._post(ended)

    async def _look(self) -> None:
        found: events.DriverEvent = events.LookFailed()
        with contextlib.suppress(LogPlayerError, OSError):
            made = self.machine
            assert made is not None
            control, members = made.control, made.members
            info = await self._log.info()
            self._log_last = info.last
            if info.control != control:
                control, members = await self._read_members()
            found = events.Looked(control, members, await asyncio.to_thread(self._executors))
        self._step(found)

    def _executors(self) -> dict[str, int]:
        try:
            return executors(self.spark)
        except Exception as error:  # noqa: BLE001 - py4j raises whatever the socket did.
            raise Unavailable(f"Spark does not answer: {_first_line(error)}") from None

    async def _trim(self, indexes: Mapping[str, int]) -> None:
        with contextlib.suppress(LogPlayerError, OSError):  # The log is away; the next time does it.
            await self._trimmer.trim(indexes, indexes.keys(), self.overview.histories())
        self._step(events.TrimTried())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = event_loop.background().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    # --- Inside ---

    def _open_log(self) -> bool:
        """Open it, however long it is away; False if it is stopped meanwhile."""
        for attempt in itertools.count():
            try:
                self._log = event_loop.run(open_log(self.config.log, self.config.security, open_seconds=OPEN_SECONDS))
                break
            except LogUnavailable as error:
                if not worth_waiting(error, locked=self.config.standby):
                    raise
                self.waiting.note(error)
                if self._stop_wanted.wait(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]):
                    return False
        if parse(self.config.log).scheme == "file":
            # On loopback only, so without TLS: the configured certificate need not be valid for 127.0.0.1.
            self._log_security = Security(token=self.config.security.token)
            self._server = LogServer(self._log, self._log_security)
            host = self.spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1")
            if host != "127.0.0.1":
                raise ConfigError("a file:// log is on one machine: serve it with `logplayer log serve` for a cluster")
            self.log_address = f"grpc://127.0.0.1:{event_loop.run(self._server.start())}"
        return True

    def _close(self) -> None:
        with contextlib.suppress(LogPlayerError, OSError):
            if hasattr(self, "_beats"):
                event_loop.run(self._beats.stop())
            if self._server is not None:
                event_loop.run(self._server.stop())
            if hasattr(self, "_log"):
                event_loop.run(self._log.close())

    async def _read_members(self) -> tuple[int, frozenset[str]]:
        head = await chain.load(self._log)
        members = self.config.targets if head.state is None else head.control(self.config.map).members
        return head.index, frozenset(members)

    def _job_name(self, job: int) -> str:
        return f"play-{self._run}-{job}"

    def _task(self, number: int, plan: GroupPlan, job: str) -> GroupTask:
        assert self.machine is not None
        return GroupTask(
            number=number,
            plan=plan,
            config=self.config,
            log=LogPlace(self.log_address, self._log_security),
            driver=self._driver,
            token=self._token,
            job=job,
            application=self.machine.application,
            standby=self.config.standby,
        )


def _now() -> int:
    return int(time.monotonic() * 1000)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]

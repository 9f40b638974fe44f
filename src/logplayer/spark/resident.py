"""Resident players: one endless Spark task for each group of targets, with the asyncio player inside.

The driver hears the tasks' heartbeats, and its answer can say stop. It holds no state that matters: a task that Spark
starts again takes over by a new epoch, and goes on where the targets stand. What the driver does

- serve a ``file://`` log to the tasks, because a file has one writer;
- refuse more groups than there are slots, because the rest would wait for ever in silence;
- deal the targets out anew when the log's members have changed so that the groups became uneven;
- start the job again when Spark gave it up, as a task may fail only so often in the life of a job;
- trim the log behind all targets, if several groups play (one group does it itself).
"""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from logplayer.core.entry import ExplicitMap, ShardMap
from logplayer.core.limits import Limits
from logplayer.errors import ConfigError, LogPlayerError, UserError
from logplayer.log.address import open_log, parse
from logplayer.log.protocol import Log
from logplayer.log.server import LogServer
from logplayer.player import control as chain
from logplayer.player.shell import STEPPED_DOWN
from logplayer.player.status_server import StatusServer
from logplayer.spark import loop
from logplayer.spark.groups import GroupPlayer, GroupTask, Plan, count_groups, deal
from logplayer.spark.overview import Overview
from logplayer.spark.rivals import application_of, register
from logplayer.spark.session import make_session, slots
from logplayer.spark.trimmer import trim_behind
from logplayer.wire.security import NONE, Security

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.5
REGISTER_SECONDS = 30.0
RESTART_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class ResidentConfig:
    """What to play, and how. ``groups`` 0: as many as the targets are worth."""

    log: str
    targets: Mapping[str, str] = field(default_factory=dict)
    map: ShardMap = field(default_factory=ExplicitMap)
    groups: int = 0
    name: str = "spark"
    limits: Limits = field(default_factory=Limits)
    security: Security = NONE
    trims: bool = False
    tick_ms: int = 50
    drain_ms_max: int = 10_000


class Resident:
    """The driver of the resident players: ``start``, then ``wait`` or ``stop``."""

    def __init__(self, spark: SparkSession, config: ResidentConfig) -> None:
        self.spark = spark
        self.config = config
        self.overview = Overview()
        self.plan: Plan
        self.log_address = config.log
        self.ended = ""  # How it ended, once it has.
        self._log: Log
        self._server: LogServer | None = None
        self._beats: StatusServer
        self._token = secrets.token_hex(16)
        self._driver = ""
        self._job = ""
        self._stopping = threading.Event()
        self._again = False  # The job drains and starts anew: targets are dealt out, or a group is taken back.
        self._lost = ""  # Why a group stepped down, until it is decided what that means.
        self._application = 0
        self._retries: dict[int, set[str]] = {}
        self._thread: threading.Thread
        self._control = 0
        self._known: set[str] = set()  # The members as of that control record.
        self._lock = threading.Lock()

    # --- The life of an application ---

    def start(self) -> None:
        """Check that all groups fit, and start them. Raises UserError at once if they do not."""
        self._open_log()
        try:
            self.plan = self._deal()
            self._application = loop.run(register(self._log, self.config))
            host = self.spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1")
            assert host is not None
            own = Security(token=self._token, insecure=True)
            self._beats = StatusServer(self._heard, own)
            listening = loop.run(self._beats.start(f"{host}:0"))
            self._driver = f"{host}:{listening.rpartition(':')[2]}"
        except BaseException:
            self._close()
            raise
        self._thread = threading.Thread(target=self._run, name="logplayer-resident", daemon=True)
        self._thread.start()

    def stop(self) -> str:
        """Drain all groups and end; what does not end in time is cancelled."""
        self._stopping.set()
        self._thread.join(self.config.drain_ms_max / 1000 + 5)
        if self._thread.is_alive():
            self.spark.sparkContext.cancelJobGroup(self._job)
            self._thread.join(10)
        self._close()
        return self.ended or "stopped"

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end; whether it has come."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def request_stop(self) -> None:
        """For signal handlers: the next heartbeats carry it to the groups."""
        self._stopping.set()

    def status(self) -> dict[str, Any]:
        """All groups as one player, in the shape that ``logplayer status`` shows."""
        return self.overview.status(self.plan.groups, "stopping" if self._stopping.is_set() else "playing")

    def answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the status port does."""
        what = question.get("do")
        if what == "status":
            return self.status()
        if what == "retry":
            target = str(question.get("target", ""))
            with self._lock:
                self._retries.setdefault(self.plan.group_of(target), set()).add(target)
            return {"ok": True}
        if what == "stop":
            self.request_stop()
            return {"ok": True}
        raise UserError(f"unknown question {what!r}; ask status, retry or stop")

    # --- Inside ---

    def _open_log(self) -> None:
        self._log = loop.run(open_log(self.config.log))
        if parse(self.config.log).scheme == "file":
            self._server = LogServer(self._log)
            host = self.spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1")
            if host != "127.0.0.1":
                raise ConfigError("a file:// log is on one machine: serve it with `logplayer log serve` for a cluster")
            self.log_address = f"grpc://127.0.0.1:{loop.run(self._server.start())}"

    def _close(self) -> None:
        with contextlib.suppress(LogPlayerError, OSError):
            if hasattr(self, "_beats"):
                loop.run(self._beats.stop())
            if self._server is not None:
                loop.run(self._server.stop())
            loop.run(self._log.close())

    def _members(self) -> set[str]:
        head = loop.run(chain.load(self._log))
        self._control = head.index
        if head.state is None:
            self._known = set(self.config.targets)
        else:
            self._known = set(head.control(self.config.map).members)
        return self._known

    def _deal(self) -> Plan:
        members = self._members()
        if not members:
            raise UserError("no target is given: say --target NAME=ADDRESS, or add members to the log")
        room = self._room(self.config.groups)
        groups = count_groups(len(members), room, self.config.groups)
        if groups > room:
            raise UserError(
                f"{groups} groups need {groups} slots at once, and Spark has {room}: lower groups, or give the "
                f"master more cores (for example local[{groups}]); the rest would never be played"
            )
        return deal(members, groups)

    def _room(self, wanted: int) -> int:
        """The slots; a cluster's executors may take a while to register."""
        deadline = time.monotonic() + REGISTER_SECONDS
        while slots(self.spark) < wanted and not self._fixed_slots() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return slots(self.spark)

    def _fixed_slots(self) -> bool:
        return str(self.spark.sparkContext.master).startswith("local[")

    def _task(self, number: int) -> GroupTask:
        config = self.config
        return GroupTask(
            number=number,
            plan=self.plan,
            log=self.log_address,
            targets=dict(config.targets),
            driver=self._driver,
            token=self._token,
            job=self._job,
            name=config.name,
            map=config.map,
            limits=config.limits,
            security=config.security,
            trims=config.trims,
            tick_ms=config.tick_ms,
            drain_ms_max=config.drain_ms_max,
            application=self._application,
        )

    def _run(self) -> None:
        """Submit the job, again and again, until it is told to stop or a newer application has taken over."""
        attempt = 0
        while not self._stopping.is_set():
            self._again, self._lost = False, ""
            self._job = f"play-{uuid.uuid4().hex[:8]}"
            self.overview.begin(self._job)
            watch = threading.Thread(target=self._watch, args=(self._job,), daemon=True)
            watch.start()
            started = time.monotonic()
            try:
                ends = self._submit()
                if self._again:
                    self.plan = self._deal()
            except Exception as error:  # noqa: BLE001 - whatever Spark says, the job is over and starts again.
                if self._stopping.is_set():
                    break
                attempt = 0 if time.monotonic() - started > 60 else attempt + 1
                self.overview.note(f"the job ended and starts again: {_first_line(error)}")
                self._stopping.wait(RESTART_SECONDS[min(attempt, len(RESTART_SECONDS) - 1)])
                continue
            for end in ends:
                if end.startswith(STEPPED_DOWN):
                    self._decide(end)
        self.ended = self.ended or "stopped"

    def _submit(self) -> list[str]:
        context = self.spark.sparkContext
        context.setJobGroup(self._job, "logplayer play", interruptOnCancel=True)
        tasks = [self._task(number) for number in range(self.plan.groups)]
        return list(context.parallelize(tasks, len(tasks)).map(play_group).collect())

    def _watch(self, job: str) -> None:
        """While the job runs: members that come and go, and trimming."""
        while self._job == job and not self._stopping.wait(LOOK_SECONDS):
            with contextlib.suppress(LogPlayerError, OSError):  # The log is away; the players say so.
                if self._lost:
                    self._decide(self._lost)
                if loop.run(self._log.info()).control != self._control:
                    members = self._members()
                    groups = count_groups(len(members), slots(self.spark), self.config.groups)
                    if members and (self.plan.uneven(members) or groups != self.plan.groups):
                        self._again = True  # The heartbeats tell the groups to drain; then they are dealt out anew.
                if self.config.trims and self.plan.groups > 1:
                    loop.run(trim_behind(self._log, self.overview.indexes(), self._known, self.config.map))

    def _decide(self, why: str) -> None:
        """A group stepped down. If a later application has it, this one ends; else it takes the group back.

        Without an order among applications two of them could each take one group from the other, and both end.
        """
        self._lost = ""
        try:
            rival = loop.run(application_of(self._log, why))
        except (LogPlayerError, OSError):
            self._lost = why  # The log is away: look again.
            return
        if 0 < rival <= self._application:
            self._again = True
        else:
            self.ended = why
            self._stopping.set()

    def _heard(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """A task's heartbeat; on the background loop."""
        if question.get("do") != "beat":
            raise UserError(f"unknown question {question.get('do')!r}")
        if question.get("job") != self._job:
            return {"stop": True}
        number = int(question["group"])
        self.overview.heard(number, question)
        with self._lock:
            retry = sorted(self._retries.pop(number, ()))
        ended = str(question.get("ended", ""))
        if ended.startswith(STEPPED_DOWN):
            self._lost = ended
        return {"stop": self._stopping.is_set() or self._again, "retry": retry}


def play_group(task: GroupTask) -> str:
    """In a task: play one group until told to stop."""
    return loop.run(GroupPlayer(task).run())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def play_resident(merged: Any, *, master: str, status: str, as_json: bool) -> None:
    """``logplayer play`` on Spark: until Ctrl-C or SIGTERM, which drain and end."""
    session = make_session("logplayer play", master or "local[*]")
    file = merged.file
    resident = Resident(
        session,
        ResidentConfig(
            log=merged.log,
            targets=merged.targets,
            map=merged.map,
            groups=file.groups,
            name=file.group or "spark",
            limits=file.limits,
            security=merged.security,
            trims=file.trims,
            tick_ms=file.tick_ms,
            drain_ms_max=file.drain_ms_max,
        ),
    )
    server = StatusServer(resident.answer, merged.security)
    try:
        resident.start()
        address = loop.run(server.start(status))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: resident.request_stop())
        facts = {"log": resident.log_address, "groups": resident.plan.groups, "status": address}
        click.echo(_line(as_json, "playing", facts))
        while not resident.wait(0.2):
            pass
        how = resident.stop()
        loop.run(server.stop())
        click.echo(_line(as_json, "ended", {"how": how}))
    finally:
        session.stop()
    if how.startswith(STEPPED_DOWN):
        raise SystemExit(3)


def _line(as_json: bool, what: str, facts: Mapping[str, object]) -> str:
    if as_json:
        return json.dumps({"event": what, **facts})
    return f"{what}: " + ", ".join(f"{key} {value}" for key, value in facts.items())

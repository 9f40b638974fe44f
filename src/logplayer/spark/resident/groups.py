"""Which player plays to which target: groups of targets, and the player of one group as it runs in a Spark task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zlib import crc32

from logplayer.admin.http_client import ask
from logplayer.allocator import keep_freed_memory
from logplayer.config import Config
from logplayer.errors import LogPlayerError
from logplayer.log import control_chain as chain
from logplayer.log.open import LogPlace, open_log
from logplayer.log.protocol import Log
from logplayer.player.ended import STOPPED, Ended
from logplayer.player.shell import Shell
from logplayer.player.start import ask_targets
from logplayer.spark import event_loop
from logplayer.spark.resident.counts import Counted, as_json
from logplayer.spark.resident.driver_port import task_side
from logplayer.spark.resident.told import Telling
from logplayer.wire.security import Security

BEAT_SECONDS = 0.25
STANDBY_BEAT_SECONDS = 0.1  # The answer that makes it play is part of every failover.
TARGETS_PER_GROUP = 10  # One process feeds so many with ease; every group reads the whole log.


@dataclass(frozen=True)
class GroupPlan:
    """The groups: each known target has one, and a target that joins later gets one by its name."""

    groups: int
    seats: Mapping[str, int] = field(default_factory=dict)

    def group_of(self, target: str) -> int:
        return self.seats.get(target, crc32(target.encode()) % self.groups)

    def uneven(self, targets: Collection[str]) -> bool:
        """Whether some group would have two targets more than another, which dealing out again would cure."""
        counts = [0] * self.groups
        for target in targets:
            counts[self.group_of(target)] += 1
        return max(counts) - min(counts) > 1


def deal(targets: Collection[str], groups: int) -> GroupPlan:
    """Targets dealt out evenly, in the order of their names."""
    return GroupPlan(groups, {target: nth % groups for nth, target in enumerate(sorted(targets))})


def count_groups(targets: int, slots: int, wanted: int = 0) -> int:
    """How many groups: as configured, or as many as the targets are worth and the slots allow."""
    return wanted or max(1, min(slots, -(-targets // TARGETS_PER_GROUP)))


@dataclass(frozen=True)
class GroupTask:
    """All that a task needs to play one group; it travels to the executor."""

    number: int
    plan: GroupPlan
    config: Config
    log: LogPlace  # Where this task finds the log: the driver may serve it.
    driver: str  # Where the driver hears heartbeats.
    token: str
    job: str  # A task of another job than the driver's newest is stopped.
    application: int = 0  # The index of the application's own record: a later one wins.
    standby: bool = False  # Wait, connected, until the driver's answer has the application's number.
    alone_seconds: float = 15.0  # A player that cannot reach its driver for so long drains: nobody wants it any more.

    @property
    def group(self) -> str:
        return f"{self.config.group}/{self.number}"

    @property
    def heartbeat_security(self) -> Security:
        return task_side(self.config.security, self.driver, self.token)

    def player_config(self, application: int) -> Config:
        """The configuration of this group's player, made in the process that plays it."""
        return replace(
            self.config,
            group=self.group,
            owns=None if self.plan.groups == 1 else lambda target: self.plan.group_of(target) == self.number,
            player=worker_name(),
            application=application,
            trims=self.config.trims and self.plan.groups == 1,
            take_over=True,  # Whether a player may be replaced was decided when the application registered.
        )


def worker_name() -> str:
    """Which process plays: what an operator sees."""
    return f"spark {socket.gethostname()}:{os.getpid()}"


class GroupPlayer:
    """The player of one group, with its heartbeat."""

    def __init__(self, task: GroupTask) -> None:
        self.task = task
        self.shell: Shell | None = None
        self._heard = time.monotonic()
        self._stopped = False
        self._held: set[str] = set()  # What the driver had us suspend.
        self._telling = Telling()
        self._name = uuid.uuid4().hex[:12]  # Of these counts: another player of the group counts from zero on.

    async def run(self) -> Ended:
        """Play until the driver says stop, or cannot be reached, or a newer player has taken over; returns which."""
        log = await open_log(*self.task.log)
        try:
            application = await self._stand_by(log) if self.task.standby else self.task.application
            if application is None:
                return STOPPED
            self.shell = Shell(log, self.task.player_config(application))
            playing = asyncio.ensure_future(self.shell.run())
            try:
                while not playing.done():
                    await self._beat()
                    await asyncio.wait({playing}, timeout=BEAT_SECONDS)
                ended = await playing
            finally:
                playing.cancel()
            await self._tell_end(ended)
            return ended
        finally:
            await log.close()

    async def _stand_by(self, log: Log) -> int | None:
        """Wait for the application's number, with everything loaded and tried; None if the driver wants no player."""
        with contextlib.suppress(LogPlayerError, OSError):  # Only to be warm: what is wrong shows when it plays.
            control = (await chain.load(log)).control(self.task.config.map)
            members = {name: member.address for name, member in control.members.items()}
            await ask_targets(members | dict(self.task.config.targets), self.task.config.security)
        while not self._stopped:
            answer = await self._beat()
            if answer.get("application"):
                return int(answer["application"])
            await asyncio.sleep(STANDBY_BEAT_SECONDS)
        return None

    def status(self) -> dict[str, Any] | None:
        return self.shell.status().as_json() if self.shell is not None and self.shell.running else None

    def _counts(self) -> dict[str, Any] | None:
        return as_json(Counted(self._name, self.shell.observed.counts)) if self.shell is not None else None

    def stop(self) -> None:
        self._stopped = True
        if self.shell is not None:
            self.shell.request_stop()

    async def _tell_end(self, ended: Ended) -> None:
        """The driver must hear it: a group that has ended is played by nobody while the others go on."""
        for _ in range(10):
            with contextlib.suppress(LogPlayerError):
                await self._tell({"ended": ended.as_json()})
                return
            await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self) -> Mapping[str, Any]:
        try:
            answer = await self._tell({"status": self.status()})
        except LogPlayerError:
            if time.monotonic() - self._heard > self.task.alone_seconds:
                self.stop()
            return {}
        self._heard = time.monotonic()
        self._obey(answer)
        return answer

    def _obey(self, answer: Mapping[str, Any]) -> None:
        """An answer names all that is to be suspended, so one that got lost does no harm."""
        if answer.get("stop"):
            self.stop()
        if self.shell is None or not self.shell.running:
            return  # It tries every target when it has taken over.
        wanted = set(answer.get("hold", self._held))
        for target in sorted(self._held - wanted) + list(answer.get("retry", ())):
            self._held.discard(target)
            with contextlib.suppress(LogPlayerError):  # It left the group meanwhile.
                self.shell.retry(target)
        for target in sorted(wanted - self._held):
            with contextlib.suppress(LogPlayerError):  # It is not a member yet: the next answer says it again.
                self.shell.hold(target)
                self._held.add(target)

    async def _tell(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        task = self.task
        beat = {"job": task.job, "group": task.number, "worker": worker_name(), "counts": self._counts(), **facts}
        if self.shell is not None:
            beat["timeline"] = self._telling.next(self.shell.observed.timeline)
        answer: Mapping[str, Any] = await ask(task.driver, "/beat", beat, task.heartbeat_security)
        self._telling.heard()
        return answer


def play_group(task: GroupTask) -> Ended:
    """In a task: play one group until the driver stops it."""
    keep_freed_memory()
    return event_loop.run(GroupPlayer(task).run())

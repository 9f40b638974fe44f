"""The process of the player, and of the bare streams in its place."""

from __future__ import annotations

import asyncio
import time
from array import array
from contextlib import aclosing
from typing import Any

from bench.actor import ActorFailed, usage
from bench.bare import SENDERS, SHARED, Sender, pieces
from bench.contest import Workload
from bench.producer import GROUP, number_of
from logplayer.config import Config
from logplayer.core.entry import HashMap
from logplayer.log.open import open_log
from logplayer.log.protocol import Log, Record
from logplayer.player.ended import Ended
from logplayer.player.shell import Shell

OPEN_SECONDS = 60.0
QUEUED_BYTES_MAX = 8 << 20  # What the bare streams may hold per target, as the player does.


class Player:
    """An actor with the product's own player: see ``bench.actor``."""

    def __init__(self) -> None:
        self._log: Log | None = None
        self._shell: Shell | None = None
        self._task: asyncio.Task[Ended] | None = None
        self._stamps: array[int] = array("q")

    async def play(
        self, log: str, targets: dict[str, str], group: str = "", owned: tuple[str, ...] = (), wait: bool = True
    ) -> dict[str, float]:
        """Start a player; returns once every target is LIVE (or, without ``wait``, once it plays): the seconds."""
        began = time.monotonic()
        await self.close()
        self._log = await open_log(log)
        owns = (lambda name: name in owned) if owned else None
        config = Config(targets=targets, map=HashMap(tuple(targets)), group=group, owns=owns)
        self._shell = Shell(self._log, config)
        self._shell.on_dispatch = self._note
        self._task = asyncio.create_task(self._shell.run())
        async with asyncio.timeout(OPEN_SECONDS):
            while not self._playing().running or (wait and set(self.states().values()) != {"LIVE"}):
                await asyncio.sleep(0.005)
        return {"seconds": time.monotonic() - began}

    def _note(self, records: list[Record]) -> None:
        at = time.monotonic_ns()
        for record in records:
            self._stamps.extend((record.index, at))

    def states(self) -> dict[str, str]:
        """The state of each target; empty while the player starts."""
        shell = self._playing()
        return {target.target: target.state for target in shell.status().targets} if shell.running else {}

    def positions(self) -> dict[str, int]:
        """What each target has acknowledged."""
        shell = self._playing()
        return {queue.name: queue.acked for queue in shell.core.queues.values()} if shell.running else {}

    def dispatched(self) -> array[int]:
        """Index and time of everything that was dispatched since the last time."""
        taken, self._stamps = self._stamps, array("q")
        return taken

    async def reach(self, index: int, seconds: float = 200.0) -> int:
        """When every target had acknowledged ``index``."""
        self._playing().on_dispatch = None
        async with asyncio.timeout(seconds):
            while not (found := self.positions()) or min(found.values()) < index:
                await asyncio.sleep(0.002)
        return time.monotonic_ns()

    async def notice(self, target: str, seconds: float = 30.0) -> int:
        """When a target that was LIVE is LIVE no more."""
        async with asyncio.timeout(seconds):
            while self.states().get(target) == "LIVE":
                await asyncio.sleep(0.001)
        return time.monotonic_ns()

    async def settle(self, seconds: float = 60.0) -> None:
        """Wait until every target is LIVE."""
        async with asyncio.timeout(seconds):
            while set(self.states().values()) != {"LIVE"}:
                await asyncio.sleep(0.01)

    async def caught_up(self, target: str, seconds: float = 120.0) -> tuple[int, int]:
        """When a target had acknowledged all that was dispatched by the time it became LIVE, and up to which index."""
        await self.settle(seconds)
        index = self._playing().core.current
        async with asyncio.timeout(seconds):
            while self.positions()[target] < index:
                await asyncio.sleep(0.001)
        return time.monotonic_ns(), index

    def usage(self) -> dict[str, float]:
        return usage()

    def _playing(self) -> Shell:
        assert self._shell is not None
        assert self._task is not None
        if self._task.done():
            raise ActorFailed(f"the player ended: {self._task.result()}")
        return self._shell

    async def close(self) -> None:
        if self._shell is not None and self._task is not None:
            self._shell.request_stop()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._log is not None:
            await self._log.close()
        self._shell = self._task = self._log = None
        self._stamps = array("q")


class BareStreams:
    """An actor in the player's place: what the log's tail shows goes out at once, one stream per target."""

    def __init__(self) -> None:
        self._log: Log | None = None
        self._task: asyncio.Task[None] | None = None
        self._senders: list[Sender] = []
        self._work: dict[int, list[tuple[int, bytes]]] = {}
        self._stamps: array[int] = array("q")
        self._newest: dict[int, int] = {}  # The last transaction that each target must answer.

    async def open(self, log: str, scheme: str, port: int, workload: Workload) -> None:
        """Connect, and make everything that will be sent."""
        await self.close()
        self._log = await open_log(log)
        self._work = {number: list(pieces(workload, number).items()) for number in range(1, workload.count + 1)}
        self._newest = {target: number for number, parts in self._work.items() for target, _ in parts}
        for _ in range(workload.targets):
            if scheme != SHARED or not self._senders:
                sender: Sender = SENDERS[scheme]()
                await sender.open(port)
            self._senders.append(sender)

    async def play(self) -> None:
        """Follow the log."""
        assert self._log is not None
        self._task = asyncio.create_task(self._follow(self._log))

    async def _follow(self, log: Log) -> None:
        async with aclosing(log.read(1)) as batches:  # type: ignore[type-var]
            async for records in batches:
                self._dispatch(records)
                while max(sender.queued for sender in self._senders) > QUEUED_BYTES_MAX:
                    await asyncio.sleep(0)

    def _dispatch(self, records: list[Record]) -> None:
        at = time.monotonic_ns()
        touched: set[int] = set()
        for record in records:
            number = number_of(record.payload)
            self._stamps.extend((number, at))
            for target, data in self._work[number]:
                self._senders[target].send(data)
                touched.add(target)
        for target in touched:
            self._senders[target].flush()

    async def from_memory(self) -> None:
        """Send everything without any log."""

        async def go() -> None:
            for number, parts in self._work.items():
                for target, data in parts:
                    self._senders[target].send(data)
                if number % GROUP and number < len(self._work):
                    continue
                for sender in self._senders:
                    sender.flush()
                while max(sender.queued for sender in self._senders) > QUEUED_BYTES_MAX:
                    await asyncio.sleep(0)

        self._task = asyncio.create_task(go())

    def dispatched(self) -> array[int]:
        """Number and time of everything that was dispatched since the last time."""
        taken, self._stamps = self._stamps, array("q")
        return taken

    async def reach(self, seconds: float = 200.0) -> int:
        """When every target had answered the last message."""
        async with asyncio.timeout(seconds):
            while any(self._senders[target].answered < number for target, number in self._newest.items()):
                if self._task is not None and self._task.done():
                    self._task.result()
                await asyncio.sleep(0.002)
        return time.monotonic_ns()

    def usage(self) -> dict[str, float]:
        return usage()

    async def close(self) -> None:
        tasks: list[Any] = [self._task] if self._task is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sender in self._senders:
            await sender.close()
        if self._log is not None:
            await self._log.close()
        self._log = self._task = None
        self._senders, self._work, self._newest = [], {}, {}
        self._stamps = array("q")

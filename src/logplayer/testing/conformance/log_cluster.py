"""What the harnesses of replicated logs share: three real servers that are killed, damaged and started again."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import Sequence
from typing import Any

from logplayer.log.local_cluster import NODES, LocalCluster
from logplayer.log.protocol import Log
from logplayer.testing.conformance.log_check import AckedAppend, payload
from logplayer.testing.conformance.log_harness import flip_in_files, produce
from logplayer.testing.conformance.logs import Harness


class ClusterHarness(Harness):
    """One log on a running cluster. Each round of kills takes the leader or all nodes, in turn."""

    stored = ""
    """Where the entries are in a node's folder: a pattern of files."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._kills = 0

    @property
    def address(self) -> str:
        return self.cluster.address(self.name)

    async def open(self) -> Log:
        log: Log = await self.connect()
        return log

    async def connect(self, hosts: Sequence[str] = ()) -> Any:
        """The log, as the class that it is; through these servers, or through all."""
        raise NotImplementedError

    async def blocks(self, log: Any) -> int:
        """How many blocks its sequence map has."""
        raise NotImplementedError

    async def leader(self, log: Any) -> int:
        """The node that leads, counted from 0."""
        raise NotImplementedError

    async def crash_under_load(self, newest: dict[str, int]) -> list[AckedAppend]:
        log = await self.connect()
        acked: list[AckedAppend] = []
        tasks = [asyncio.create_task(produce(log, f"p{i}", newest.get(f"p{i}", 0), acked)) for i in range(4)]
        await wait_for_acks(acked, 100)
        self._kills += 1
        victims = [await self.leader(log)] if self._kills % 2 else list(range(NODES))
        for node in victims:
            await asyncio.to_thread(self.cluster.kill, node)
        before = len(acked)
        await asyncio.to_thread(self.cluster.up)
        await wait_for_acks(acked, before + 20)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await log.close()
        return acked

    async def flip_bit(self, index: int) -> bool:
        """On one replica, while it is down; the other two are right, so the entry must be served all the same."""
        log = await self.connect()
        node = (await self.leader(log) + 1) % NODES
        await log.close()
        await asyncio.to_thread(self.cluster.kill, node, signal.SIGTERM)  # All that it has is in its files then.
        self.flip(node, index)
        await asyncio.to_thread(self.cluster.up)
        return True

    def flip(self, node: int, index: int) -> None:
        """Flip a bit of the kit's entry ``index`` (its sequence too) in the files of one replica."""
        paths = sorted(self.cluster.folder(node).rglob(self.stored))
        assert flip_in_files(paths, payload("p", index, 2000)[900:1000]), "the stored bytes were not found"


async def wait_for_acks(acked: list[AckedAppend], count: int) -> None:
    """Until so many were acknowledged; a minute without any is a failure."""
    for _ in range(6000):
        if len(acked) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"only {len(acked)} of {count} appends were acknowledged in a minute")


class TimedAcks(list[AckedAppend]):
    """Acknowledgements, and when the newest came."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def append(self, ack: AckedAppend) -> None:
        super().append(ack)
        self.times.append(time.monotonic())

    async def more(self, count: int) -> None:
        """Wait for so many more; two minutes without any are a failure."""
        wanted, seen, since = len(self) + count, len(self), time.monotonic()
        while len(self) < wanted:
            await asyncio.sleep(0.01)
            if len(self) > seen:
                seen, since = len(self), time.monotonic()
            if time.monotonic() - since > 120:
                raise AssertionError(f"no append was acknowledged for two minutes, after {len(self)}")

    def longest_gap(self, since: float) -> float:
        """Between two acknowledgements, the first of which is the last one before ``since``."""
        first = max(0, next((n for n, at in enumerate(self.times) if at >= since), len(self.times)) - 1)
        times = self.times[first:]
        return max(b - a for a, b in itertools.pairwise(times))

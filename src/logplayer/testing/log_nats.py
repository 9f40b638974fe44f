"""The harness of the log kit for the replicated log, on three real servers."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from logplayer.log.cluster import NODES, Cluster
from logplayer.log.nats_log import NatsLog
from logplayer.log.protocol import Log
from logplayer.testing.log_check import Acked, payload
from logplayer.testing.log_harness import flip_in_files, produce
from logplayer.testing.log_kit import Harness


def hosts(cluster: Cluster) -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{cluster.port + node}" for node in range(NODES))


async def leader_of(log: NatsLog) -> int:
    """The node that leads the log's stream, counted from 0."""
    while True:
        info = await log.link.info()
        if info.cluster is not None and info.cluster.leader:
            return int(info.cluster.leader.removeprefix("n")) - 1
        await asyncio.sleep(0.1)  # An election is under way.


class NatsHarness(Harness):
    """One log on a running cluster. Each round of kills takes the leader or all nodes, in turn."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self._kills = 0
        self._max_bytes = -1

    @property
    def address(self) -> str:
        return self.cluster.address(self.name)

    async def open(self) -> Log:
        return await NatsLog.open(hosts(self.cluster), self.name)

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.cluster.up)
        with contextlib.suppress(Exception):
            log = await NatsLog.open(hosts(self.cluster), self.name)
            for stream in (log.link.stream, log.link.map_stream):
                await log.link.js.delete_stream(stream)
            await log.close()

    async def crash_under_load(self, newest: dict[str, int]) -> list[Acked]:
        log = await NatsLog.open(hosts(self.cluster), self.name)
        acked: list[Acked] = []
        tasks = [asyncio.create_task(produce(log, f"p{i}", newest.get(f"p{i}", 0), acked)) for i in range(4)]
        await wait_for_acks(acked, 100)
        self._kills += 1
        victims = [await leader_of(log)] if self._kills % 2 else list(range(NODES))
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
        log = await NatsLog.open(hosts(self.cluster), self.name)
        node = (await leader_of(log) + 1) % NODES
        await log.close()
        await asyncio.to_thread(self.cluster.kill, node)
        flip(self.cluster.folder(node), index)
        await asyncio.to_thread(self.cluster.up)
        return True

    async def fill_disk(self) -> None:
        """The stream's own limit: a server whose disk is really full turns its storage off until it is restarted."""
        await self._limit(extra=100_000)

    async def free_disk(self) -> None:
        await self._limit(extra=None)

    async def _limit(self, extra: int | None) -> None:
        log = await NatsLog.open(hosts(self.cluster), self.name)
        info = await log.link.info()
        config: Any = info.config
        config.max_bytes = -1 if extra is None else info.state.bytes + extra
        await log.link.js.update_stream(config)
        await log.close()


def flip(folder: Path, index: int) -> None:
    """Flip a bit of the check's entry ``index`` (its sequence too) in the files of one replica."""
    flips = flip_in_files(sorted(folder.rglob("*.blk")), payload("p", index, 2000)[900:1000])
    assert flips, "the stored bytes were not found"


async def wait_for_acks(acked: list[Acked], count: int) -> None:
    """Until so many were acknowledged; a minute without any is a failure."""
    for _ in range(6000):
        if len(acked) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"only {len(acked)} of {count} appends were acknowledged in a minute")

"""The harness of the log kit for the replicated log on NATS, on three real servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from logplayer.log.nats.log import NatsLog
from logplayer.testing.conformance.log_cluster import ClusterHarness


async def leader_of(log: NatsLog) -> int:
    """The node that leads the log's stream, counted from 0."""
    while True:
        info = await log.link.info()
        if info.cluster is not None and info.cluster.leader:
            return int(info.cluster.leader.removeprefix("n")) - 1
        await asyncio.sleep(0.1)  # An election is under way.


class NatsHarness(ClusterHarness):
    """One log on a running NATS cluster."""

    stored = "*.blk"

    async def connect(self, hosts: Sequence[str] = ()) -> NatsLog:
        return await NatsLog.open(hosts or self.cluster.hosts, self.name)

    async def blocks(self, log: NatsLog) -> int:
        return int((await log.link.js.stream_info(log.link.map_stream)).state.messages)

    async def leader(self, log: NatsLog) -> int:
        return await leader_of(log)

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.cluster.up)
        with contextlib.suppress(Exception):
            log = await self.connect()
            for stream in (log.link.stream, log.link.map_stream):
                await log.link.js.delete_stream(stream)
            await log.close()

    async def fill_disk(self) -> None:
        """The stream's own limit: a server whose disk is really full turns its storage off until it is restarted."""
        await self._limit(extra=100_000)

    async def free_disk(self) -> None:
        await self._limit(extra=None)

    async def _limit(self, extra: int | None) -> None:
        log = await self.connect()
        info = await log.link.info()
        config: Any = info.config
        config.max_bytes = -1 if extra is None else info.state.bytes + extra
        await log.link.js.update_stream(config)
        await log.close()

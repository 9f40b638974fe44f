"""A log server that is alive and does not reach its log: its clients ask the next one, with what was not answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from logplayer.errors import LogUnavailable, SequenceGap
from logplayer.log.client import LogClient
from logplayer.log.etcd.api import EtcdAway
from logplayer.log.etcd.local_cluster import EtcdCluster
from logplayer.log.etcd.log import EtcdLog
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import Info, NewEntry
from logplayer.log.server import LogServer
from logplayer.testing.conformance.log_check import AckedAppend, LogChecker, entry
from logplayer.testing.conformance.log_cluster import wait_for_acks
from logplayer.testing.conformance.log_harness import produce
from logplayer.testing.conformance.logs import collect, fill, in_time


class CutOff:
    """A log that answers until it is cut off. Then it has every second call, and says of none that it has it."""

    def __init__(self, log: FileLog) -> None:
        self._log = log
        self.cut = False
        self.info_too = False
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        if name in ("append_groups", "read_frames"):
            raise AttributeError(name)
        return getattr(self._log, name)

    async def info(self) -> Info:
        if self.cut and self.info_too:
            raise LogUnavailable("the cluster is not reached")
        return await self._log.info()

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        if not self.cut:
            return await self._log.append(entries)
        self.calls += 1
        if self.calls % 2:
            with contextlib.suppress(SequenceGap):
                await self._log.append(entries)
        raise LogUnavailable("the cluster is not reached")


@contextlib.asynccontextmanager
async def served(*logs: Any) -> AsyncIterator[list[str]]:
    servers = [LogServer(log) for log in logs]
    try:
        yield [f"127.0.0.1:{await server.start()}" for server in servers]
    finally:
        for server in servers:
            await server.stop(0)


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[FileLog]:
    log = await FileLog.open(tmp_path / "log")
    yield log
    await log.close()


async def test_unanswered_appends_go_to_the_next_server_in_their_order(kept: FileLog) -> None:
    """One producer with a hundred calls under way, one of them in a call of its own, and one that shares the stream."""
    first = CutOff(kept)
    async with served(first, kept) as hosts:
        log = await LogClient.open(hosts)
        assert await fill(log, 3) == [1, 2, 3]
        first.cut = True
        lengths = {50: 2_000_000}
        calls = [log.append([entry("p", s, lengths.get(s, 100))]) for s in range(4, 104)]
        others = [log.append([entry("q", s)]) for s in range(1, 21)]
        answers = await in_time(asyncio.gather(*calls, *others))
        assert first.calls > 0
        found = await collect(kept, 1, 123)
        assert [r.sequence for r in found if r.producer == "p"] == list(range(1, 104))
        assert [r.sequence for r in found if r.producer == "q"] == list(range(1, 21))
        assert [[r.index] for r in found if r.producer == "p"][3:] == answers[:100]
        assert log._servers.current.where == hosts[1]
        await log.close()


async def test_a_stream_that_a_cut_off_server_refuses_is_opened_at_the_next(kept: FileLog) -> None:
    """A server that has to ask its log which one it is refuses the stream itself."""
    first = CutOff(kept)
    first.info_too = True
    async with served(first, kept) as hosts:
        log = await LogClient.open(hosts)
        first.cut = True
        assert await in_time(asyncio.gather(*(log.append([entry("p", s)]) for s in (1, 2, 3)))) == [[1], [2], [3]]
        assert first.calls == 0
        await log.close()


async def test_callers_are_told_when_no_server_reaches_the_log(kept: FileLog) -> None:
    """After their patience; and at once by the only server that there is."""
    logs = [CutOff(kept), CutOff(kept)]
    async with served(*logs) as hosts:
        both = await LogClient.open(hosts, patience_seconds=0.5)
        only = await LogClient.open(hosts[0], patience_seconds=60)
        for log in logs:
            log.cut = True
        for client in (both, only):
            with pytest.raises(LogUnavailable, match="the cluster is not reached"):
                await in_time(client.append([entry("p", 1)]))
        assert logs[1].calls > 0
        await both.close()
        await only.close()


async def test_a_server_whose_etcd_cannot_be_reached_is_left(etcd_cluster: EtcdCluster, log_name: str) -> None:
    """Under producers without a pause; it reaches its cluster again, and what it still had does no harm."""
    cut_off = await in_time(EtcdLog.open(etcd_cluster.hosts, log_name, patience_seconds=1.0))
    healthy = await in_time(EtcdLog.open(etcd_cluster.hosts, log_name))
    honest, reached = cut_off.link.once, asyncio.Event()
    reached.set()

    async def once(method, request, seconds, member=None):  # type: ignore[no-untyped-def]
        if not reached.is_set():
            await asyncio.sleep(0.05)
            raise EtcdAway("no answer")
        return await honest(method, request, seconds, member)

    cut_off.link.once = once  # type: ignore[method-assign]
    async with served(cut_off, healthy) as hosts:
        log = await LogClient.open(hosts, patience_seconds=60)
        acked: list[AckedAppend] = []
        tasks = [asyncio.create_task(produce(log, f"p{i}", 0, acked)) for i in range(4)]
        await wait_for_acks(acked, 50)
        reached.clear()
        await wait_for_acks(acked, len(acked) + 50)
        assert log._servers.current.where == hosts[1]
        reached.set()
        await wait_for_acks(acked, len(acked) + 50)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
        watcher = LogChecker()
        watcher.acknowledge(acked)
        await in_time(watcher.catch_up(healthy))
        await in_time(watcher.prove_all(healthy))
        await log.close()
    for each in (cut_off, healthy):
        await each.close()

"""The first of two log servers on one replicated log freezes under load, as a machine that hangs or vanishes does."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from logplayer.log.client import LogClient
from logplayer.testing.conformance.log_check import AckedAppend, LogChecker
from logplayer.testing.conformance.log_cluster import ClusterHarness, wait_for_acks
from logplayer.testing.conformance.log_harness import ServerProcess, produce
from logplayer.testing.conformance.logs import in_time


async def ask(log: LogClient, answers: list[int]) -> None:
    """Questions without a pause; what a producer has never gets less."""
    while True:
        newest = [(await log.newest(f"p{nth}")).sequence for nth in range(4)]
        answers.append(sum(newest))
        assert answers == sorted(answers)
        assert (await log.info()).last >= answers[-1]


async def follow(log: LogClient, watcher: LogChecker) -> None:
    async for records in log.read(1):
        watcher.see(records)


async def more(answers: list[int], watcher: LogChecker, acked: list[AckedAppend]) -> None:
    """Until everything has gone on: appends, questions, the reader."""
    count, index = len(answers), watcher.index
    await wait_for_acks(acked, len(acked) + 40)
    for _ in range(6000):
        if len(answers) > count + 2 and watcher.index > index:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{len(answers) - count} answers and {watcher.index - index} entries in a minute")


async def test_a_frozen_server_is_left_by_everybody(harness: ClusterHarness) -> None:
    """Twice, each time the one in use; it thaws, and what it had under way is in the log once, or is refused."""
    servers = [ServerProcess(harness.address), ServerProcess(harness.address)]
    for server in servers:
        await server.start()
    log = await in_time(LogClient.open([server.where for server in servers], patience_seconds=60))
    acked: list[AckedAppend] = []
    watcher, answers = LogChecker(), list[int]()
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(produce(log, f"p{i}", 0, acked)) for i in range(4)]
    tasks += [asyncio.create_task(ask(log, answers)), asyncio.create_task(follow(log, watcher))]
    await more(answers, watcher, acked)
    for _ in range(2):
        [frozen] = [server for server in servers if server.where == log._servers.current.where]
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            await more(answers, watcher, acked)
            assert log._servers.current.where != frozen.where
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        await more(answers, watcher, acked)
    for task in tasks[:5]:
        task.cancel()
    ended = await asyncio.gather(*tasks[:5], return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended), ended
    last = (await in_time(log.info())).last
    while watcher.index < last and not tasks[5].done():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    tasks[5].cancel()
    watcher.acknowledge(acked)
    await in_time(watcher.catch_up(log))
    await in_time(watcher.prove_all(log))
    await log.close()
    for server in servers:
        await server.stop()

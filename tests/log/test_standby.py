"""Two log servers on one replicated log: the second takes over when the first dies, and entries are in the log once."""

from __future__ import annotations

import asyncio
import signal

import pytest

from logplayer.errors import AddressError, LogUnavailable
from logplayer.log import server_pool
from logplayer.log.client import LogClient
from logplayer.log.open import open_log, parse
from logplayer.testing.conformance.log_check import AckedAppend, LogChecker, entry
from logplayer.testing.conformance.log_cluster import ClusterHarness, wait_for_acks
from logplayer.testing.conformance.log_harness import ServerProcess, produce
from logplayer.testing.conformance.logs import fill, in_time
from tests.log.log_support import free_port


def test_addresses_of_two_servers() -> None:
    assert parse("grpc://a:7100,b:7100").hosts == ("a:7100", "b:7100")
    for wrong in ("grpc://a:7100,", "grpc://a:7100,b"):
        with pytest.raises(AddressError, match="needs host:port"):
            parse(wrong)


async def test_nobody_is_there() -> None:
    hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(2))
    with pytest.raises(LogUnavailable, match="is it running"):
        await in_time(open_log(f"grpc://{hosts}", open_seconds=0.5))


async def test_the_second_server_takes_over(harness: ClusterHarness) -> None:
    """Appends in flight are sent again and stand once, readers go on, and so do decisions about what is trimmed."""
    servers = [ServerProcess(harness.address), ServerProcess(harness.address)]
    for server in servers:
        await server.start()
    log = await in_time(open_log("grpc://" + ",".join(server.where for server in servers)))
    acked: list[AckedAppend] = []
    watcher = LogChecker()

    async def follow() -> None:
        async for records in log.read(1):
            watcher.see(records)

    tasks = [asyncio.create_task(produce(log, f"p{i}", 0, acked)) for i in range(4)]
    tasks.append(asyncio.create_task(follow()))
    for round_ in range(4):
        await wait_for_acks(acked, len(acked) + 40)
        await servers[round_ % 2].stop(signal.SIGKILL)
        await wait_for_acks(acked, len(acked) + 40)
        await servers[round_ % 2].start()
    for task in tasks[:4]:
        task.cancel()
    await asyncio.gather(*tasks[:4], return_exceptions=True)
    last = (await in_time(log.info())).last
    for _ in range(6000):
        if watcher.index >= last or tasks[4].done():
            break
        await asyncio.sleep(0.01)
    tasks[4].cancel()
    watcher.acknowledge(acked)
    await in_time(watcher.catch_up(log))
    await in_time(watcher.prove_all(log))
    await log.close()
    for server in servers:
        await server.stop()


async def test_a_client_goes_back_to_the_first_server(harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or two servers would write at the same time for ever. A hundred appends are under way when it moves."""
    monkeypatch.setattr(server_pool, "BACK_SECONDS", 0.1)
    servers = [ServerProcess(harness.address), ServerProcess(harness.address)]
    for server in servers:
        await server.start()
    log = await in_time(LogClient.open([server.where for server in servers]))
    assert await fill(log, 3) == [1, 2, 3]
    await servers[0].stop(signal.SIGKILL)
    assert await fill(log, 3, since=4) == [4, 5, 6]
    assert log._servers.current.where == servers[1].where
    await servers[0].start()
    sequence = 7
    for _ in range(600):
        calls = [asyncio.ensure_future(log.append([entry("p", s)])) for s in range(sequence, sequence + 100)]
        assert await in_time(asyncio.gather(*calls)) == [[s] for s in range(sequence, sequence + 100)]
        sequence += 100
        if log._servers.current.where == servers[0].where:
            break
    else:
        pytest.fail("the client stayed with the second server")
    await servers[1].stop(signal.SIGKILL)
    assert await fill(log, 1, since=sequence) == [sequence]
    await log.close()
    await servers[0].stop()

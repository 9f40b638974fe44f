"""What is particular to the replicated log: rivals, a leader that dies, lazy servers, the sequence map, damage."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logplayer.errors import CorruptEntry, LogUnavailable, UserError
from logplayer.log import nats_reader, nats_writer
from logplayer.log.cluster import MONITOR_OFFSET, NODES, Cluster, find_server, free_cluster_port
from logplayer.log.frame import encode
from logplayer.log.nats_link import Unsynced
from logplayer.log.nats_log import NatsLog
from logplayer.testing.log_check import Acked, Watcher, entry
from logplayer.testing.log_harness import produce
from logplayer.testing.log_kit import collect, fill, in_time
from logplayer.testing.log_nats import flip, hosts, leader_of, wait_for_acks


async def opened(cluster: Cluster, name: str) -> NatsLog:
    return await in_time(NatsLog.open(hosts(cluster), name))


async def test_rival_writers_of_the_same_entries(nats_cluster: Cluster, log_name: str) -> None:
    """Two writers that race with the very same sequences: each is in the log once, and both get that index."""
    logs = [await opened(nats_cluster, log_name), await opened(nats_cluster, log_name)]

    async def run(log: NatsLog, producer: str) -> list[int]:
        return [(await log.append([entry(producer, s)]))[0] for s in range(1, 31)]

    answers = await in_time(asyncio.gather(*(run(log, p) for p in ("a", "b") for log in logs)))
    assert answers[0] == answers[1]
    assert answers[2] == answers[3]
    watcher = Watcher()
    watcher.acknowledge(Acked(p, s + 1, i) for p, a in (("a", answers[0]), ("b", answers[2])) for s, i in enumerate(a))
    await watcher.catch_up(logs[0])
    assert watcher.count == 60
    for log in logs:
        await log.close()


async def test_rival_writers_of_different_entries(nats_cluster: Cluster, log_name: str) -> None:
    logs = [await opened(nats_cluster, log_name), await opened(nats_cluster, log_name)]
    watcher = Watcher()

    async def run(log: NatsLog, producer: str) -> None:
        for s in range(1, 41, 2):
            indexes = await log.append([entry(producer, s), entry(producer, s + 1)])
            watcher.acknowledge(Acked(producer, s + i, index) for i, index in enumerate(indexes))

    await in_time(asyncio.gather(run(logs[0], "a"), run(logs[1], "b")))
    await watcher.catch_up(logs[1])
    assert watcher.count == 80
    for log in logs:
        await log.close()


async def test_the_leader_dies_under_producers_and_readers(nats_cluster: Cluster, log_name: str) -> None:
    """The same instances go on: appends wait for the new leader, the tail resumes where it was."""
    log = await opened(nats_cluster, log_name)
    acked: list[Acked] = []
    watcher = Watcher()

    async def follow() -> None:
        async for records in log.read(1):
            watcher.see(records)

    tasks = [asyncio.create_task(produce(log, f"p{i}", 0, acked, 0.005)) for i in range(3)]
    tasks.append(asyncio.create_task(follow()))
    await wait_for_acks(acked, 50)
    await asyncio.to_thread(nats_cluster.kill, await leader_of(log))
    await wait_for_acks(acked, len(acked) + 50)
    for task in tasks[:3]:
        task.cancel()
    await asyncio.gather(*tasks[:3], return_exceptions=True)
    await asyncio.to_thread(nats_cluster.up)
    last = (await log.info()).last
    for _ in range(3000):
        if watcher.index >= last or tasks[3].done():
            break
        await asyncio.sleep(0.01)
    tasks[3].cancel()
    watcher.acknowledge(acked)
    await watcher.catch_up(log)
    await log.close()


async def test_old_answers_come_from_the_map(
    nats_cluster: Cluster, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several blocks, and after a trim of everything that they cover."""
    monkeypatch.setattr(nats_writer, "BLOCK_COUNT", 20)
    log = await opened(nats_cluster, log_name)
    indexes = {}
    for s in range(1, 51):
        for p in ("a", "b"):
            indexes[p, s] = (await log.append([entry(p, s)]))[0]
    await log.trim(indexes["b", 45])
    await log.close()
    log = await opened(nats_cluster, log_name)
    for s in range(1, 51, 7):
        for p in ("a", "b"):
            assert await in_time(log.append([entry(p, s)])) == [indexes[p, s]]
    state = await log.link.js.stream_info(log.link.map_stream)
    assert state.state.messages >= 4
    await log.close()


async def test_a_flipped_bit_on_the_leader(nats_cluster: Cluster, log_name: str) -> None:
    """The entry is served from another replica, by whichever server one asks."""
    log = await opened(nats_cluster, log_name)
    await fill(log, 20, size=2000)
    leader = await leader_of(log)
    await log.close()
    await asyncio.to_thread(nats_cluster.kill, leader)
    flip(nats_cluster.folder(leader), 12)
    await asyncio.to_thread(nats_cluster.up)
    for host in hosts(nats_cluster):
        log = await in_time(NatsLog.open([host, *hosts(nats_cluster)], log_name))
        assert [r.sequence for r in await collect(log, 1, 20)] == list(range(1, 21))
        await log.close()


async def test_damage_and_gaps_are_mended_from_another_replica(
    nats_cluster: Cluster, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that sends a damaged entry, leaves some out, and then falls silent before the end."""
    log = await opened(nats_cluster, log_name)
    await fill(log, 20)
    honest = nats_reader.Push.next

    async def damaged(push: nats_reader.Push, seconds: float) -> list[tuple[int, bytes]]:
        sent = await honest(push, 0.2)
        return [(i, body[:-9] + b"?" + body[-8:] if i == 5 else body) for i, body in sent if i not in (9, 10, 19, 20)]

    monkeypatch.setattr(nats_reader.Push, "next", damaged)
    assert [r.payload for r in await collect(log, 1, 20)] == [entry("p", s).payload for s in range(1, 21)]
    assert log.reader.mended == 5
    await log.close()


async def test_a_long_gap_is_pushed_again(
    nats_cluster: Cluster, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What got lost with a connection is not asked for entry by entry."""
    log = await opened(nats_cluster, log_name)
    await in_time(log.append([entry("p", s) for s in range(1, 101)]))
    honest, lost = nats_reader.Push.next, set(range(1, 61))

    async def lossy(push: nats_reader.Push, seconds: float) -> list[tuple[int, bytes]]:
        sent = [item for item in await honest(push, seconds) if item[0] not in lost]
        if sent:
            lost.clear()
        return sent

    monkeypatch.setattr(nats_reader.Push, "next", lossy)
    assert [r.sequence for r in await collect(log, 1, 100)] == list(range(1, 101))
    assert log.reader.mended < 6, "of 60"
    await log.close()


async def test_a_tail_goes_on_when_the_first_server_stays_dead(nats_cluster: Cluster, log_name: str) -> None:
    """What its silence swallowed is asked for from the others: a dead server must not be waited for again and again."""
    log = await opened(nats_cluster, log_name)
    await fill(log, 5)
    reader = log.read(1)
    assert len(await in_time(anext(reader))) == 5
    await asyncio.to_thread(nats_cluster.kill, 0)
    try:
        await in_time(log.append([entry("p", s) for s in range(6, 11)]))
        # As if the push that told of it had been on the dead server.
        async with asyncio.timeout(20):
            assert [(await log.reader._mend(index))[0].sequence for index in range(6, 11)] == [6, 7, 8, 9, 10]
            assert (await anext(reader))[0].sequence == 6
        assert log.reader._hosts[-1] == hosts(nats_cluster)[0], "the dead one is asked last"
    finally:
        await reader.aclose()  # type: ignore[attr-defined]
        await asyncio.to_thread(nats_cluster.up)
        await log.close()


async def test_an_entry_that_is_damaged_everywhere_is_named(nats_cluster: Cluster, log_name: str) -> None:
    log = await opened(nats_cluster, log_name)
    await fill(log, 5)
    body = bytearray(b"".join(encode(6, entry("p", 6), 1)))
    body[40] ^= 1
    await log.link.js.publish(log.link.data_subject, bytes(body))
    await log.link.js.publish(log.link.data_subject, b"".join(encode(7, entry("p", 7), 1)))
    assert len(await collect(log, 1, 5)) == 5
    with pytest.raises(CorruptEntry) as caught:
        await collect(log, 1, 7)
    assert caught.value.index == 6
    assert len(await collect(log, 7, 7)) == 1
    await log.close()


@contextlib.contextmanager
def single_server(folder: Path, *options: str) -> Iterator[int]:
    """One server with JetStream's default: it syncs every two minutes."""
    port = free_cluster_port(1)
    command = [find_server(), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
    if "monitor" in options:
        command += ["-m", str(port + MONITOR_OFFSET)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait()


async def test_a_server_that_syncs_lazily_is_refused(tmp_path: Path) -> None:
    with single_server(tmp_path, "monitor") as port, pytest.raises(Unsynced, match="sync_interval: always"):
        await in_time(NatsLog.open([f"127.0.0.1:{port}"], "x"))


async def test_a_server_without_monitor_is_said_to_be_unknown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        single_server(tmp_path) as port,
        caplog.at_level(logging.WARNING),
        pytest.raises(LogUnavailable, match="no cluster of 3"),
    ):
        await in_time(NatsLog.open([f"127.0.0.1:{port}"], "x"))
    assert "it is not known whether this server syncs" in caplog.text


async def test_cluster_up_refuses_a_lazy_configuration(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "c", free_cluster_port(1))
    cluster.up()
    cluster.down()
    config = cluster.folder(1) / "nats.conf"
    config.write_text(config.read_text().replace("sync_interval: always", 'sync_interval: "2m"'))
    with pytest.raises(UserError, match="server n2 syncs lazily"):
        cluster.up()
    assert all(cluster.pid(node) is None for node in range(NODES))


async def test_no_cluster() -> None:
    with pytest.raises(LogUnavailable, match="is the cluster up"):
        await in_time(NatsLog.open([f"127.0.0.1:{free_cluster_port(1)}"], "x"))

"""What only the replicated log has: several writers, a leader that dies, lazy servers, the sequence map, damage."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logplayer.errors import CorruptEntry, LogUnavailable, UserError
from logplayer.log.frame import encode
from logplayer.log.local_cluster import NODES
from logplayer.log.nats import local_cluster, reader
from logplayer.log.nats.link import Unsynced
from logplayer.log.nats.local_cluster import MONITOR_OFFSET, Cluster, find_server, free_cluster_port
from logplayer.log.nats.log import NatsLog
from logplayer.testing.conformance.log_check import entry
from logplayer.testing.conformance.logs import collect, fill, in_time


async def opened(cluster: Cluster, name: str) -> NatsLog:
    return await in_time(NatsLog.open(cluster.hosts, name))


async def test_damage_and_gaps_are_mended_from_another_replica(
    nats_cluster: Cluster, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that sends a damaged entry, leaves some out, and then falls silent before the end."""
    log = await opened(nats_cluster, log_name)
    await fill(log, 20)
    honest = reader.Push.next

    async def damaged(push: reader.Push, seconds: float) -> list[tuple[int, bytes]]:
        sent = await honest(push, 0.2)
        return [(i, body[:-9] + b"?" + body[-8:] if i == 5 else body) for i, body in sent if i not in (9, 10, 19, 20)]

    monkeypatch.setattr(reader.Push, "next", damaged)
    assert [r.payload for r in await collect(log, 1, 20)] == [entry("p", s).payload for s in range(1, 21)]
    assert log.reader.mended == 5
    await log.close()


async def test_a_long_gap_is_pushed_again(
    nats_cluster: Cluster, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What got lost with a connection is not asked for entry by entry."""
    log = await opened(nats_cluster, log_name)
    await in_time(log.append([entry("p", s) for s in range(1, 101)]))
    honest, lost = reader.Push.next, set(range(1, 61))

    async def lossy(push: reader.Push, seconds: float) -> list[tuple[int, bytes]]:
        sent = [item for item in await honest(push, seconds) if item[0] not in lost]
        if sent:
            lost.clear()
        return sent

    monkeypatch.setattr(reader.Push, "next", lossy)
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
        async with asyncio.timeout(120):
            assert [(await log.reader._mend(index))[0].sequence for index in range(6, 11)] == [6, 7, 8, 9, 10]
            assert (await anext(reader))[0].sequence == 6
        assert log.reader._hosts[-1] == nats_cluster.hosts[0], "the dead one is asked last"
    finally:
        await reader.aclose()  # type: ignore[attr-defined]
        await asyncio.to_thread(nats_cluster.up)
        await log.close()


async def test_an_entry_that_is_damaged_everywhere_is_named(nats_cluster: Cluster, log_name: str) -> None:
    log = await opened(nats_cluster, log_name)
    await fill(log, 5)
    body = bytearray(b"".join(encode(6, entry("p", 6), 1, bytes(8))))
    body[40] ^= 1
    await log.link.js.publish(log.link.data_subject, bytes(body))
    await log.link.js.publish(log.link.data_subject, b"".join(encode(7, entry("p", 7), 1, bytes(8))))
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
        pytest.raises(LogUnavailable, match="is not a cluster of 3"),
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


def test_a_server_that_has_not_said_whether_it_syncs_is_not_ready(nats_cluster: Cluster, monkeypatch: Any) -> None:
    """And it is asked for nothing else: one that is asked for varz too early never says there whether it syncs."""
    real, asked = local_cluster.monitor, []

    def still_starting(host: str, port: int, path: str) -> dict[str, Any] | None:
        if port != nats_cluster.port:
            return real(host, port, path)
        asked.append(path)
        return {"disabled": True, "config": {"max_memory": 0}}

    def becomes(wanted: list[bool]) -> bool:
        """On a busy machine a server may be without a leader for a moment."""
        for _ in range(100):
            if [status.ready for status in nats_cluster.status()] == wanted:
                return True
            time.sleep(0.2)
        return False

    assert becomes([True] * NODES)
    monkeypatch.setattr(local_cluster, "monitor", still_starting)
    assert becomes([False, True, True])
    assert set(asked) == {local_cluster.JETSTREAM}


async def test_no_cluster() -> None:
    with pytest.raises(LogUnavailable, match="is the cluster up"):
        await in_time(NatsLog.open([f"127.0.0.1:{free_cluster_port(1)}"], "x"))

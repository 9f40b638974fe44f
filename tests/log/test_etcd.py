"""What only a log in etcd has: the head, chunks, the quota, versions, and members that are cut off."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from logplayer.core.entry import HashMap, Takeover
from logplayer.errors import CorruptEntry, EntryTooLarge, LogFull, LogUnavailable, UserError
from logplayer.log import control_chain as chain
from logplayer.log.etcd import api, engine, link, reader, version
from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.etcd.api import EtcdAway
from logplayer.log.etcd.keeper import StoreRoom, is_worth_it
from logplayer.log.etcd.local_cluster import EtcdCluster, free_etcd_port
from logplayer.log.etcd.log import EtcdLog
from logplayer.log.local_cluster import NODES
from logplayer.log.protocol import NewEntry
from logplayer.testing.conformance.log_check import AckedAppend, LogChecker, entry
from logplayer.testing.conformance.log_cluster import wait_for_acks
from logplayer.testing.conformance.log_etcd import EtcdHarness, etcd_leader
from logplayer.testing.conformance.log_harness import produce
from logplayer.testing.conformance.logs import collect, fill, in_time
from tests.log.etcd_servers import one_etcd, require_etcd


async def opened(cluster: EtcdCluster, name: str) -> EtcdLog:
    return await in_time(EtcdLog.open(cluster.hosts, name))


async def test_an_answer_that_gets_lost_is_found_in_the_log(
    etcd_cluster: EtcdCluster, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every second commit gets in, and its answer does not come: nothing is lost and nothing is there twice."""
    log = await opened(etcd_cluster, log_name)
    honest, calls = log.link.once, 0

    async def lossy(method, request, seconds, member=None):  # type: ignore[no-untyped-def]
        nonlocal calls
        reply = await honest(method, request, seconds, member)
        if method is api.TXN:
            calls += 1
            if calls % 2:
                raise EtcdAway("the answer got lost")
        return reply

    monkeypatch.setattr(log.link, "once", lossy)
    for group in range(20):
        made = [entry(producer, group + 1) for producer in ("a", "b")]
        assert await in_time(log.append(made)) == [2 * group + 1, 2 * group + 2]
    assert [r.index for r in await collect(log, 1, 40)] == list(range(1, 41))
    assert (await log.info()).last == 40
    assert calls == 20, "what was in the log was sent again"
    await log.close()


async def test_a_commit_that_arrives_late_is_refused(etcd_cluster: EtcdCluster, log_name: str) -> None:
    """Given up by its writer, still under way, and delivered after others have gone on."""
    log = await opened(etcd_cluster, log_name)
    await fill(log, 3)
    sent: list[pb.TxnRequest] = []
    honest = log.link.once

    async def slow(method, request, seconds, member=None):  # type: ignore[no-untyped-def]
        if method is api.TXN and not sent:
            sent.append(request)
            raise EtcdAway("no answer")
        return await honest(method, request, seconds, member)

    log.link.once = slow  # type: ignore[method-assign]
    assert await in_time(log.append([entry("p", 4)])) == [4]
    late = await honest(api.TXN, sent[0], 5)
    assert not late.succeeded
    assert [r.sequence for r in await collect(log, 1, 4)] == [1, 2, 3, 4]
    assert (await log.info()).last == 4
    await log.close()


async def test_a_damaged_chunk_is_read_from_another_member(
    etcd_cluster: EtcdCluster, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is wrong with it: a payload, its place, its end, or that it is not there."""
    log = await opened(etcd_cluster, log_name)
    await in_time(log.append([entry("p", s) for s in range(1, 11)]))
    await fill(log, 10, since=11)
    honest = log.link.once
    bad = log.link.members[0]

    def damage(reply: pb.RangeResponse) -> None:
        for kv in reply.kvs:
            last = int(kv.key[-16:], 16)
            body = bytearray(kv.value)
            if last == 10:
                body[1000] ^= 1
            elif last == 12:
                body[3] ^= 1
            elif last == 14:
                del body[-7:]
            elif last == 16:
                body += body[8:]
            kv.value = bytes(body)
        kept = [kv for kv in reply.kvs if int(kv.key[-16:], 16) != 18]
        del reply.kvs[:]
        reply.kvs.extend(kept)

    async def liar(method, request, seconds, member=None):  # type: ignore[no-untyped-def]
        reply = await honest(method, request, seconds, member)
        if method is api.RANGE and member is bad:
            damage(reply)
        return reply

    monkeypatch.setattr(log.link, "once", liar)
    for count, first in enumerate((1, 12, 14, 16, 18), 1):
        for _ in range(100):
            log.reader._next_member = 0  # It goes to another one after each damage, or if this one lags.
            records = await collect(log, first, 20)
            assert [r.payload for r in records] == [entry("p", s).payload for s in range(first, 21)]
            if log.reader.mended >= min(count, 4):  # One that has nothing to show is just not asked any more.
                break
        assert log.reader.mended >= min(count, 4)
    await log.close()


async def test_an_entry_that_is_damaged_everywhere_is_named(etcd_cluster: EtcdCluster, log_name: str) -> None:
    log = await opened(etcd_cluster, log_name)
    await in_time(log.append([entry("p", s) for s in range(1, 11)]))
    key = log.link.keys.chunk(10)
    stored = (await log.link.patiently(api.RANGE, pb.RangeRequest(key=key))).kvs[0].value
    body = bytearray(stored)
    at = bytes(body).find(entry("p", 6).payload)
    body[at + 50] ^= 1
    await log.link.patiently(api.TXN, pb.TxnRequest(success=[log.link.keys.put(key, bytes(body))]))
    for member in log.link.members:  # One that lags would still have the right one.
        while True:
            found = await log.link.once(api.RANGE, pb.RangeRequest(key=key, serializable=True), 10, member)
            if found.kvs[0].value == bytes(body):
                break
    reading = log.read(1, 10)
    assert [r.sequence for r in await in_time(anext(reading))] == [1, 2, 3, 4, 5]
    with pytest.raises(CorruptEntry) as caught:
        await in_time(anext(reading))
    assert caught.value.index == 6
    assert [r.sequence for r in await collect(log, 7, 10)] == [7, 8, 9, 10]
    await log.close()


async def test_a_reader_survives_compaction(
    etcd_cluster: EtcdCluster, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its watch is ended because what it would show is compacted; it reads on by range."""
    monkeypatch.setattr(reader, "SILENCE_SECONDS", 0.2)
    log = await opened(etcd_cluster, log_name)
    await fill(log, 3)
    tail = log.read(1)
    assert [r.sequence for _ in range(3) for r in await in_time(anext(tail))] == [1, 2, 3]
    honest = reader._watch
    monkeypatch.setattr(reader, "_watch", lambda link, revision: honest(link, 1))  # Long gone.
    await fill(log, 3, since=4)
    _, revision = await log.link.head()
    await log.link.once(api.COMPACT, pb.CompactionRequest(revision=revision, physical=True), 60)
    seen: list[int] = []
    while len(seen) < 3:
        seen += [r.sequence for r in await in_time(anext(tail))]
    assert seen == [4, 5, 6]
    await tail.aclose()  # type: ignore[attr-defined]
    await log.close()


async def test_a_full_quota(tmp_path: Path) -> None:
    """Appends stop before etcd raises its alarm; a trim makes room, and the file gets short again."""
    require_etcd()
    cluster = EtcdCluster(tmp_path, free_etcd_port(2))
    cluster.options = (f"quota-backend-bytes={48 * 1024**2}",)
    cluster.up()
    try:
        log = await opened(cluster, "full")
        keeper = log.engine.keeper
        watcher = LogChecker(100_000)
        sequence = 0
        refused: list[LogFull] = []
        while len(refused) < 3:  # What the members have not shown yet is counted with a margin, which goes.
            try:
                [index] = await in_time(log.append([entry("p", sequence + 1, 100_000)]))
            except LogFull as full:
                refused.append(full)
                continue
            sequence += 1
            watcher.acknowledge([AckedAppend("p", sequence, index)])
        assert sequence > 100
        assert "trim the log" in str(refused[0])
        assert not await keeper.is_alarmed()
        assert await in_time(log.append([entry("p", 1, 100_000)])) == [1]  # What is in the log is answered.
        await watcher.catch_up(log)
        trimmed, _ = await in_time(chain.trim(log, sequence - 10))
        assert trimmed == sequence - 10
        for more in range(sequence + 1, sequence + 101):
            await in_time(log.append([entry("p", more, 100_000)]))
        assert not await keeper.is_alarmed()
        assert await in_time(log.append([entry("p", 7, 100_000)])) == [7]  # Trimmed long ago.
        await in_time(keeper.defragment())
        assert log.keeper_counts.defragmentations.count >= 3
        for _ in range(600):  # Every few seconds, as it is due.
            if log.keeper_counts.compactions.count:
                break
            await asyncio.sleep(0.2)
        assert log.keeper_counts.compactions.count > 0
        await log.close()
    finally:
        cluster.down()


async def test_an_alarm_that_others_raised_is_lifted_by_a_trim(tmp_path: Path) -> None:
    """Somebody else fills the cluster up to the alarm and cleans up; no operator has to disarm it."""
    require_etcd()
    cluster = EtcdCluster(tmp_path, free_etcd_port(2))
    cluster.options = (f"quota-backend-bytes={32 * 1024**2}",)
    cluster.up()
    try:
        log = await opened(cluster, "alarmed")
        await fill(log, 20)
        with contextlib.suppress(api.EtcdNoRoom):
            for _ in range(200):
                put = log.link.keys.put(b"other", bytes(500_000))
                await in_time(log.link.patiently(api.TXN, pb.TxnRequest(success=[put])))
        assert await log.engine.keeper.is_alarmed()
        with pytest.raises(LogFull):
            await fill(log, 1, since=21)
        assert len(await collect(log, 1, 20)) == 20
        assert await in_time(log.trim(10)) == 10
        assert not await log.engine.keeper.is_alarmed()
        assert await fill(log, 3, since=21) == [21, 22, 23]
        await log.close()
    finally:
        cluster.down()


@pytest.mark.parametrize(
    ("file", "in_use", "verdict"),
    [
        (10, 10, (False, False, False)),
        (95, 90, (True, True, False)),
        (95, 20, (False, True, True)),
        (50, 20, (False, False, True)),
    ],
)
def test_when_there_is_room(file: int, in_use: int, verdict: tuple[bool, bool, bool]) -> None:
    """Of a quota of 100: what is in use decides about appends, the file about what etcd itself would do."""
    room = StoreRoom(file, in_use, 100)
    assert (room.is_full(0), room.is_spread(0), is_worth_it(file, in_use, 100)) == verdict
    assert room.is_full(100)
    assert room.is_spread(100)


async def test_a_lost_member(etcd_cluster: EtcdCluster, log_name: str) -> None:
    """Two of three go on, for writers and readers, whichever is lost; a log is opened without it."""
    for node in range(NODES):
        await asyncio.to_thread(etcd_cluster.kill, node)
        try:
            log = await opened(etcd_cluster, log_name)
            assert await fill(log, 5, since=5 * node + 1) == list(range(5 * node + 1, 5 * node + 6))
            assert len(await collect(log, 1, 5 * node + 5)) == 5 * node + 5
            assert await in_time(log.trim(0)) == 0
            await log.close()
        finally:
            await asyncio.to_thread(etcd_cluster.up)


async def test_a_leader_that_hangs(etcd_cluster: EtcdCluster, log_name: str) -> None:
    """Its connections stay open and nothing comes: the others elect a new one, and appends go on."""
    log = await opened(etcd_cluster, log_name)
    acked: list[AckedAppend] = []
    tasks = [asyncio.create_task(produce(log, f"p{i}", 0, acked, 0.005)) for i in range(3)]
    await wait_for_acks(acked, 50)
    pid = etcd_cluster.pid(await etcd_leader(log))
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        await wait_for_acks(acked, len(acked) + 50)
    finally:
        os.kill(pid, signal.SIGCONT)
    await wait_for_acks(acked, len(acked) + 50)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    watcher = LogChecker()
    watcher.acknowledge(acked)
    await watcher.catch_up(log)
    await log.close()


async def test_no_trim_passes_the_newest_decision(etcd_cluster: EtcdCluster, log_name: str) -> None:
    """In the middle of a chunk, too."""
    log = await opened(etcd_cluster, log_name)
    await in_time(log.append([entry("p", s) for s in range(1, 11)]))
    index, _ = await in_time(chain.append(log, Takeover(""), HashMap(("x",)), (("x", ""),)))
    await in_time(log.append([entry("p", s) for s in range(11, 21)]))
    assert await in_time(log.trim(4)) == 4
    assert [r.sequence for r in await collect(log, 5, 10)] == [5, 6, 7, 8, 9, 10]
    assert await in_time(log.trim(21)) == index - 1
    assert (await chain.load(log)).index == index
    await log.close()


async def test_a_long_trim_goes_by_steps(
    etcd_cluster: EtcdCluster, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "TRIM_STEP", 7)
    log = await opened(etcd_cluster, log_name)
    await fill(log, 40)
    assert await in_time(log.trim(30)) == 30
    assert [r.index for r in await collect(log, 31, 40)] == list(range(31, 41))
    await log.close()


async def test_a_request_that_is_too_large_for_the_servers(tmp_path: Path) -> None:
    """With etcd's own limit of 1.5 MiB: what fits is taken, what does not is refused with the option to raise."""
    with one_etcd(tmp_path) as port:
        log = await in_time(EtcdLog.open([f"127.0.0.1:{port}"], "x"))
        assert await in_time(log.append([NewEntry("p", 1, bytes(1_400_000))])) == [1]
        with pytest.raises(EntryTooLarge, match="--max-request-bytes"):
            await in_time(log.append([NewEntry("p", 2, bytes(2_000_000))]))
        calls = [log.append([NewEntry("p", s, bytes(100_000))]) for s in range(2, 42)]
        assert len(await in_time(asyncio.gather(*calls))) == 40
        await log.close()


async def test_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "OPEN_SECONDS", 1.0)
    with pytest.raises(LogUnavailable, match="is the cluster up"):
        await in_time(EtcdLog.open([f"127.0.0.1:{free_etcd_port(2)}"], "x"))


@pytest.mark.parametrize("text", ["3.4.22", "3.4.23", "3.5.6", "3.6.0-rc.1", "3.7.3", "4.0.0"])
def test_versions_that_are_taken(text: str) -> None:
    version.refuse_old("it", text)


@pytest.mark.parametrize("text", ["3.3.27", "3.4.21", "3.5.0", "3.5.5", "2.3.8", "", "unknown"])
def test_versions_that_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"use at least 3\.4\.22 or 3\.5\.6"):
        version.refuse_old("it", text)


async def test_a_server_of_an_old_version_is_refused(
    etcd_cluster: EtcdCluster, log_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = link.EtcdLink.statuses

    async def old(self: link.EtcdLink) -> list[tuple[link.EtcdMember, pb.StatusResponse]]:
        found = await honest(self)
        found[-1][1].version = "3.5.4"
        return found

    monkeypatch.setattr(link.EtcdLink, "statuses", old)
    with pytest.raises(UserError, match=r"is version 3\.5\.4"):
        await opened(etcd_cluster, log_name)


def test_cluster_up_refuses_an_old_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "etcd"
    old.write_text("#!/bin/sh\necho etcd Version: 3.5.4\n")
    old.chmod(0o755)
    monkeypatch.setenv("LOGPLAYER_ETCD", str(old))
    with pytest.raises(UserError, match=r"is version 3\.5\.4"):
        EtcdCluster(tmp_path / "c", free_etcd_port(2)).up()


async def test_a_harness_removes_its_log(etcd_cluster: EtcdCluster, log_name: str) -> None:
    async with EtcdHarness(etcd_cluster, log_name) as harness:
        log = await harness.open()
        before = (await log.info()).log_id
        await fill(log, 3)
        await log.close()
    log = await opened(etcd_cluster, log_name)
    info = await log.info()
    assert (info.first, info.last) == (1, 0)
    assert info.log_id != before
    with contextlib.suppress(LogUnavailable):
        await log.close()

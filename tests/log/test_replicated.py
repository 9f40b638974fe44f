"""What every replicated log has: several writers, a leader that dies, the sequence map, damage on one replica."""

from __future__ import annotations

import asyncio
import signal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from logplayer.admin.exposition import Samples, exposition
from logplayer.admin.log_face import log_face
from logplayer.core.entry import Checkpoint, HashMap, Takeover
from logplayer.errors import LogUnavailable, SequenceGap
from logplayer.log import control_chain as chain
from logplayer.log import position_writer
from logplayer.log.local_cluster import NODES
from logplayer.log.protocol import Log
from logplayer.log.server import LogServer
from logplayer.testing.conformance.log_check import AckedAppend, LogChecker, entry
from logplayer.testing.conformance.log_cluster import ClusterHarness, wait_for_acks
from logplayer.testing.conformance.log_harness import produce
from logplayer.testing.conformance.logs import collect, fill, in_time


async def test_rival_writers_of_the_same_entries(harness: ClusterHarness) -> None:
    """Two writers that race with the very same sequences: each is in the log once, and both get that index."""
    logs = [await in_time(harness.connect()), await in_time(harness.connect())]

    async def run(log: Log, producer: str) -> list[int]:
        return [(await log.append([entry(producer, s)]))[0] for s in range(1, 31)]

    answers = await in_time(asyncio.gather(*(run(log, p) for p in ("a", "b") for log in logs)))
    assert answers[0] == answers[1]
    assert answers[2] == answers[3]
    watcher = LogChecker()
    watcher.acknowledge(
        AckedAppend(p, s + 1, i) for p, a in (("a", answers[0]), ("b", answers[2])) for s, i in enumerate(a)
    )
    await watcher.catch_up(logs[0])
    assert watcher.count == 60
    for log in logs:
        await log.close()


async def test_rival_writers_of_different_entries(harness: ClusterHarness) -> None:
    logs = [await in_time(harness.connect()), await in_time(harness.connect())]
    watcher = LogChecker()

    async def run(log: Log, producer: str) -> None:
        for s in range(1, 41, 2):
            indexes = await log.append([entry(producer, s), entry(producer, s + 1)])
            watcher.acknowledge(AckedAppend(producer, s + i, index) for i, index in enumerate(indexes))

    await in_time(asyncio.gather(run(logs[0], "a"), run(logs[1], "b")))
    await watcher.catch_up(logs[1])
    assert watcher.count == 80
    for log in logs:
        await log.close()


async def test_another_writer_makes_no_hole_in_what_is_under_way(harness: ClusterHarness) -> None:
    """Where its entry takes the place of the first, the others would just fit in after it."""
    first, second = await in_time(harness.connect()), await in_time(harness.connect())
    await in_time(first.append([entry("a", 1)]))
    for rounds in range(3):
        await in_time(second.append([entry("c", rounds + 1)]))
        sequences = range(rounds * 20 + 1, rounds * 20 + 21)
        answers = await in_time(asyncio.gather(*(first.append([entry("b", sequence)]) for sequence in sequences)))
        assert [index for [index] in answers] == list(range(rounds * 21 + 3, rounds * 21 + 23))
    found = [(record.producer, record.sequence) for record in await collect(second, 1, 64)]
    assert [sequence for producer, sequence in found if producer == "b"] == list(range(1, 61))
    for log in (first, second):
        await log.close()


async def test_commits_and_lost_positions_are_metrics(harness: ClusterHarness) -> None:
    first, second = await in_time(harness.connect()), await in_time(harness.connect())
    for log, producer, sequence in ((first, "a", 1), (second, "b", 1), (first, "a", 2), (second, "b", 2)):
        await in_time(log.append([entry(producer, sequence)]))
    found = []
    for log in (first, second):
        samples = Samples()
        await log_face("x", log, LogServer(log)).metrics(samples)
        families = text_string_to_metric_families(exposition(samples).decode())
        found.append({sample.name: sample.value for family in families for sample in family.samples})
    assert all(one["logplayer_log_commit_seconds_count"] == 2 for one in found)
    assert all(one["logplayer_log_commit_seconds_sum"] > 0 for one in found)
    assert sum(one["logplayer_log_conflicts_total"] for one in found) >= 2  # Each was overtaken once.
    assert all(("logplayer_log_compaction_seconds_count" in one) is hasattr(first, "keeper_counts") for one in found)
    for log in (first, second):
        await log.close()


async def test_a_writer_whose_state_is_old_looks_again_before_it_refuses(harness: ClusterHarness) -> None:
    """A producer and an operator that change from one log server to the other, in the middle of their work."""
    first, second = await in_time(harness.connect()), await in_time(harness.connect())
    assert await in_time(first.append([entry("a", 1)])) == [1]
    await in_time(chain.append(first, Takeover(""), HashMap(("x",)), (("x", ""),)))
    assert await in_time(second.append([entry("a", 2)])) == [3]
    assert await in_time(first.append([entry("a", 3)])) == [4]
    await in_time(chain.append(second, Checkpoint(), None))
    assert (await in_time(chain.append(first, Checkpoint(), None)))[0] == 6
    assert await in_time(second.append([entry("a", 4)])) == [7]
    with pytest.raises(SequenceGap, match="newest is 4: send 5 next"):
        await in_time(first.append([entry("a", 6)]))
    for log in (first, second):
        await log.close()


async def test_the_leader_dies_under_producers_and_readers(harness: ClusterHarness) -> None:
    """The same instances go on: appends wait for the new leader, the tail resumes where it was."""
    log = await in_time(harness.connect())
    acked: list[AckedAppend] = []
    watcher = LogChecker()

    async def follow() -> None:
        async for records in log.read(1):
            watcher.see(records)

    tasks = [asyncio.create_task(produce(log, f"p{i}", 0, acked, 0.005)) for i in range(3)]
    tasks.append(asyncio.create_task(follow()))
    await wait_for_acks(acked, 50)
    await asyncio.to_thread(harness.cluster.kill, await harness.leader(log))
    await wait_for_acks(acked, len(acked) + 50)
    for task in tasks[:3]:
        task.cancel()
    await asyncio.gather(*tasks[:3], return_exceptions=True)
    await asyncio.to_thread(harness.cluster.up)
    last = (await log.info()).last
    for _ in range(3000):
        if watcher.index >= last or tasks[3].done():
            break
        await asyncio.sleep(0.01)
    tasks[3].cancel()
    watcher.acknowledge(acked)
    await watcher.catch_up(log)
    await log.close()


async def test_two_lost_members(harness: ClusterHarness) -> None:
    """Nothing is taken that a majority does not have; when one is back, all is there and appends go on."""
    log = await in_time(harness.connect())
    assert await fill(log, 20) == list(range(1, 21))
    watcher = LogChecker()
    watcher.acknowledge(AckedAppend("p", s, s) for s in range(1, 21))
    leader = await harness.leader(log)
    lost = [leader, (leader + 1) % NODES]
    patience = log.link.patience_seconds
    try:
        for node in lost:
            await asyncio.to_thread(harness.cluster.kill, node)
        log.link.patience_seconds = log._writer._engine.patience_seconds = 2.0
        with pytest.raises(LogUnavailable):
            await in_time(log.append([entry("p", 21)]))
        log.link.patience_seconds = log._writer._engine.patience_seconds = patience * 4
        again = asyncio.create_task(log.append([entry("p", 21)]))
        await asyncio.to_thread(harness.cluster.start, lost[1])
        assert await in_time(again) == [21]
        watcher.acknowledge([AckedAppend("p", 21, 21)])
        await in_time(watcher.catch_up(log))
    finally:
        await asyncio.to_thread(harness.cluster.up)
    await in_time(watcher.prove_all(log))
    await log.close()


async def test_old_answers_come_from_the_map(harness: ClusterHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several blocks, and after a trim of everything that they cover."""
    monkeypatch.setattr(position_writer, "BLOCK_COUNT", 20)
    log = await in_time(harness.connect())
    indexes = {}
    for s in range(1, 51):
        for p in ("a", "b"):
            indexes[p, s] = (await log.append([entry(p, s)]))[0]
    await log.trim(indexes["b", 45])
    await log.close()
    log = await in_time(harness.connect())
    for s in range(1, 51, 7):
        for p in ("a", "b"):
            assert await in_time(log.append([entry(p, s)])) == [indexes[p, s]]
    assert (await harness.blocks(log)) >= 4
    await log.close()


async def test_a_flipped_bit_on_the_leader(harness: ClusterHarness) -> None:
    """The entry is served from another replica, by whichever server one asks; and somebody has seen the damage."""
    log = await in_time(harness.connect())
    await fill(log, 20, size=2000)
    leader = await harness.leader(log)
    await log.close()
    await asyncio.to_thread(harness.cluster.kill, leader, signal.SIGTERM)
    harness.flip(leader, 12)
    await asyncio.to_thread(harness.cluster.up)
    hosts = harness.cluster.hosts
    mended = list[int]()
    while len(mended) < 20 * NODES and (len(mended) < NODES or not any(mended)):  # NATS chooses the replica by itself.
        first = len(mended) % NODES
        log = await in_time(harness.connect((*hosts[first:], *hosts[:first])))
        assert [r.sequence for r in await collect(log, 1, 20)] == list(range(1, 21))
        mended.append(log.reader.mended)
        await log.close()
    assert any(mended), "nobody has seen the damage"

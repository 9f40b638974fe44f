"""A Kafka topic as a log: the conformance kit on a real broker, and what is particular to it."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import logplayer.errors as e
from logplayer.log.chain import breaks
from logplayer.log.open import open_log, parse
from logplayer.log.protocol import Log, NewEntry
from logplayer.testing.conformance import logs
from logplayer.testing.conformance.log_check import AckedAppend, LogChecker, entry, payload
from logplayer.testing.conformance.log_harness import flip_in_files, produce
from logplayer.testing.conformance.logs import collect, fill
from tests.kafka_servers import kafka_brokers
from tests.log.log_support import run_check
from tests.servers import IN_CI, require

CHECKS = [check for check in logs.CHECKS if check is not logs.check_full_disk]
"""All but the full disk: a Kafka broker shuts down then, and there is no limit that would make it refuse instead."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    """The same for the whole file: three of them, and one where time is short."""
    with kafka_brokers(1 if IN_CI else 3) as found, ThreadPoolExecutor(1) as thread:
        # A broker dies with the thread that started it, so one that is started again needs a thread that stays.
        found.again = thread  # type: ignore[attr-defined]
        yield found


@pytest.fixture
def address(broker: Any) -> str:
    return f"kafka://{broker.bootstrap}/t{uuid.uuid4().hex[:10]}"


class KafkaHarness(logs.Harness):
    """One log on running brokers; its leader is killed under load, and a bit of the leader's copy is flipped."""

    def __init__(self, broker: Any, address: str) -> None:
        self.broker = broker
        self.address = address

    async def open(self) -> Log:
        return await open_log(self.address)

    async def crash_under_load(self, newest: dict[str, int]) -> list[AckedAppend]:
        log = await self.open()
        acked: list[AckedAppend] = []
        tasks = [asyncio.create_task(produce(log, f"p{i}", newest.get(f"p{i}", 0), acked)) for i in range(4)]
        await more_acks(acked, 100)
        await asyncio.to_thread(self.broker.kill, self.leader())
        before = len(acked)
        await asyncio.wrap_future(self.broker.again.submit(self.broker.up))
        await more_acks(acked, before + 20)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await log.close()
        return acked

    def leader(self) -> int:
        """The broker that writes and serves the log, counted from 0."""
        from confluent_kafka.admin import AdminClient

        topic = self.address.rpartition("/")[2]
        found = AdminClient({"bootstrap.servers": self.broker.bootstrap}).list_topics(topic, timeout=30)
        return int(found.topics[topic].partitions[0].leader) - 1

    async def flip_bit(self, index: int) -> bool:
        folder = self.broker.folder(self.leader()) / "data" / f"{self.address.rpartition('/')[2]}-0"
        flips = flip_in_files(sorted(folder.glob("*.log")), payload("p", index, 2000)[900:1000])
        assert flips, "the stored bytes were not found"
        return False


async def more_acks(acked: list[AckedAppend], count: int) -> None:
    for _ in range(6000):
        if len(acked) >= count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"only {len(acked)} of {count} appends were acknowledged in a minute")


@pytest.mark.parametrize("check", CHECKS, ids=logs.name)
async def test_kit(check: logs.LogCheck, broker: Any, address: str) -> None:
    await run_check(check, KafkaHarness(broker, address))


async def test_a_new_writer_knows_what_others_wrote_across_blocks(
    broker: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from logplayer.log.kafka import sequence_map, writer

    monkeypatch.setattr(sequence_map, "BLOCK_COUNT", 10)
    monkeypatch.setattr(writer, "BLOCK_COUNT", 10)
    log = await open_log(address)
    indexes = await fill(log, 35)
    await log.close()
    log = await open_log(address)
    for sequence in (1, 10, 11, 25, 35):
        assert await log.append([entry("p", sequence)]) == [indexes[sequence - 1]]
    with pytest.raises(e.SequenceGap, match="send 36 next"):
        await log.append([entry("p", 37)])
    await log.close()


async def test_a_rival_writer_is_seen_but_not_refused(
    broker: Any, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The documented weakness: the position is not compared, so both get in. Nothing that was acknowledged is lost.

    Each continues the chain by itself. Where it breaks, every reader sees, and the log says that this may be.
    """
    one, other = await open_log(address), await open_log(address)
    watcher = LogChecker(chained=False)
    with caplog.at_level(logging.WARNING):
        for round_ in range(1, 6):
            for log, producer in ((one, "a"), (other, "b")):
                [index] = await log.append([entry(producer, round_)])
                watcher.acknowledge([AckedAppend(producer, round_, index)])
    from logplayer.log.kafka.log import KafkaLog  # Its client may not be installed.

    assert "another writer" in caplog.text
    assert isinstance(one, KafkaLog)
    assert isinstance(other, KafkaLog)
    assert [log.writer_counts.commits.count for log in (one, other)] == [5, 5]
    assert sum(log.writer_counts.conflicts for log in (one, other)) > 0
    await watcher.catch_up(one)
    await watcher.prove_all(other)
    broken = [[record.index for record in breaks(b"", await collect(log, 1, 10))] for log in (one, other)]
    assert broken[0] == broken[1] != []
    assert (await one.info()).unfenced
    await one.close()
    await other.close()


async def test_twins_with_one_producer_name_are_named_with_both_indexes(
    broker: Any, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each numbers as if it were alone. Kafka takes both, and each of the two says so as soon as it appends again."""
    one, other = await open_log(address), await open_log(address)
    with caplog.at_level(logging.WARNING):
        for log, producer in ((one, "a"), (other, "b")):
            await log.append([entry(producer, 1)])
        [first] = await one.append([NewEntry("twin", 1, b"of one")])
        [second] = await other.append([NewEntry("twin", 1, b"of the other")])
        warning = f"holds 'twin'/1 twice, at index {first} and again at index {second}: two writers"
        async with asyncio.timeout(60):
            for number in range(2, 1000):
                if caplog.text.count(warning) == 2:  # One of each.
                    break
                for log, producer in ((one, "a"), (other, "b")):
                    await log.append([entry(producer, number)])
    assert caplog.text.count(warning) == 2
    await one.close()
    await other.close()


async def test_of_two_that_write_groups_the_older_is_refused(broker: Any, address: str) -> None:
    """Groups are transactions, and these Kafka does fence: the older writer is told, and nothing of it gets in."""
    one, other = await open_log(address), await open_log(address)
    await one.append([entry("a", 1), entry("a", 2)])
    [_, last] = await other.append([entry("b", 1), entry("b", 2)])
    with pytest.raises(e.Superseded, match="another writer"):
        await one.append([entry("a", 3), entry("a", 4)])
    assert (await other.info()).last == last
    await one.close()
    await other.close()


async def test_groups_and_single_entries_at_once(broker: Any, address: str) -> None:
    log = await open_log(address)
    watcher = LogChecker()

    async def singles(producer: str) -> None:
        for sequence in range(1, 31):
            watcher.acknowledge([AckedAppend(producer, sequence, (await log.append([entry(producer, sequence)]))[0])])

    async def groups(producer: str) -> None:
        for first in range(1, 31, 3):
            made = [entry(producer, sequence) for sequence in range(first, first + 3)]
            indexes = await log.append(made)
            watcher.acknowledge(AckedAppend(producer, m.sequence, i) for m, i in zip(made, indexes, strict=True))

    await asyncio.gather(*(singles(f"s{n}") for n in range(3)), *(groups(f"g{n}") for n in range(2)))
    await watcher.catch_up(log)
    assert watcher.count == 150
    await log.close()
    log = await open_log(address)
    await watcher.prove_all(log)
    await log.close()


async def test_a_crash_inside_a_group_leaves_nothing_of_it(broker: Any, address: str) -> None:
    """The first writer dies before its commit; the next one's start ends what it began."""
    from logplayer.log.kafka.produce import produce as produce_record

    log = await open_log(address)
    await fill(log, 3)
    group = [entry("g", 1), entry("g", 2)]
    link = log.link  # type: ignore[attr-defined]
    dying = link.producer(**{"transactional.id": f"logplayer-{link.topic}"})
    await asyncio.to_thread(dying.init_transactions, 30)
    dying.begin_transaction()
    for one in group:
        produce_record(dying, link.topic, one, bytes(8), None)
    await asyncio.to_thread(dying.flush, 30)
    indexes = await log.append(group)
    records = await collect(log, 1, indexes[-1])
    assert [(r.producer, r.sequence) for r in records] == [("p", 1), ("p", 2), ("p", 3), ("g", 1), ("g", 2)]
    await log.close()


async def test_topics_that_cannot_hold_a_log_are_refused(broker: Any) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    keeps = {"retention.ms": "-1"}
    for partitions, config, why in (
        (2, keeps, "2 partitions"),
        (1, {}, "retention.ms"),
        (1, {"cleanup.policy": "compact"}, "cleanup.policy"),
    ):
        name = f"t{uuid.uuid4().hex[:10]}"
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
        with pytest.raises(e.LogFormatError, match=why):
            await open_log(f"kafka://{broker.bootstrap}/{name}")


async def test_a_strange_topic_is_not_taken_for_a_log(broker: Any) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    name = f"t{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1, config={"retention.ms": "-1"})])[name].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(name, b"something else")
    assert producer.flush(30) == 0
    with pytest.raises(e.LogFormatError, match="not a log of ours"):
        await open_log(f"kafka://{broker.bootstrap}/{name}")


async def test_a_closed_log_says_so(broker: Any, address: str) -> None:
    log = await open_log(address)
    await fill(log, 1)
    await log.close()
    await log.close()
    with pytest.raises(e.LogUnavailable, match="closed"):
        await log.append([entry("p", 2)])


async def test_no_broker_is_said_at_once() -> None:
    require("confluent_kafka")
    with pytest.raises(e.LogUnavailable, match="is the cluster up"):
        await open_log("kafka://127.0.0.1:1/shop")


async def test_settings_of_the_client_come_from_a_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    require("confluent_kafka")
    from logplayer.log.kafka.link import KafkaLink

    file = tmp_path / "kafka.properties"
    file.write_text("# how to log in\nsecurity.protocol = SASL_SSL\nsasl.password=a=b\n")
    monkeypatch.setenv("LOGPLAYER_KAFKA", str(file))
    settings = KafkaLink(("h:1",), "t", 1.0)._client
    assert (settings["security.protocol"], settings["sasl.password"]) == ("SASL_SSL", "a=b")
    monkeypatch.setenv("LOGPLAYER_KAFKA", str(tmp_path / "none"))
    with pytest.raises(e.UserError, match="LOGPLAYER_KAFKA"):
        KafkaLink(("h:1",), "t", 1.0)


def test_addresses() -> None:
    assert parse("kafka://a,b:1/shop") == ("kafka", "", ("a:9092", "b:1"), "shop")
    with pytest.raises(e.AddressError, match="name"):
        parse("kafka://a:9092")
    with pytest.raises(e.AddressError, match="did you mean kafka://"):
        parse("kafak://a:9092/shop")

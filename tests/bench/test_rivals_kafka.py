"""The rivals on Kafka deliver the whole workload, on real brokers that are as durable as they must be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench.actor import ActorFailed
from bench.contest import Sample, Workload
from tests.kafka_servers import kafka_brokers
from tests.servers import missing

SMALL = Workload(targets=3, keys=4, rate=200.0, count=20, warm_up=2)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Any]:
    with kafka_brokers(3) as found:
        yield found


def check(samples: list[Sample], workload: Workload) -> None:
    """Every counted transaction at each of its targets, and time runs forwards."""
    wanted = {(number, target) for number in workload.counted() for target in workload.parts(number)}
    assert {(s.transaction, s.target) for s in samples} == wanted
    assert len(samples) == len(wanted)
    for sample in samples:
        assert 0 < sample.asked_ns <= sample.commit_ns
        assert sample.asked_ns <= sample.dispatch_ns <= sample.apply_ns


def play(contestant: Any, workload: Workload = SMALL) -> list[Sample]:
    contestant.open()
    try:
        return list(contestant.run(workload))
    finally:
        contestant.close()
        contestant.close()


def test_eos_delivers_every_transaction(brokers: Any) -> None:
    from bench.rivals.kafka_eos import KafkaEos

    check(play(KafkaEos(brokers, warm=False)), SMALL)
    assert all(status.ready for status in brokers.status()), "brokers that were up before must stay up"


def test_plain_delivers_every_transaction(brokers: Any) -> None:
    from bench.rivals.kafka_plain import KafkaPlain

    check(play(KafkaPlain(brokers, warm=False)), SMALL)


@pytest.mark.soak
@pytest.mark.parametrize("batch", [1, 10])
def test_two_level_delivers_every_transaction(brokers: Any, batch: int) -> None:
    from bench.rivals.kafka_two_level import KafkaTwoLevel

    contestant = KafkaTwoLevel(brokers, warm=False)
    contestant.batch = batch
    check(play(contestant), SMALL)


@pytest.mark.soak
def test_two_level_shows_its_backlog(brokers: Any) -> None:
    from bench.rivals.kafka_two_level import KafkaTwoLevel

    contestant = KafkaTwoLevel(brokers, warm=False)
    contestant.open()
    try:
        series = contestant.backlog(Workload(targets=3, keys=4, rate=100.0, count=200))
    finally:
        contestant.close()
    assert [seconds for seconds, _, _ in series] == sorted(seconds for seconds, _, _ in series)
    assert all(applied <= appended + 20 for _, appended, applied in series)
    assert series[-1][1] > 100
    assert series[-1][2] > 0


def test_a_topic_that_is_not_as_durable_is_refused(brokers: Any) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    from bench.rivals.kafka_base import check_topic

    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    for name, config in (("lazy", {"flush.messages": "2"}), ("thin", {"min.insync.replicas": "1"})):
        admin.create_topics([NewTopic(name, 1, 3, config=config)])[name].result(30)
        [(key, value)] = config.items()
        with pytest.raises(ActorFailed, match=f"has {key}={value}; a fair comparison needs"):
            check_topic(admin, name, 1, 3)


@pytest.mark.soak
def test_flink_delivers_every_transaction(brokers: Any) -> None:
    from bench.rivals import jars
    from bench.rivals.flink import Flink

    if not jars.fetched("flink"):
        missing("Flink's jars are not fetched; `tools/rivals fetch` does it")
    check(play(Flink(brokers, warm=False)), SMALL)

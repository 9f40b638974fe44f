"""Kafka direct, without transactions: the application writes the parts of a transaction to the shards' partitions.

It guarantees less than we do: a crash of the application between two parts leaves half a transaction, and a retry may
write a part twice. It is here because that is what it costs to do without.
"""

from __future__ import annotations

import time
from array import array

from bench.actor import usage
from bench.contest import Sample, Workload
from bench.rivals.kafka_base import ASK_SECONDS, Delivered, KafkaContest, producer
from bench.rivals.parts import by_number, expected, paced, pieces, samples, wait_applied


class PlainApplication:
    """An actor: the application that just writes."""

    def steady(self, bootstrap: str, topic: str, workload: Workload) -> array[int]:
        """Number and begin of each transaction; nobody waits for an answer before the next one."""
        one = producer(bootstrap)
        one.list_topics(topic, timeout=ASK_SECONDS)
        prepared = {number: pieces(workload, number) for number in range(1, workload.count + 1)}
        asked: array[int] = array("q")
        delivered = Delivered()
        for number in paced(workload):
            key = number.to_bytes(8, "big")
            asked.extend((number, time.monotonic_ns()))
            for target, value in prepared[number].items():
                one.produce(topic, value, key, target, on_delivery=delivered)
            one.poll(0)
        one.flush(ASK_SECONDS)
        delivered.check()
        return asked

    def usage(self) -> dict[str, float]:
        return usage()

    async def close(self) -> None:
        """Nothing outlives a run."""


class KafkaPlain(KafkaContest):
    """At least once, and no transaction across shards."""

    name = "kafka_plain"
    guarantee = "at least once, no atomicity across shards"

    def _open(self) -> None:
        self.application = self._actor(PlainApplication)

    def run(self, workload: Workload) -> list[Sample]:
        topic = self._topic(workload.targets, "shards")
        self.targets.ask("serve", self.brokers.bootstrap, topic, workload.targets, "read_uncommitted")
        seconds = workload.count / workload.rate + 120
        asked = by_number(self.application.ask("steady", self.brokers.bootstrap, topic, workload, seconds=seconds))
        wait_applied(self.targets, expected(workload))
        found = samples(workload, self.targets.ask("take"), asked, once=False)
        self.targets.ask("close")
        self._drop(topic)
        return found

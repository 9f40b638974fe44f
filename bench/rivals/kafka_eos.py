"""Kafka direct, with transactions: the application writes the parts of a transaction in one Kafka transaction.

One transaction after the other, as the paper's transaction manager does: order is kept, and the application cannot ask
for the next commit before this one is accepted. A transaction counts from the moment it is begun, so a transaction that
waits for its turn is not charged for the wait; where Kafka cannot keep up with the rate, the rate falls instead.

Several producers take turns. A producer that has just committed is refused its next transaction until the coordinator
has written the last marker; another one is not, and the order stays, since a transaction begins when the one before it
is accepted.
"""

from __future__ import annotations

import time
from array import array

from bench.actor import usage
from bench.contest import Sample, Workload
from bench.rivals.kafka_base import ASK_SECONDS, KafkaContest, producer
from bench.rivals.parts import by_number, expected, paced, pieces, samples, wait_applied

PRODUCERS = 4


class TransactionalApplication:
    """An actor: the application that commits by Kafka transactions."""

    def steady(self, bootstrap: str, topic: str, workload: Workload, count: int) -> array[int]:
        """Number and begin of each transaction."""
        producers = [
            producer(bootstrap, **{"transactional.id": f"{topic}-{nth}", "enable.idempotence": True})
            for nth in range(count)
        ]
        for one in producers:
            one.init_transactions(ASK_SECONDS)
        prepared = {number: pieces(workload, number) for number in range(1, workload.count + 1)}
        asked: array[int] = array("q")
        for number in paced(workload):
            one = producers[number % count]
            key = number.to_bytes(8, "big")
            asked.extend((number, time.monotonic_ns()))
            one.begin_transaction()
            for target, value in prepared[number].items():
                one.produce(topic, value, key, target)
            one.commit_transaction(ASK_SECONDS)
        return asked

    def usage(self) -> dict[str, float]:
        return usage()

    async def close(self) -> None:
        """Nothing outlives a run."""


class KafkaEos(KafkaContest):
    """Exactly once, by transactions that span the shards' partitions."""

    name = "kafka_eos"
    guarantee = "exactly once"
    producers = PRODUCERS

    def _open(self) -> None:
        self.application = self._actor(TransactionalApplication)

    def run(self, workload: Workload) -> list[Sample]:
        topic = self._topic(workload.targets, "shards")
        self.targets.ask("serve", self.brokers.bootstrap, topic, workload.targets, "read_committed")
        seconds = workload.count / workload.rate + workload.count * 0.5 + 60
        given = (self.brokers.bootstrap, topic, workload, self.producers)
        asked = by_number(self.application.ask("steady", *given, seconds=seconds))
        wait_applied(self.targets, expected(workload))
        found = samples(workload, self.targets.ask("take"), asked)
        self.targets.ask("close")
        self._drop(topic)
        return found

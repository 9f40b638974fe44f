"""Kafka in two levels: a topic as the write-ahead log, a player that reads it and writes to the shards' partitions.

The player does one Kafka transaction for each entry of the log: the parts for the shards and its own offset in the log
commit together, which makes it exactly once. Nothing holds the application back, so where a transaction takes longer
than the time between two entries the backlog grows without end; ``backlog`` shows it over time.

``batch`` is how many entries the player may put into one transaction when more than one waits. 1 is the design as the
paper has it; a larger one trades the delay of the first for the throughput of all.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.actor import ActorFailed, usage
from bench.contest import Sample, Workload
from bench.producer import payload_of
from bench.rivals.kafka_base import ASK_SECONDS, CONSUMER, Delivered, KafkaContest, producer
from bench.rivals.parts import by_number, cut, expected, paced, samples, wait_applied

# After ours, which says what to install where there is no client.
from confluent_kafka import Consumer, KafkaException, TopicPartition  # isort: skip


class WalApplication:
    """An actor: the application that appends to the log."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._asked: array[int] = array("q")
        self._delivered = Delivered()

    def begin(self, bootstrap: str, topic: str, workload: Workload) -> None:
        """Append at the workload's rate, without waiting for answers."""
        self._asked, self._delivered = array("q"), Delivered()
        payloads = [payload_of(workload, number) for number in range(1, workload.count + 1)]
        one = producer(bootstrap)
        one.list_topics(topic, timeout=ASK_SECONDS)
        self._thread = threading.Thread(target=self._append, args=(one, topic, workload, payloads), daemon=True)
        self._thread.start()

    def _append(self, one: Any, topic: str, workload: Workload, payloads: list[bytes]) -> None:
        polling = threading.Event()

        def poll() -> None:  # An answer is noted when it comes, not when the next transaction is due.
            while not polling.is_set():
                one.poll(0.1)

        poller = threading.Thread(target=poll, daemon=True)
        poller.start()
        for number in paced(workload):
            self._asked.extend((number, time.monotonic_ns()))
            one.produce(topic, payloads[number - 1], number.to_bytes(8, "big"), 0, on_delivery=self._delivered)
        polling.set()
        poller.join()
        one.flush(ASK_SECONDS)

    def appended(self) -> int:
        """How many are durable so far."""
        self._delivered.check()
        return len(self._delivered.stamps) // 2

    def finish(self) -> tuple[array[int], array[int]]:
        """Wait for the last; number and time of each as it was asked for, and as it was durable."""
        if self._thread is not None:
            self._thread.join()
        self._delivered.check()
        return self._asked, self._delivered.stamps

    def usage(self) -> dict[str, float]:
        return usage()

    async def close(self) -> None:
        """Nothing outlives a run."""


class KafkaPlayer:
    """An actor: reads the log, writes to the shards, in transactions."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._stamps: array[int] = array("q")
        self._failed = ""

    def play(self, bootstrap: str, wal: str, shards: str, targets: int, batch: int) -> None:
        self.close_now()
        self._stop = threading.Event()
        self._failed = ""
        ready = threading.Event()
        given = (bootstrap, wal, shards, targets, batch, ready)
        self._thread = threading.Thread(target=self._run, args=given, daemon=True)
        self._thread.start()
        if not ready.wait(ASK_SECONDS):
            raise ActorFailed(f"the player did not start: {self._failed}")

    def _run(self, bootstrap: str, wal: str, shards: str, targets: int, batch: int, ready: threading.Event) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": f"{wal}-player", "isolation.level": "read_committed"}
        consumer = Consumer({**CONSUMER, **settings})
        try:
            consumer.assign([TopicPartition(wal, 0, 0)])
            one = producer(bootstrap, **{"transactional.id": f"{wal}-player", "enable.idempotence": True})
            one.init_transactions(ASK_SECONDS)
            ready.set()
            while not self._stop.is_set():
                messages = self._take(consumer, batch)
                if messages:
                    self._deliver(one, consumer, messages, shards, targets)
        except KafkaException as error:
            self._failed = str(error)
        finally:
            consumer.close()

    def _take(self, consumer: Consumer, batch: int) -> list[Any]:
        """At least one if there is one, and more if they wait already."""
        messages = []
        message = consumer.poll(0.5)
        while message is not None:
            if message.error():
                raise KafkaException(message.error())
            self._stamps.extend((int.from_bytes(message.key() or b"", "big"), time.monotonic_ns()))
            messages.append(message)
            message = consumer.poll(0) if len(messages) < batch else None
        return messages

    def _deliver(self, one: Any, consumer: Consumer, messages: list[Any], shards: str, targets: int) -> None:
        last = messages[-1]
        one.begin_transaction()
        for message in messages:
            for target, value in cut(message.value(), targets).items():
                one.produce(shards, value, message.key(), target)
        position = TopicPartition(last.topic(), 0, last.offset() + 1)
        one.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), ASK_SECONDS)
        one.commit_transaction(ASK_SECONDS)

    def dispatched(self) -> array[int]:
        """Number and time of everything that was taken from the log."""
        if self._failed:
            raise ActorFailed(self._failed)
        return self._stamps

    def usage(self) -> dict[str, float]:
        return usage()

    def close_now(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._stamps = array("q")

    async def close(self) -> None:
        self.close_now()


class KafkaTwoLevel(KafkaContest):
    """Exactly once, by a log topic and a player in transactions."""

    name = "kafka_two_level"
    guarantee = "exactly once"
    batch = 1

    def _open(self) -> None:
        self.application = self._actor(WalApplication)
        self.player = self._actor(KafkaPlayer)

    def run(self, workload: Workload) -> list[Sample]:
        with self._playing(workload):
            asked, durable = self.application.ask("finish", seconds=workload.count / workload.rate + 120)
            wait_applied(self.targets, expected(workload), seconds=workload.count * 0.5 + 60)
            dispatched = by_number(self.player.ask("dispatched"))
            applied = self.targets.ask("take")
        return samples(workload, applied, by_number(asked), by_number(durable), dispatched)

    def backlog(self, workload: Workload) -> list[tuple[float, int, int]]:
        """Seconds, entries that are durable in the log, and how many entries' worth the targets have applied."""
        per_transaction = expected(workload) / workload.count
        series = []
        with self._playing(workload):
            began = time.monotonic()
            while (seconds := time.monotonic() - began) < workload.count / workload.rate:
                applied = int(self.targets.ask("count") / per_transaction)
                series.append((round(seconds, 3), int(self.application.ask("appended")), applied))
                time.sleep(0.25)
            self.application.ask("finish", seconds=120)
        return series

    @contextmanager
    def _playing(self, workload: Workload) -> Iterator[None]:
        wal, shards = self._topic(1, "wal"), self._topic(workload.targets, "shards")
        where = self.brokers.bootstrap
        self.targets.ask("serve", where, shards, workload.targets, "read_committed")
        self.player.ask("play", where, wal, shards, workload.targets, self.batch)
        self.application.ask("begin", where, wal, workload)
        yield
        for actor in (self.player, self.targets):
            actor.ask("close")
        self._drop(wal, shards)

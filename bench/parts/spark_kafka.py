"""Spark's own way at milliseconds: a query in real time from one Kafka topic into another, with the same SQL as ours.

Three brokers of its own (``bench.rivals.brokers``), as durable as everything that LogPlayer is measured against; each
topic has one partition, since our query has one task. A transaction is five records; it counts when a consumer, in a
process of its own as our targets are, has the four that the filter leaves. The query is at least once.
"""

from __future__ import annotations

import multiprocessing as mp
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.parts.spark_delay import ARRIVAL_SECONDS_MAX, DROPPED, ROWS, VALUE_BYTES, now
from bench.rivals import jars
from bench.rivals.brokers import Brokers
from logplayer.errors import UserError

PORT = 19790
START_SECONDS_MAX = 120.0
PREFIX = b"row/"


def connector() -> str:
    """Spark's connector for Kafka, for the setting ``spark.jars``."""
    if not jars.fetched("spark-kafka"):
        raise UserError(f"Spark's connector for Kafka is not in {jars.home()}; {jars.HINT}")
    return ",".join(str(jar) for jar in sorted((jars.home() / "spark-kafka" / "lib").glob("*.jar")))


def produce_steadily(bootstrap: str, topic: str, count: int, rate: float, run: bytes) -> dict[int, int]:
    """When each transaction was about to be sent."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    sent, start = {}, time.monotonic()
    for n in range(count):
        while (rest := start + n / rate - time.monotonic()) > 0:
            producer.poll(min(rest, 0.005))
        sent[n] = now()
        for key in [*(b"%06d/%d" % (n, k) for k in range(ROWS)), DROPPED % n]:
            producer.produce(topic, bytes(VALUE_BYTES), key=b"%s/%s" % (key, run))
        producer.poll(0)
    producer.flush()
    return sent


def run_consumer(bootstrap: str, topic: str, pipe: Connection) -> None:
    """Says "ready", then answers each question with (key, ns) of everything that came."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    arrived: list[tuple[bytes, int]] = []
    pipe.send("ready")
    while True:
        message = consumer.poll(0.02)
        if message is not None and not message.error():
            arrived.append((message.key() or b"", now()))
        elif pipe.poll():
            if pipe.recv() == "stop":
                return
            pipe.send(list(arrived))


class KafkaRealTime:
    """The brokers, and a turn of the query."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="spark-kafka-")
        self._brokers = Brokers(Path(self._folder.name), PORT, attached=True)
        self._brokers.up()
        self._brokers.pause()

    def stop(self) -> None:
        self._brokers.down()
        self._folder.cleanup()

    def turn(self, spark: Any, count: int, rate: float) -> tuple[list[float], int]:
        """As that of our ways."""
        self._brokers.up()
        try:
            name = uuid.uuid4().hex[:8]
            source, sink = f"in-{name}", f"out-{name}"
            self._make_topics(source, sink)
            with self._query(spark, source, sink), self._consumer(sink) as pipe:
                self._warm_up(pipe, source, rate)
                sent = self._produce(source, count, rate, b"run")
                return self._delays(pipe, sent)
        finally:
            self._brokers.pause()

    def _make_topics(self, *names: str) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self._brokers.bootstrap})
        for made in admin.create_topics([NewTopic(name, 1, 3) for name in names]).values():
            made.result(60)

    @contextmanager
    def _query(self, spark: Any, source: str, sink: str) -> Iterator[None]:
        servers = {"kafka.bootstrap.servers": self._brokers.bootstrap}
        rows = spark.readStream.format("kafka").options(**servers, subscribe=source, startingOffsets="earliest").load()
        kept = rows.where("length(value) > 0 and cast(key as string) not like 'tmp/%'")
        changed = kept.selectExpr("concat('row/', cast(key as string)) key", "value")
        with tempfile.TemporaryDirectory() as folder:
            writer = changed.writeStream.format("kafka").options(**servers, topic=sink, checkpointLocation=folder)
            writer = writer.option("kafka.linger.ms", "0").option("kafka.acks", "all").outputMode("update")
            query = writer.trigger(realTime="300 seconds").start()
            try:
                yield
                if query.exception() is not None:
                    raise UserError(f"the query failed: {str(query.exception())[:500]}")
            finally:
                query.stop()

    @contextmanager
    def _consumer(self, topic: str) -> Iterator[Connection]:
        ours, theirs = mp.Pipe()
        process = mp.get_context("spawn").Process(target=run_consumer, args=(self._brokers.bootstrap, topic, theirs))
        process.start()
        try:
            assert ours.recv() == "ready"
            yield ours
        finally:
            ours.send("stop")
            process.join()

    def _produce(self, topic: str, count: int, rate: float, run: bytes) -> dict[int, int]:
        with mp.get_context("spawn").Pool(1) as pool:
            return pool.apply(produce_steadily, (self._brokers.bootstrap, topic, count, rate, run))

    def _warm_up(self, pipe: Connection, topic: str, rate: float) -> None:
        """Until everything comes through."""
        deadline = time.monotonic() + START_SECONDS_MAX
        for nth in range(3):
            sent = self._produce(topic, max(50, int(rate * 3)), rate, b"warm-%d" % nth)
            while self._missing(self._arrived(pipe, b"warm-%d" % nth), sent):
                if time.monotonic() > deadline:
                    raise UserError(f"the query brought nothing within {START_SECONDS_MAX:.0f} s")
                time.sleep(0.2)

    def _delays(self, pipe: Connection, sent: dict[int, int]) -> tuple[list[float], int]:
        deadline = time.monotonic() + ARRIVAL_SECONDS_MAX
        while (missing := self._missing(found := self._arrived(pipe, b"run"), sent)) and time.monotonic() < deadline:
            time.sleep(0.2)
        whole = {n: max(found[n].values()) for n in sent if len(found[n]) == ROWS}
        return [(at - sent[n]) / 1e6 for n, at in whole.items()], missing

    def _arrived(self, pipe: Connection, run: bytes) -> dict[int, dict[bytes, int]]:
        """When each row of each transaction came first; a query that is at least once may bring it again."""
        found: dict[int, dict[bytes, int]] = defaultdict(dict)
        pipe.send("look")
        for key, at in pipe.recv():
            number, row, of = key.removeprefix(PREFIX).split(b"/")
            if of == run:
                found[int(number)].setdefault(row, at)
        return found

    def _missing(self, found: dict[int, dict[bytes, int]], sent: dict[int, int]) -> int:
        return sum(ROWS - len(found[n]) for n in sent)

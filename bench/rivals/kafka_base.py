"""What the three designs on Kafka share: topics, the settings of the clients, and the targets that consume.

The settings are for a low delay. ``linger.ms=0`` and no Nagle: a record leaves at once. ``fetch.min.bytes=1``: a
consumer's fetch waits at the broker and is answered by the first record, so a long ``fetch.wait.max.ms`` costs no delay
and spares the processors the empty answers. ``retry.backoff.ms=1``: while the coordinator still finishes the
transaction before, a new one is refused for a moment, and the client's 100 ms would be most of the delay.
A target assigns itself its partition and keeps its own offset beside its data, which is Kafka's way to exactly once at
a consumer and needs no group.
"""

from __future__ import annotations

import atexit
import threading
import time
import uuid
from array import array
from pathlib import Path
from typing import Any

from bench.actor import Actor, ActorFailed, usage
from bench.contest import Sample, Workload
from bench.rivals.brokers import Brokers, in_sync
from bench.rivals.parts import Store
from logplayer.errors import UserError

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.admin._resource import ResourceType
    from confluent_kafka.cimpl import NewTopic
except ImportError as error:  # pragma: no cover - the extra is installed where this is tested.
    raise UserError("the rivals on Kafka need its client; install it with: pip install 'logplayer[kafka]'") from error

ASK_SECONDS = 30.0
COMMON: dict[str, Any] = {
    "socket.nagle.disable": True,
    "retry.backoff.ms": 1,
    "log_level": 2,  # What goes wrong is raised; the client tells of every lost connection besides.
}
PRODUCER: dict[str, Any] = {**COMMON, "acks": "all", "linger.ms": 0}
CONSUMER: dict[str, Any] = {
    **COMMON,
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 500,
    "fetch.error.backoff.ms": 1,
}
WARM_UP = Workload(targets=10, keys=10, rate=50.0, count=200, warm_up=199)
WARM_UP_SECONDS_MAX = 180.0
COMPILING_MAX = 0.1
"""A Java program is slow until its hot methods are compiled. When a contest opens, the workload above is played again
and again, until the brokers' compilers use less than this of a processor."""


class KafkaTargets:
    """An actor with all targets: one consumer and one thread for each partition."""

    def __init__(self) -> None:
        self._stamps: array[int] = array("q")
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failed: list[str] = []

    def serve(self, bootstrap: str, topic: str, count: int, isolation: str) -> None:
        """Follow every partition of the topic from its beginning."""
        self.close_now()
        self._stop = threading.Event()
        ready = threading.Semaphore(0)
        settings = {**CONSUMER, "bootstrap.servers": bootstrap, "isolation.level": isolation}
        for number in range(count):
            given = (number, topic, {**settings, "group.id": f"{topic}-{number}"}, ready)
            thread = threading.Thread(target=self._follow, args=given, daemon=True)
            thread.start()
            self._threads.append(thread)
        for _ in range(count):
            if not ready.acquire(timeout=ASK_SECONDS):
                raise ActorFailed(f"the targets cannot read {topic}: {self._failed or 'no answer'}")

    def _follow(self, number: int, topic: str, settings: dict[str, Any], ready: threading.Semaphore) -> None:
        store = Store(number, self._stamps)
        consumer = Consumer(settings)
        try:
            partition = TopicPartition(topic, number, 0)
            consumer.assign([partition])
            _connect(consumer, partition)
            ready.release()
            while not self._stop.is_set():
                message = consumer.poll(0.5)
                if message is None:
                    continue
                if message.error():
                    raise KafkaException(message.error())
                self._apply(store, message)
        except KafkaException as error:
            self._failed.append(f"target {number}: {error}")
        finally:
            consumer.close()

    def _apply(self, store: Store, message: Any) -> None:
        store.apply(int.from_bytes(message.key(), "big"), message.value())

    def count(self) -> int:
        """How many stamps there are."""
        if self._failed:
            raise ActorFailed(self._failed[0])
        return len(self._stamps) // 3

    def take(self) -> array[int]:
        """Target, transaction and time of everything that was applied."""
        taken, self._stamps = self._stamps, array("q")
        return taken

    def usage(self) -> dict[str, float]:
        return usage()

    def close_now(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._failed.clear()
        self._stamps = array("q")

    async def close(self) -> None:
        self.close_now()


def _connect(consumer: Consumer, partition: TopicPartition) -> None:
    """Have the client find the partition's leader; a broker may need a moment to know that it is the one."""
    deadline = time.monotonic() + ASK_SECONDS
    while True:
        try:
            consumer.get_watermark_offsets(partition, timeout=ASK_SECONDS)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


class KafkaContest:
    """A contestant on three brokers. It uses those that run, or starts them for as long as this process lives.

    Between two contests the brokers are frozen: so they stay compiled and take no time from the other contestants.
    """

    name = ""
    guarantee = ""
    targets_class = KafkaTargets

    def __init__(self, brokers: Brokers | None = None, *, warm: bool = True) -> None:
        self.brokers = brokers or Brokers(attached=True)
        self._shared = brokers is not None
        self._warm = warm
        self._actors: list[Actor] = []

    def open(self) -> None:
        if not self._shared:
            _keep(self.brokers)
        self.brokers.up()
        self.targets = self._actor(self.targets_class)
        self._open()
        if self._warm:
            self._warm_up()

    def _warm_up(self) -> None:
        deadline = time.monotonic() + WARM_UP_SECONDS_MAX
        share = 1.0
        while share > COMPILING_MAX and time.monotonic() < deadline:
            began, compiling = time.monotonic(), self.brokers.compiling_seconds()
            self.run(WARM_UP)
            share = (self.brokers.compiling_seconds() - compiling) / (time.monotonic() - began)

    def _open(self) -> None:
        """Start the application's process, and the player's if there is one."""
        raise NotImplementedError

    def _actor(self, make: type) -> Actor:
        self._actors.append(Actor(make))
        return self._actors[-1]

    def run(self, workload: Workload) -> list[Sample]:
        raise NotImplementedError

    def close(self) -> None:
        for actor in self._actors:
            actor.stop()
        self._actors.clear()
        if not self._shared:
            self.brokers.pause()

    def _topic(self, partitions: int, kind: str) -> str:
        """A fresh topic, and proof that it is as durable as it must be."""
        name = f"{self.name}-{kind}-{uuid.uuid4().hex[:8]}"
        make_topic(self.brokers.bootstrap, name, partitions, self.brokers.count)
        return name

    def _drop(self, *topics: str) -> None:
        admin = AdminClient({**COMMON, "bootstrap.servers": self.brokers.bootstrap})
        for future in admin.delete_topics(list(topics)).values():
            future.result(ASK_SECONDS)


_kept: set[Path] = set()


def _keep(brokers: Brokers) -> None:
    """When this process ends, brokers that ran before it go on running, and others end."""
    if brokers.directory not in _kept:
        _kept.add(brokers.directory)
        ran_before = any(status.pid for status in brokers.status())
        atexit.register(brokers.resume if ran_before else brokers.down)


def make_topic(bootstrap: str, name: str, partitions: int, replicas: int) -> None:
    """Make a topic, and check what it will really do."""
    admin = AdminClient({**COMMON, "bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, partitions, replicas, config=_durable(replicas))])
    made[name].result(ASK_SECONDS)
    check_topic(admin, name, partitions, replicas)


def check_topic(admin: AdminClient, name: str, partitions: int, replicas: int) -> None:
    """Wait until every replica is in sync; refuse a topic that is less durable than what it is compared with."""
    deadline = time.monotonic() + ASK_SECONDS
    while not (kept := _described(admin, name, partitions, replicas)):
        if time.monotonic() > deadline:
            raise ActorFailed(f"topic {name} did not get {replicas} replicas in sync")
        time.sleep(0.05)
    for key, value in _durable(replicas).items():
        if kept[key] != value:
            raise ActorFailed(f"topic {name} has {key}={kept[key]}; a fair comparison needs {value}")


def _durable(replicas: int) -> dict[str, str]:
    return {"min.insync.replicas": str(in_sync(replicas)), "flush.messages": "1"}


def _described(admin: AdminClient, name: str, partitions: int, replicas: int) -> dict[str, str]:
    """The topic's settings; empty as long as a replica is not in sync or a broker does not know it."""
    try:
        found = admin.list_topics(name, timeout=ASK_SECONDS).topics[name].partitions.values()
        if len(found) < partitions or any(p.leader < 0 or len(p.isrs) < replicas for p in found):
            return {}
        [described] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
        return {key: entry.value for key, entry in described.result(ASK_SECONDS).items()}
    except KafkaException:
        return {}


def producer(bootstrap: str, **more: Any) -> Producer:
    """A producer with the settings above."""
    return Producer({**PRODUCER, "bootstrap.servers": bootstrap, **more})


class Delivered:
    """The delivery reports of a producer without transactions."""

    def __init__(self) -> None:
        self.stamps: array[int] = array("q")
        self.failed: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.failed = error
        else:
            self.stamps.extend((int.from_bytes(message.key(), "big"), time.monotonic_ns()))

    def check(self) -> None:
        """Raise what a report said."""
        if self.failed is not None:
            raise KafkaException(self.failed)

"""The connection to a Kafka cluster and the two topics of one log on it, each with one partition.

NAME       the entries: one record each, so that an entry's index is its offset + 1
NAME.map   which log this is, in record 0; then (producer, sequence) -> index and mark, in blocks

The client library blocks, so everything here does; the log calls it in threads.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from logplayer.errors import LogError, LogFormatError, LogUnavailable, UserError
from logplayer.log.protocol import ENTRY_BYTES_MAX
from logplayer.log.sequences import pack_json, unpack_json

FORMAT_VERSION = 3  # Since 2 the map has the entries' marks, since 3 entries have chain values.
REPLICAS = 3
ASK_SECONDS = 10.0
RECORD_BYTES_MAX = ENTRY_BYTES_MAX + 64 * 1024
SETTINGS = "LOGPLAYER_KAFKA"
T = TypeVar("T")
_log = logging.getLogger(__name__)

_TOPIC = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "flush.messages": "1",
    "max.message.bytes": str(RECORD_BYTES_MAX),
}
_CLIENT: dict[str, Any] = {
    "socket.nagle.disable": True,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "log_level": 2,
    "error_cb": lambda error: _log.debug("kafka: %s", error),  # A lost connection is expected, and made again.
}
_CONSUMER: dict[str, Any] = {
    "group.id": "logplayer",  # Asked for by the client; nothing is ever committed to it.
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # A trimmed index is an error, not the start of something else.
    "isolation.level": "read_committed",
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 500,
    "fetch.error.backoff.ms": 10,
    "queued.max.messages.kbytes": 8 * 1024,
    "fetch.queue.backoff.ms": 2,  # The client's own: a second of rest whenever these are full.
}
_PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,  # If an entry is given up, those after it must not get in.
    "linger.ms": 0,
    "retry.backoff.ms": 20,
    "message.max.bytes": RECORD_BYTES_MAX,
}
FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class KafkaLink:
    """One log's connection. Brokers may come and go; the client connects again by itself."""

    def __init__(self, hosts: tuple[str, ...], name: str, patience_seconds: float) -> None:
        self.hosts = hosts
        self.patience_seconds = patience_seconds
        self.topic = name
        self.map_topic = f"{name}.map"
        self.where = f"kafka://{','.join(hosts)}/{name}"
        self.log_id = ""
        self.closed = threading.Event()
        self._client = {"bootstrap.servers": ",".join(hosts), **_CLIENT, **_from_file()}
        self._asking = threading.Lock()
        self._asker: Consumer | None = None
        self._admin: AdminClient | None = None

    def open(self) -> None:
        """Connect, make the topics if the log is new, and refuse those that cannot hold a log."""
        self._admin = admin = AdminClient(self._client)
        try:
            if not any(map(_reachable, self.hosts)):
                raise OSError
            known = admin.list_topics(timeout=ASK_SECONDS)
        except (KafkaException, OSError):
            raise LogUnavailable(f"no broker of {self.where} can be reached; is the cluster up?") from None
        for topic in (self.topic, self.map_topic):
            if topic not in known.topics:
                self._make(admin, topic, len(known.brokers))
        # A broker answers a connection's questions in turn, so this one must never wait for records for long.
        self._asker = self.consumer(**{"fetch.wait.max.ms": 5})
        for topic in (self.topic, self.map_topic):
            self.patiently(lambda topic=topic: self._check(admin, topic))  # type: ignore[misc]
        self.log_id = self._identity()

    def _make(self, admin: AdminClient, topic: str, brokers: int) -> None:
        replicas = min(REPLICAS, brokers)
        config = {**_TOPIC, "min.insync.replicas": str(replicas // 2 + 1)}
        try:
            admin.create_topics([NewTopic(topic, 1, replicas, config=config)])[topic].result(ASK_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # Somebody else made it in this moment.
                raise LogUnavailable(f"{self.where} cannot make topic {topic}: {error.args[0].str()}") from None

    def _check(self, admin: AdminClient, topic: str) -> None:
        partitions = admin.list_topics(topic, timeout=ASK_SECONDS).topics[topic].partitions
        if len(partitions) > 1:
            raise LogFormatError(
                f"topic {topic} at {self.where} has {len(partitions)} partitions; a log is one: choose another name"
            )
        [described] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        config = {key: entry.value for key, entry in described.result(ASK_SECONDS).items()}
        for key in ("cleanup.policy", "retention.ms", "retention.bytes"):
            if config[key] != _TOPIC[key]:
                raise LogFormatError(
                    f"topic {topic} at {self.where} has {key}={config[key]} and would forget entries by itself; "
                    f"set it to {_TOPIC[key]}"
                )
        if config["flush.messages"] != "1":
            _log.warning(
                "topic %s at %s has flush.messages=%s: an acknowledged entry is lost if all its replicas lose power "
                "at once; set it to 1",
                topic,
                self.where,
                config["flush.messages"],
            )
        self.bounds(topic)

    def _identity(self) -> str:
        """Record 0 of the map. Two that make the log at once both write one; the first counts for both."""
        if self.bounds(self.map_topic)[1] == 0:
            if self.bounds(self.topic)[1]:
                raise LogFormatError(f"topic {self.topic} at {self.where} is not a log of ours; choose another name")
            self.write_map(pack_json({"id": uuid.uuid4().hex, "version": FORMAT_VERSION}))
        try:
            found = unpack_json(self.map_record(0))
            version, log_id = int(found["version"]), str(found["id"])
        except (ValueError, KeyError, TypeError):
            raise LogFormatError(f"topic {self.map_topic} at {self.where} does not belong to a log of ours") from None
        if version != FORMAT_VERSION:
            what = "upgrade it" if version > FORMAT_VERSION else "choose another name"
            raise LogFormatError(f"{self.where} has format {version}; this program knows {FORMAT_VERSION}: {what}")
        return log_id

    def consumer(self, **more: Any) -> Consumer:
        """A reader of committed records."""
        return Consumer({**self._client, **_CONSUMER, **more})

    def producer(self, **more: Any) -> Producer:
        """A writer whose records are answered when a majority has synced them."""
        timeout = {"delivery.timeout.ms": int(self.patience_seconds * 1000)}
        return Producer({**self._client, **_PRODUCER, **timeout, **more})

    def bounds(self, topic: str = "") -> tuple[int, int]:
        """The first offset that can be read, and the one after the last that is committed."""
        with self._asking:
            partition = TopicPartition(topic or self.topic, 0)
            low, end = self._ask_consumer().get_watermark_offsets(partition, timeout=ASK_SECONDS)
            return int(low), int(end)

    def trim(self, up_to: int) -> None:
        """Have the brokers delete every record of an index up to this one."""
        assert self._admin is not None
        if up_to > self.bounds()[0]:
            partition = TopicPartition(self.topic, 0, up_to)
            [deleted] = self._admin.delete_records([partition]).values()
            deleted.result(ASK_SECONDS)

    def stretch(self, topic: str, first: int, end: int, count: int = 1 << 30) -> list[Message]:
        """At most ``count`` records of the offsets ``[first, end - 1]``."""
        found: list[Message] = []
        deadline = time.monotonic() + self.patience_seconds
        with self._asking:
            consumer = self._ask_consumer()
            consumer.assign([TopicPartition(topic, 0, first)])
            try:
                while len(found) < count:
                    message = consumer.poll(0.2)
                    if message is None:
                        if time.monotonic() > deadline or self.closed.is_set():
                            raise LogUnavailable(f"{self.where} does not answer a read of {topic}")
                        continue
                    deadline = time.monotonic() + self.patience_seconds
                    if error := message.error():
                        if error.code() != KafkaError._PARTITION_EOF:
                            raise KafkaException(error)
                        if (message.offset() or 0) >= end:
                            break  # What is left are marks of transactions, which are not shown.
                        continue
                    if (message.offset() or 0) < end:
                        found.append(message)
                    if (message.offset() or 0) >= end - 1:
                        break
            finally:
                consumer.unassign()
        return found

    def map_record(self, number: int) -> bytes:
        """Record ``number`` of the map."""
        messages = self.patiently(lambda: self.stretch(self.map_topic, number, number + 1))
        if not messages:
            raise LogError(f"the sequence map of {self.where} lacks record {number}; it is damaged")
        return messages[0].value() or b""

    def write_map(self, value: bytes) -> int:
        """Add a record to the map, durably; its number. That it may get in twice does no harm."""
        answers: list[tuple[KafkaError | None, int]] = []
        plain = {"enable.idempotence": False, "enable.gapless.guarantee": False}
        producer = self.producer(**plain)
        producer.produce(
            self.map_topic, value, partition=0, on_delivery=lambda e, m: answers.append((e, m.offset() or 0))
        )
        producer.flush(self.patience_seconds)
        if not answers or answers[0][0] is not None:
            raise LogUnavailable(f"the sequence map of {self.where} was not written ({answers or 'no answer'})")
        return answers[0][1]

    def patiently(self, call: Callable[[], T]) -> T:
        """Try until the cluster answers; a new leader takes some seconds."""
        deadline = time.monotonic() + self.patience_seconds
        while True:
            try:
                return call()
            except KafkaException as error:
                if time.monotonic() >= deadline or self.closed.is_set():
                    raise LogUnavailable(f"{self.where} does not answer ({error.args[0].str()})") from None
            time.sleep(0.05)

    def _ask_consumer(self) -> Consumer:
        if self._asker is None:
            raise LogUnavailable(f"the log {self.where} is closed")
        return self._asker

    def close(self) -> None:
        self.closed.set()
        with self._asking:
            asker, self._asker = self._asker, None
        if asker is not None:
            asker.close()


def _reachable(host: str) -> bool:
    """Whether anybody listens: the client library would go on trying."""
    name, _, port = host.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((name.strip("[]"), int(port)), 2):
        return True
    return False


def _from_file() -> dict[str, str]:
    """Settings of the client for clusters that ask for a name and a key: lines of ``name=value``."""
    path = os.environ.get(SETTINGS)
    if not path:
        return {}
    try:
        lines = [line.strip() for line in Path(path).read_text().splitlines()]
    except OSError as error:
        raise UserError(f"{SETTINGS} names {path}, which cannot be read: {error.strerror}") from None
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {key.strip(): value.strip() for key, _, value in pairs}

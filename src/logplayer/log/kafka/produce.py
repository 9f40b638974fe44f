"""How entries are handed to a Kafka client: one by one, or as a transaction. Blocking."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from logplayer.errors import LogUnavailable
from logplayer.log.frame import encode
from logplayer.log.kafka.link import KafkaLink
from logplayer.log.kafka.sequence_map import header
from logplayer.log.protocol import NewEntry


def produce(producer: Producer, topic: str, entry: NewEntry, chain: bytes, answered: Any) -> None:
    """Hand one entry over, with its chain value. Its index is 0 in it: the broker decides."""
    body = b"".join(encode(0, entry, time.time_ns() // 1000, chain))
    key = entry.producer.encode()
    producer.produce(topic, body, key, 0, answered, headers=header(entry.sequence, entry.kind, chain))


def commit(producer: Producer, link: KafkaLink, new: list[NewEntry], chain: list[bytes]) -> list[int]:
    """All of the group or nothing; the offsets that it got."""
    offsets: dict[int, int] = {}
    failed: list[KafkaError] = []
    producer.begin_transaction()
    for place, entry in enumerate(new):

        def answered(error: KafkaError | None, message: Any, place: int = place) -> None:
            if error is not None:
                failed.append(error)
            else:
                offsets[place] = message.offset()

        produce(producer, link.topic, entry, chain[place], answered)
    try:
        producer.flush(link.patience_seconds)
    except SystemError as error:
        raise _cause(error) from None
    if failed:
        raise KafkaException(failed[0])
    producer.commit_transaction(link.patience_seconds)
    return [offsets[place] for place in range(len(new))]


def _cause(error: SystemError) -> BaseException:
    """What the client wanted to raise. It calls back while its fatal error is set, which Python finds odd."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, KafkaException):
        found = found.__cause__ or found.__context__
    return found or error


def wait_visible(link: KafkaLink, offset: int) -> int:
    """A commit is decided before it is shown: wait until readers see it. The end of the log then."""
    deadline = time.monotonic() + link.patience_seconds
    while (end := link.patiently(link.bounds)[1]) <= offset:
        if time.monotonic() > deadline:
            raise LogUnavailable(f"{link.where} does not show what was committed")
        time.sleep(0.001)
    return end

"""Reads a log on Kafka: a consumer in a thread of its own, waiting at the partition's leader.

The leader is the only copy that a consumer can ask, so a damaged entry is named and not mended. The entry is stored
without its index, which only the broker knows; it gets it, and the CRC that covers it, when it is read and found right.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from logplayer.errors import CorruptEntry, LogError, LogUnavailable
from logplayer.log.frame import corrupt, decode, encode
from logplayer.log.kafka.link import KafkaLink
from logplayer.log.protocol import BATCH_BYTES, NewEntry, Record
from logplayer.log.refusals import trimmed

WAIT_SECONDS = 0.2
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


async def read(link: KafkaLink, first: int, last: int | None) -> AsyncIterator[list[Record]]:
    """Batches of ``[first, last]``, as they come."""
    low, end = await asyncio.to_thread(link.patiently, link.bounds)
    if first <= low:
        raise trimmed(first, low + 1)
    consumer = link.consumer()
    thread = ThreadPoolExecutor(1, "kafka-read")  # The client is asked by one thread at a time.
    loop = asyncio.get_running_loop()
    try:
        start = TopicPartition(link.topic, 0, min(first - 1, end))
        await loop.run_in_executor(thread, consumer.assign, [start])
        done = False
        while not done:
            messages = await loop.run_in_executor(thread, _fetch, consumer)
            if link.closed.is_set():
                raise LogUnavailable(f"the log {link.where} is closed")
            records, damage, done = _check(messages, first, last)
            if records:
                yield records
            if isinstance(damage, CorruptEntry):
                raise damage
            if damage is not None:
                at = records[-1].index + 1 if records else first
                low, _ = await asyncio.to_thread(link.patiently, link.bounds)
                raise trimmed(at, low + 1) if at <= low else damage
    finally:
        thread.submit(consumer.close)  # After a fetch that still waits; nothing waits for the close.
        thread.shutdown(wait=False)


def _fetch(consumer: Consumer) -> list[Message]:
    """What is there, at most a batch of it, or nothing after a while."""
    message = consumer.poll(WAIT_SECONDS)
    messages, room = [], BATCH_BYTES
    while message is not None:
        messages.append(message)
        room -= len(message.value() or b"") if message.error() is None else 0
        message = consumer.poll(0) if room > 0 else None
    return messages


def _check(messages: list[Message], first: int, last: int | None) -> tuple[list[Record], LogError | None, bool]:
    """The entries, what is wrong after them, and whether ``last`` was reached."""
    records: list[Record] = []
    for message in messages:
        index = (message.offset() or 0) + 1
        if error := message.error():
            if error.code() == KafkaError._PARTITION_EOF:
                if last is not None and index > last:
                    return records, None, True  # Only marks of transactions are left up to there.
            elif error.code() in _GONE or error.fatal():
                return records, LogUnavailable(f"the log cannot be read: {error.str()}"), True
            continue  # A lost connection: the client makes it again.
        if index < first:
            continue
        if last is not None and index > last:
            return records, None, True
        try:
            records.append(_record(message.value() or b"", index))
        except CorruptEntry as damage:
            return records, damage, True
        if index == last:
            return records, None, True
    return records, None, False


def _record(body: bytes, index: int) -> Record:
    try:
        stored = decode(body, 0)
    except CorruptEntry:
        raise corrupt(index, "its checksum does not match") from None
    entry = NewEntry(stored.producer, stored.sequence, stored.payload, stored.kind)
    crc = int.from_bytes(encode(index, entry, stored.committed_at_us, stored.chain)[2][-4:], "little")
    return stored._replace(index=index, crc=crc)

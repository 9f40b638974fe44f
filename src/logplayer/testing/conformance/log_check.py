"""Checks a log from outside: what was acknowledged is there, once, in order and unchanged."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from typing import NamedTuple

import xxhash

from logplayer.log.protocol import Log, NewEntry, Record


class AckedAppend(NamedTuple):
    """An append that was answered."""

    producer: str
    sequence: int
    index: int  # type: ignore[assignment]  # Hides tuple's own method.


def payload(producer: str, sequence: int, count: int = 200) -> bytes:
    """The bytes that belong to (producer, sequence): anyone can compute them again."""
    return random.Random(f"{producer}/{sequence}").randbytes(count)


def entry(producer: str, sequence: int, count: int = 200) -> NewEntry:
    return NewEntry(producer, sequence, payload(producer, sequence, count))


def chain_value(before: bytes, record: Record) -> bytes:
    """The chain value that the record must have after one with the value ``before``: computed here by its definition.

    XXH3-64 of the value before (nothing at the start of the log), XXH3-64 of the payload, the sequence in eight bytes,
    the kind in one, and the producer; all numbers big-endian.
    """
    number = xxhash.xxh3_64(before)
    number.update(xxhash.xxh3_64(record.payload).intdigest().to_bytes(8, "big"))
    number.update(struct.pack(">Q", record.sequence) + bytes([record.kind]))
    number.update(record.producer.encode("utf-8"))
    return number.intdigest().to_bytes(8, "big")


class LogChecker:
    """Follows a log through crashes. Raises AssertionError, with the facts, at the first broken promise.

    Invariant: ``seen`` has every record up to ``index``; nothing that was seen may ever change.
    """

    def __init__(self, payload_bytes: int = 200, chained: bool = True) -> None:
        self.acked: dict[tuple[str, int], int] = {}
        self.newest: dict[str, int] = {}
        self.index = 0
        self.count = 0
        self.chain = b""  # At ``index``.
        self._chained = chained  # False for a log whose chain two writers have broken.
        self._bytes = payload_bytes
        self._seen: dict[tuple[str, int], int] = {}
        self._unproven: dict[tuple[str, int], int] = {}

    def acknowledge(self, acks: Iterable[AckedAppend]) -> None:
        """Note answers; the same sequence must always get the same index."""
        for producer, sequence, index in acks:
            known = self.acked.setdefault((producer, sequence), index)
            assert known == index, f"{producer}/{sequence} was acknowledged at {known} and then at {index}"
            self._unproven[producer, sequence] = index

    def see(self, records: Iterable[Record]) -> None:
        """Note records in the order in which they were read."""
        for record in records:
            key = (record.producer, record.sequence)
            assert record.index > self.index, f"entry {record.index} came after {self.index}: order is broken"
            assert key not in self._seen, f"{key} is in the log twice: at {self._seen[key]} and {record.index}"
            expected = self.newest.get(record.producer, 0) + 1
            assert record.sequence == expected, f"{record.producer} has sequence {record.sequence} after {expected - 1}"
            assert record.payload == payload(*key, self._bytes), f"the bytes of entry {record.index} {key} changed"
            value = chain_value(self.chain, record)
            holds = record.chain == value or not self._chained
            assert holds, f"entry {record.index} does not continue the chain of {self.index}"
            self.index, self.newest[record.producer], self.chain = record.index, record.sequence, record.chain
            self._seen[key] = record.index
            self.count += 1

    async def catch_up(self, log: Log) -> None:
        """Read everything that is new, then demand every entry acknowledged since at its index."""
        info = await log.info()
        if info.first > self.index + 1:
            self.chain = info.trimmed_chain  # What it must be, nobody knows who has not read up to there.
        if info.last > self.index:
            async for records in log.read(max(self.index + 1, info.first), info.last):
                self.see(records)
        if info.last == self.index:
            assert info.chain == self.chain, f"the log tells another chain value than its last entry, {info.last}"
        for key, index in self._unproven.items():
            assert self._seen.get(key) == index, f"acknowledged {key} at {index}, but the log has {self._seen.get(key)}"
        self._unproven.clear()

    async def prove_all(self, log: Log) -> None:
        """Read the whole log once more, as a stranger would."""
        again = LogChecker(self._bytes, self._chained)
        again.acknowledge(AckedAppend(producer, sequence, index) for (producer, sequence), index in self.acked.items())
        await again.catch_up(log)

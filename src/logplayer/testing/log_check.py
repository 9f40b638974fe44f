"""Checks a log from outside: what was acknowledged is there, once, in order and unchanged."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

from logplayer.log.protocol import Log, NewEntry, Record


class Acked(NamedTuple):
    """An append that was answered."""

    producer: str
    sequence: int
    index: int  # type: ignore[assignment]  # Hides tuple's own method.


def payload(producer: str, sequence: int, count: int = 200) -> bytes:
    """The bytes that belong to (producer, sequence): anyone can compute them again."""
    return random.Random(f"{producer}/{sequence}").randbytes(count)


def entry(producer: str, sequence: int, count: int = 200) -> NewEntry:
    return NewEntry(producer, sequence, payload(producer, sequence, count))


class Watcher:
    """Follows a log through crashes. Raises AssertionError, with the facts, at the first broken promise.

    Invariant: ``seen`` has every record up to ``index``; nothing that was seen may ever change.
    """

    def __init__(self, payload_bytes: int = 200) -> None:
        self.acked: dict[tuple[str, int], int] = {}
        self.newest: dict[str, int] = {}
        self.index = 0
        self.count = 0
        self._bytes = payload_bytes
        self._seen: dict[tuple[str, int], int] = {}
        self._unproven: dict[tuple[str, int], int] = {}

    def acknowledge(self, acks: Iterable[Acked]) -> None:
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
            self.index, self.newest[record.producer] = record.index, record.sequence
            self._seen[key] = record.index
            self.count += 1

    async def catch_up(self, log: Log) -> None:
        """Read everything that is new, then demand every entry acknowledged since at its index."""
        info = await log.info()
        if info.last > self.index:
            async for records in log.read(max(self.index + 1, info.first), info.last):
                self.see(records)
        for key, index in self._unproven.items():
            assert self._seen.get(key) == index, f"acknowledged {key} at {index}, but the log has {self._seen.get(key)}"
        self._unproven.clear()

    async def prove_all(self, log: Log) -> None:
        """Read the whole log once more, as a stranger would."""
        again = Watcher(self._bytes)
        again.acknowledge(Acked(producer, sequence, index) for (producer, sequence), index in self.acked.items())
        await again.catch_up(log)

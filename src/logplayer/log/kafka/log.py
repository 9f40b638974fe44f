"""A Kafka topic as a log, for teams that have Kafka: one partition, ``acks=all``, synced by a majority.

An entry's index is its offset + 1; a group is a Kafka transaction, whose closing mark takes an offset too, so indexes
have gaps. Its guarantees are weaker than the other logs' in one point: Kafka has no compare-and-set, so a second writer
is not refused, and its idempotence ends with the client's life. Two writers also break the chain, which each continues
by itself: readers warn, with the place, and go on, since all of them see the same entries. Let one log server write.
See docs/log.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from logplayer.errors import LogUnavailable
from logplayer.log.chain import chain_at
from logplayer.log.kafka.link import KafkaLink
from logplayer.log.kafka.reader import read
from logplayer.log.kafka.sequence_map import KafkaLogState
from logplayer.log.kafka.writer import KafkaWriter
from logplayer.log.protocol import History, Info, NewEntry, Newest, Record, check_group, check_producer, check_range
from logplayer.observe.instruments import ReplicaCounts


class KafkaLog:
    """A log on a Kafka cluster. Made by ``KafkaLog.open``; one instance belongs to one event loop."""

    def __init__(self, link: KafkaLink) -> None:
        self.link = link
        self._state = KafkaLogState(link)
        self._writer = KafkaWriter(link, self._state, lambda index: chain_at(self, index))

    @classmethod
    async def open(cls, hosts: Sequence[str], name: str, *, patience_seconds: float = 30.0) -> KafkaLog:
        """Connect to the cluster, and make the log if it is new."""
        link = KafkaLink(tuple(hosts), name, patience_seconds)
        try:
            await asyncio.to_thread(link.open)
        except BaseException:
            await asyncio.to_thread(link.close)
            raise
        return cls(link)

    @property
    def writer_counts(self) -> ReplicaCounts:
        """How long commits take, and how often another writer was seen."""
        return self._writer.counts

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        """Append the group; it is on the disks of a majority when this returns."""
        check_group(entries)
        self._require_open()
        return await self._writer.ask(entries)

    async def trim(self, up_to: int, history: History | None = None) -> int:
        self._require_open()
        [trimmed_to] = await self._writer.ask((), max(up_to, 0), history)
        return trimmed_to

    async def newest(self, producer: str) -> Newest:
        """What the producer appended last; what others appended is read first."""
        check_producer(producer)
        self._require_open()
        await self._state.refresh()
        sequence = self._state.newest.get(producer, 0)
        return Newest(sequence, (await self._state.find(producer, sequence)).index if sequence else 0)

    async def info(self) -> Info:
        """The first and the last index; what others appended is read first. Its bytes are not known: 0."""
        self._require_open()
        await self._state.refresh()
        low, _ = await asyncio.to_thread(self.link.patiently, self.link.bounds)
        state, trimmed_chain = self._state, self._state.trimmed_chain(low)
        chain = state.chain if state.last > low else trimmed_chain
        last = max(state.last, low)
        return Info(self.link.log_id, low + 1, last, state.control, 0, chain, trimmed_chain, unfenced=True)

    async def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        check_range(first, last)
        self._require_open()
        async for records in read(self.link, first, last):
            yield records

    def _require_open(self) -> None:
        if self.link.closed.is_set():
            raise LogUnavailable(f"the log {self.link.where} is closed")

    async def close(self) -> None:
        """End everything. Safe to call twice."""
        if self.link.closed.is_set():
            return
        await self._writer.close()
        await asyncio.to_thread(self.link.close)

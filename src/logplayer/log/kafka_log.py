"""A Kafka topic as a log, for teams that have Kafka: one partition, ``acks=all``, synced by a majority.

An entry's index is its offset + 1; a group is a Kafka transaction, whose closing mark takes an offset too, so indexes
have gaps. Its guarantees are weaker than the other logs' in one point: Kafka has no compare-and-set, so a rival writer
is not refused, and its idempotence ends with the client's life. Let one log server write. See docs/log.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from logplayer.errors import LogUnavailable
from logplayer.log.kafka_link import Link
from logplayer.log.kafka_map import State
from logplayer.log.kafka_reader import read
from logplayer.log.kafka_writer import KafkaWriter
from logplayer.log.protocol import Info, NewEntry, Record, check_group, check_range


class KafkaLog:
    """A log on a Kafka cluster. Made by ``KafkaLog.open``; one instance belongs to one event loop."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._state = State(link)
        self._writer = KafkaWriter(link, self._state)

    @classmethod
    async def open(cls, hosts: Sequence[str], name: str, *, patience_seconds: float = 30.0) -> KafkaLog:
        """Connect to the cluster, and make the log if it is new."""
        link = Link(tuple(hosts), name, patience_seconds)
        try:
            await asyncio.to_thread(link.open)
        except BaseException:
            await asyncio.to_thread(link.close)
            raise
        return cls(link)

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        """Append the group; it is on the disks of a majority when this returns."""
        check_group(entries)
        self._require_open()
        return await self._writer.ask(entries)

    async def trim(self, up_to: int) -> None:
        self._require_open()
        if up_to >= 1:
            await self._writer.ask((), up_to)

    async def info(self) -> Info:
        """Where the log stands; what others appended is read first. Its bytes are not known: 0."""
        self._require_open()
        await self._state.refresh()
        low, _ = await asyncio.to_thread(self.link.patiently, self.link.bounds)
        return Info(self.link.log_id, low + 1, max(self._state.last, low), self._state.control, 0)

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

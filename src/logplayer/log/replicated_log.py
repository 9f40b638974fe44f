"""The calls that all replicated logs answer through their ``PositionWriter``; each engine adds its reads."""

from __future__ import annotations

from collections.abc import Sequence

from logplayer.errors import LogUnavailable
from logplayer.log.map_blocks import SequenceMap
from logplayer.log.position_writer import Engine, PositionWriter
from logplayer.log.protocol import History, NewEntry, Newest, check_group, check_producer
from logplayer.observe.instruments import ReplicaCounts


class ReplicatedLog:
    """The writing half of a log. One instance belongs to one event loop."""

    def __init__(self, engine: Engine) -> None:
        self._where = engine.where
        self._writer = PositionWriter(engine)
        self._map = SequenceMap(engine)
        self._closed = False

    @property
    def writer_counts(self) -> ReplicaCounts:
        """How long commits take, and how often another writer was first."""
        return self._writer.counts

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        """Append the group; it is on the disks of a majority when this returns."""
        check_group(entries)
        self._require_open()
        return await self._writer.ask(entries)

    async def trim(self, up_to: int, history: History | None = None) -> int:
        self._require_open()
        [trimmed_to] = await self._writer.ask((), max(up_to, 0), history=history)
        return trimmed_to

    async def newest(self, producer: str) -> Newest:
        """What the producer appended last, with what other writers have appended."""
        check_producer(producer)
        self._require_open()
        return Newest(*await self._writer.ask((), producer=producer))

    def _require_open(self) -> None:
        if self._closed:
            raise LogUnavailable(f"the log {self._where} is closed")

    async def close(self) -> None:
        """End everything. Safe to call twice."""
        if not self._closed:
            self._closed = True
            await self._writer.close()
            await self._disconnect()

    async def _disconnect(self) -> None:
        """End what the engine has open."""
        raise NotImplementedError

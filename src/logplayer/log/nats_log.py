"""The replicated log: NATS JetStream on three nodes, synced on a majority before an append is answered.

An entry's index is its position in the stream. Any process may write; positions are compared and set, so two rival
writers never lose, repeat or reorder an entry, they only slow each other down. Reads come from any replica.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import nats.js.errors

from logplayer.errors import LogUnavailable
from logplayer.log.nats_link import Link
from logplayer.log.nats_map import SequenceMap
from logplayer.log.nats_reader import NatsReader
from logplayer.log.nats_writer import NatsWriter
from logplayer.log.protocol import Info, NewEntry, Record, check_group, check_range
from logplayer.wire.entries import varint


class NatsLog:
    """A log on a NATS cluster. Made by ``NatsLog.open``; one instance belongs to one event loop."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.reader = NatsReader(link)
        self._writer = NatsWriter(link, self.reader)
        self._closed = False

    @classmethod
    async def open(cls, hosts: Sequence[str], name: str, *, patience_seconds: float = 30.0) -> NatsLog:
        """Connect to the cluster, and make the log if it is new."""
        link = Link(tuple(hosts), name, patience_seconds)
        try:
            await link.open()
        except BaseException:
            await link.close()
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
        """Where the log stands, from the stream's leader."""
        self._require_open()
        state = (await self.link.info()).state
        first = state.first_seq if state.messages else state.last_seq + 1
        return Info(self.link.log_id, max(first, 1), state.last_seq, await self._control(), state.bytes)

    async def _control(self) -> int:
        link = self.link
        try:
            message = await link.patiently(lambda: link.js.get_last_msg(link.stream, link.control_subject))
            return int(message.seq)
        except nats.js.errors.NotFoundError:
            return (await SequenceMap(link).newest()).control  # It was trimmed; the map remembers.

    async def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        check_range(first, last)
        self._require_open()
        async for records, _ in self.reader.read(first, last):
            yield records

    async def read_frames(self, first: int, last: int | None = None) -> AsyncIterator[bytes]:
        """The same as encoded ``ReadReply`` messages: what the log server sends."""
        check_range(first, last)
        self._require_open()
        async for _, bodies in self.reader.read(first, last):
            parts: list[bytes] = []
            for body in bodies:
                parts += (b"\x0a", varint(len(body)), body)
            yield b"".join(parts)

    def _require_open(self) -> None:
        if self._closed:
            raise LogUnavailable(f"the log {self.link.where} is closed")

    async def close(self) -> None:
        """End everything. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        await self._writer.close()
        await self.reader.close()
        await self.link.close()

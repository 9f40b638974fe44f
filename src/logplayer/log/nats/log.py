"""The replicated log: NATS JetStream on three nodes, synced on a majority before an append is answered.

An entry's index is its position in the stream. Any process may write; positions are compared and set, so two
writers never lose, repeat or reorder an entry, they only slow each other down. Reads come from any replica.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import nats.js.errors

from logplayer.errors import CorruptEntry
from logplayer.log.frame import decode
from logplayer.log.nats.link import NatsLink
from logplayer.log.nats.reader import NatsReader
from logplayer.log.nats.writer import NatsEngine
from logplayer.log.protocol import Info, Record, check_range
from logplayer.log.replicated_log import ReplicatedLog
from logplayer.wire.entries import varint
from logplayer.wire.security import NONE, Security


class NatsLog(ReplicatedLog):
    """A log on a NATS cluster. Made by ``NatsLog.open``; one instance belongs to one event loop."""

    def __init__(self, link: NatsLink) -> None:
        self.link = link
        self.reader = NatsReader(link)
        self._engine = NatsEngine(link, self.reader)
        super().__init__(self._engine)

    @classmethod
    async def open(
        cls, hosts: Sequence[str], name: str, *, security: Security = NONE, patience_seconds: float = 30.0
    ) -> NatsLog:
        """Connect to the cluster, and make the log if it is new."""
        link = NatsLink(tuple(hosts), name, patience_seconds, security)
        try:
            await link.open()
        except BaseException:
            await link.close()
            raise
        return cls(link)

    async def info(self) -> Info:
        """The first and the last index, from the stream's leader."""
        self._require_open()
        state = (await self.link.info()).state
        first = max(state.first_seq if state.messages else state.last_seq + 1, 1)
        trimmed_chain = await self._map.chain_at(first - 1)
        chain = await self._last_value(state.last_seq) if state.messages else trimmed_chain
        control = await self._control()
        return Info(self.link.log_id, first, state.last_seq, control, state.bytes, chain, trimmed_chain)

    async def _last_value(self, last: int) -> bytes:
        """The chain value of the last entry; if the leader has it damaged, from another replica."""
        try:
            message = await self.link.patiently(lambda: self.link.js.get_msg(self.link.stream, seq=last))
        except nats.js.errors.NotFoundError:  # Trimmed since: the map has it.
            return await self._map.chain_at(last)
        try:
            return decode(message.data or b"", last).chain
        except CorruptEntry:
            async for records, _ in self.reader.read(last, last):
                return records[0].chain
            raise

    async def _control(self) -> int:
        link = self.link
        try:
            message = await link.patiently(lambda: link.js.get_last_msg(link.stream, link.control_subject))
            return int(message.seq)
        except nats.js.errors.NotFoundError:
            return (await self._map.newest()).control  # It was trimmed; the map remembers.

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

    async def _disconnect(self) -> None:
        await self.reader.close()
        await self.link.close()

"""Which index each (producer, sequence) of a replicated log got, kept in a stream of its own and never trimmed.

A block covers a stretch of the log, without gaps between blocks: its spans answer for the stretch, and its ``newest``
is every producer's newest sequence at its end. So a new writer reads one block and the entries behind it, and an old
sequence is found by a binary search over blocks. A block only says what is committed; a rival's block says the same.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any, NamedTuple

import nats.js.errors

from logplayer.errors import LogError, LogUnavailable
from logplayer.log.nats_link import TROUBLE, Link
from logplayer.log.sequences import Run, SpanBuilder, index_in_span, pack_json, unpack_json

CACHE_COUNT_MAX = 8


class Block(NamedTuple):
    """Entries up to ``last`` are covered; ``number`` is its place in the map's stream, 0 for none at all."""

    number: int
    last: int
    control: int
    newest: dict[str, int]
    spans: dict[str, tuple[int, str]]

    def find(self, producer: str, sequence: int) -> int | None:
        span = self.spans.get(producer)
        if span is None or sequence < span[0] or sequence > self.newest[producer]:
            return None
        return index_in_span(base64.b64decode(span[1]), sequence - span[0])


NOTHING = Block(0, 0, 0, {}, {})


class Stretch:
    """The entries behind the newest block, as they are confirmed."""

    def __init__(self, after: Block) -> None:
        self.after = after
        self.last = after.last
        self.control = after.control
        self.newest = dict(after.newest)
        self._indexes: dict[tuple[str, int], int] = {}
        self._spans = SpanBuilder()

    def add(self, runs: list[Run], last: int, control: int) -> None:
        for run in runs:
            self._spans.add(run)
            self.newest[run.producer] = run.sequence + run.count - 1
            for i in range(run.count):
                self._indexes[run.producer, run.sequence + i] = run.index + i
        self.last, self.control = last, max(self.control, control)

    def find(self, producer: str, sequence: int) -> int | None:
        return self._indexes.get((producer, sequence))

    def block(self) -> Block:
        spans = {p: (first, base64.b64encode(data).decode()) for p, first, _, data in self._spans.spans()}
        return Block(self.after.number + 1, self.last, self.control, self.newest, spans)


class SequenceMap:
    """The map's stream."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._cache: dict[int, Block] = {}

    async def newest(self) -> Block:
        """The newest block, from the leader."""
        try:
            message = await self._link.patiently(
                lambda: self._link.js.get_last_msg(self._link.map_stream, self._link.map_subject)
            )
        except nats.js.errors.NotFoundError:
            return NOTHING
        return self._decode(message.seq, message.data)

    async def write(self, block: Block) -> None:
        """Add a block behind the one that it continues; ``LogUnavailable`` if that is not the newest any more."""
        data = zlib.compress(pack_json([block.last, block.control, block.newest, block.spans]))
        headers = {"Nats-Expected-Last-Sequence": str(block.number - 1)}
        try:
            await self._link.js.publish(self._link.map_subject, data, headers=headers, timeout=5)
        except (*TROUBLE, nats.js.errors.APIError) as error:
            raise LogUnavailable(f"the sequence map of {self._link.where} was not written ({error})") from None

    async def find(self, producer: str, sequence: int) -> int | None:
        """The index of an old sequence: the first block whose newest reaches it has it."""
        low, high = 1, (await self.newest()).number
        while low < high:
            middle = (low + high) // 2
            if (await self._block(middle)).newest.get(producer, 0) >= sequence:
                high = middle
            else:
                low = middle + 1
        return (await self._block(low)).find(producer, sequence) if high else None

    async def _block(self, number: int) -> Block:
        if number not in self._cache:
            message = await self._link.patiently(lambda: self._link.js.get_msg(self._link.map_stream, seq=number))
            while len(self._cache) >= CACHE_COUNT_MAX:
                del self._cache[next(iter(self._cache))]
            self._cache[number] = self._decode(number, message.data)
        return self._cache[number]

    def _decode(self, number: int, data: bytes) -> Block:
        try:
            value: Any = unpack_json(zlib.decompress(data))
            last, control, newest, spans = value
        except (ValueError, zlib.error) as error:
            raise LogError(f"block {number} of the sequence map of {self._link.where} is damaged ({error})") from None
        return Block(number, last, control, newest, {p: (first, text) for p, (first, text) in spans.items()})

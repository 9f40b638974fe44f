"""Which index each (producer, sequence) of a replicated log got, and its mark, in blocks that are never trimmed.

A block covers a stretch of the log, without gaps between blocks: its spans answer for the stretch, and its ``newest``
is every producer's newest sequence at its end. So a new writer reads one block and the entries after it, and an old
sequence is found by a binary search over blocks. A block only says what is committed; so does another writer's.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any, NamedTuple, Protocol

from logplayer.core.chain import GENESIS
from logplayer.errors import LogError
from logplayer.log.protocol import History
from logplayer.log.sequences import (
    MARK_BYTES,
    Place,
    Run,
    SpanBuilder,
    chain_through,
    indexes_in_span,
    pack_json,
    place_in_span,
    unpack_json,
)

CACHE_COUNT_MAX = 8
Spans = dict[str, tuple[int, str, str]]
"""Of each producer: its first sequence in the block, and the encoded indexes and marks, both as text."""


def pack_spans(builder: SpanBuilder) -> Spans:
    return {
        producer: (first, base64.b64encode(indexes).decode(), base64.b64encode(marks).decode())
        for producer, first, _, indexes, marks in builder.spans()
    }


def kept_spans(spans: dict[str, Any]) -> Spans:
    """Spans as they were stored."""
    return {producer: (first, indexes, marks) for producer, (first, indexes, marks) in spans.items()}


def runs_in_spans(spans: Spans) -> list[Run]:
    """Every entry of the spans, in the order of the log."""
    runs = []
    for producer, (first, indexes, marks) in spans.items():
        known = base64.b64decode(marks)
        for nth, index in enumerate(indexes_in_span(base64.b64decode(indexes))):
            runs.append(Run(producer, first + nth, index, 1, known[nth * MARK_BYTES : (nth + 1) * MARK_BYTES]))
    return sorted(runs, key=lambda run: run.index)


def find_in_spans(spans: Spans, newest: dict[str, int], producer: str, sequence: int) -> Place | None:
    span = spans.get(producer)
    if span is None or not span[0] <= sequence <= newest[producer]:
        return None
    return place_in_span(base64.b64decode(span[1]), base64.b64decode(span[2]), sequence - span[0])


class MapBlock(NamedTuple):
    """Entries up to ``last`` are covered; ``number`` counts blocks from 1 on, 0 for none at all."""

    number: int
    last: int
    control: int
    newest: dict[str, int]
    spans: Spans
    chain: bytes  # The chain value at ``last``.

    def find(self, producer: str, sequence: int) -> Place | None:
        return find_in_spans(self.spans, self.newest, producer, sequence)

    def encode(self) -> bytes:
        return zlib.compress(pack_json([self.last, self.control, self.newest, self.spans, self.chain.hex()]))


NOTHING = MapBlock(0, 0, 0, {}, {}, GENESIS)


class Stretch:
    """The entries after the newest block, as they are confirmed."""

    def __init__(self, after: MapBlock) -> None:
        self.after = after
        self.last = after.last
        self.chain = after.chain
        self.control = after.control
        self.newest = dict(after.newest)
        self.bytes = 0
        self._places: dict[tuple[str, int], Place] = {}
        self._spans = SpanBuilder()

    def add(self, runs: list[Run], last: int, control: int, payload_bytes: int, chain: bytes) -> None:
        for run in runs:
            self._spans.add(run)
            self.newest[run.producer] = run.sequence + run.count - 1
            for i in range(run.count):
                self._places[run.producer, run.sequence + i] = Place(run.index + i, run.mark(run.sequence + i))
        self.last, self.control, self.chain = last, max(self.control, control), chain
        self.bytes += payload_bytes

    def find(self, producer: str, sequence: int) -> Place | None:
        return self._places.get((producer, sequence))

    def block(self) -> MapBlock:
        spans = pack_spans(self._spans)
        return MapBlock(self.after.number + 1, self.last, self.control, self.newest, spans, self.chain)


class BlockStore(Protocol):
    """Where an engine keeps the blocks."""

    where: str

    async def newest_block(self) -> tuple[int, bytes] | None:
        """Number and bytes of the newest block, as the whole cluster knows it."""
        ...

    async def read_block(self, number: int) -> bytes: ...

    async def write_block(self, number: int, data: bytes) -> None:
        """Add a block after ``number - 1``; ``LogUnavailable`` if that is not the newest any more."""
        ...


class SequenceMap:
    """The blocks of one log."""

    def __init__(self, store: BlockStore) -> None:
        self._store = store
        self._cache: dict[int, MapBlock] = {}
        self._known = History(0, GENESIS)

    async def newest(self) -> MapBlock:
        found = await self._store.newest_block()
        return NOTHING if found is None else self._decode(*found)

    async def write(self, block: MapBlock) -> None:
        await self._store.write_block(block.number, block.encode())

    async def find(self, producer: str, sequence: int) -> Place | None:
        """The place of an old sequence: the first block whose newest reaches it has it."""
        low, high = 1, (await self.newest()).number
        while low < high:
            middle = (low + high) // 2
            if (await self._block(middle)).newest.get(producer, 0) >= sequence:
                high = middle
            else:
                low = middle + 1
        return (await self._block(low)).find(producer, sequence) if high else None

    async def chain_at(self, index: int) -> bytes:
        """The chain value at an index that the blocks cover: their marks are enough to compute it."""
        if index != self._known.index:  # The trim point is asked for again and again.
            self._known = History(index, await self._compute_chain(index))
        return self._known.chain

    async def _compute_chain(self, index: int) -> bytes:
        low, high = 1, (await self.newest()).number
        if high == 0:
            return GENESIS
        while low < high:
            middle = (low + high) // 2
            if (await self._block(middle)).last >= index:
                high = middle
            else:
                low = middle + 1
        block = await self._block(low)
        if index >= block.last:
            return block.chain
        before = (await self._block(low - 1)).chain if low > 1 else GENESIS
        return chain_through(before, runs_in_spans(block.spans), index)

    async def _block(self, number: int) -> MapBlock:
        if number not in self._cache:
            data = await self._store.read_block(number)
            while len(self._cache) >= CACHE_COUNT_MAX:
                del self._cache[next(iter(self._cache))]
            self._cache[number] = self._decode(number, data)
        return self._cache[number]

    def _decode(self, number: int, data: bytes) -> MapBlock:
        try:
            value: Any = unpack_json(zlib.decompress(data))
            last, control, newest, spans, chain = value
        except (ValueError, zlib.error) as error:
            raise LogError(f"block {number} of the sequence map of {self._store.where} is damaged ({error})") from None
        return MapBlock(number, last, control, newest, kept_spans(spans), bytes.fromhex(chain))

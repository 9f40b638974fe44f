"""Which index each (producer, sequence) of a log on Kafka got: the newest in memory, the rest in blocks, never trimmed.

A block covers a stretch of the log: its spans answer for the stretch, and its ``newest`` is every producer's newest
sequence at its end. So opening the log reads one block and the entries behind it, and an old sequence is found by a
binary search over blocks. A block only says what is committed.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import zlib
from typing import Any, NamedTuple

from confluent_kafka import Message

from logplayer.errors import CorruptEntry, LogError
from logplayer.log.frame import corrupt, decode
from logplayer.log.kafka_link import Link
from logplayer.log.protocol import Kind
from logplayer.log.sequences import Run, SpanBuilder, index_in_span, pack_json, unpack_json

BLOCK_COUNT = 2000  # Entries per block: what opening the log has to read.
CACHE_COUNT_MAX = 8
HEADER = "logplayer"
_log = logging.getLogger(__name__)


class Block(NamedTuple):
    """Offsets below ``end`` are covered; ``number`` is its place in the map's topic, 0 for none at all."""

    number: int
    end: int
    last: int
    control: int
    newest: dict[str, int]
    spans: dict[str, tuple[int, str]]

    def find(self, producer: str, sequence: int) -> int | None:
        span = self.spans.get(producer)
        if span is None or not span[0] <= sequence <= self.newest[producer]:
            return None
        return index_in_span(base64.b64decode(span[1]), sequence - span[0])


NOTHING = Block(0, 0, 0, 0, {}, {})


class State:
    """Where the log stands, as far as it was read or written. It belongs to one event loop; threads only read records.

    Invariant: every record with an offset below ``end`` is accounted for in ``newest``, ``last`` and ``control``.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._cache: dict[int, Block] = {}
        self._blocks = 0
        self._loading = asyncio.Lock()
        self.loaded = False
        self._start(NOTHING)

    def _start(self, block: Block) -> None:
        self.covered = block.end  # By blocks.
        self.end = block.end
        self.last = block.last
        self.control = block.control
        self.newest = dict(block.newest)
        self._spans = SpanBuilder()
        self._indexes: dict[tuple[str, int], int] = {}

    async def refresh(self) -> int:
        """Read what was committed since; how many entries there were that were not known."""
        async with self._loading:
            if not self.loaded:
                await self._load()
            _, end = await asyncio.to_thread(self._link.patiently, self._link.bounds)
            found = 0
            while self.end < end:
                given = (self._link.topic, self.end, end, BLOCK_COUNT)
                messages = await asyncio.to_thread(self._link.patiently, lambda g=given: self._link.stretch(*g))
                for message in messages:
                    found += self.learn(message.offset() or 0, *_identified(message))
                if len(messages) < BLOCK_COUNT:
                    self.end = max(self.end, end)  # The rest are marks of transactions.
            return found

    async def _load(self) -> None:
        """Start from the newest block."""
        link = self._link
        _, end = await asyncio.to_thread(link.patiently, lambda: link.bounds(link.map_topic))
        self._blocks = end - 1
        block = await asyncio.to_thread(self._block, self._blocks) if self._blocks else NOTHING
        low, _ = await asyncio.to_thread(link.patiently, link.bounds)
        if low > block.end:
            raise LogError(
                f"{link.where} lost the entries {block.end + 1} to {low}, and not by a trim: "
                "what they were cannot be known any more"
            )
        self._start(block)
        self.loaded = True

    def learn(self, offset: int, producer: str, sequence: int, kind: Kind) -> bool:
        """Note the record at ``offset``; False if it is known already."""
        if offset < self.end:
            return False
        newest = self.newest.get(producer, 0)
        if sequence > newest + 1:
            raise LogError(f"{self._link.where} has {producer!r}/{sequence} at index {offset + 1} behind {newest}")
        self.end, self.last = offset + 1, offset + 1
        if kind == Kind.CONTROL:
            self.control = offset + 1
        if sequence <= newest:
            _log.warning(
                "%s holds %r/%d twice, the second time at index %d: two writers were at work, and Kafka does not "
                "keep them apart; let one log server write",
                self._link.where,
                producer,
                sequence,
                offset + 1,
            )
            return True
        self.newest[producer] = sequence
        self._indexes[producer, sequence] = offset + 1
        self._spans.add(Run(producer, sequence, offset + 1, 1))
        return True

    async def find(self, producer: str, sequence: int) -> int:
        """The index of a sequence that was appended before."""
        index = self._indexes.get((producer, sequence))
        if index is None:
            index = await asyncio.to_thread(self._find_in_blocks, producer, sequence)
        if index is None:
            raise LogError(f"the sequence map of {self._link.where} lacks {producer!r}/{sequence}; it is damaged")
        return index

    def _find_in_blocks(self, producer: str, sequence: int) -> int | None:
        low, high = 1, self._blocks
        while low < high:
            middle = (low + high) // 2
            if self._block(middle).newest.get(producer, 0) >= sequence:
                high = middle
            else:
                low = middle + 1
        return self._block(low).find(producer, sequence) if high else None

    async def write_block(self) -> None:
        """Cover everything that is known. What is learned meanwhile belongs to the next block."""
        if self.end == self.covered:
            return
        spans = {p: (first, base64.b64encode(data).decode()) for p, first, _, data in self._spans.spans()}
        block = Block(self._blocks + 1, self.end, self.last, self.control, dict(self.newest), spans)
        data = zlib.compress(pack_json(list(block[1:])))
        self._blocks = block.number
        self._cache[block.number] = block
        self._start(block)
        try:
            self._blocks = await asyncio.to_thread(self._link.write_map, data)
        except BaseException:
            self._cache.clear()
            self.loaded = False  # Whether it is there is not known: read everything again.
            raise

    def _block(self, number: int) -> Block:
        if number not in self._cache:
            data = self._link.map_record(number)
            while len(self._cache) >= CACHE_COUNT_MAX:
                del self._cache[next(iter(self._cache))]
            try:
                end, last, control, newest, spans = unpack_json(zlib.decompress(data))
            except (ValueError, zlib.error) as error:
                raise LogError(f"block {number} of the map of {self._link.where} is damaged ({error})") from None
            spans = {producer: (first, text) for producer, (first, text) in spans.items()}
            self._cache[number] = Block(number, end, last, control, newest, spans)
        return self._cache[number]


def header(sequence: int, kind: Kind) -> dict[str, str | bytes | None]:
    """What stands beside an entry, so that a damaged payload does not take the memory of its sequence with it."""
    return {HEADER: b"%d/%d" % (kind, sequence)}


def _identified(message: Message) -> tuple[str, int, Kind]:
    try:
        record = decode(message.value() or b"", 0)
        return record.producer, record.sequence, record.kind
    except CorruptEntry:
        pass
    try:
        found: dict[Any, Any] = dict(message.headers() or ())
        kind, _, sequence = found[HEADER].partition(b"/")
        return (message.key() or b"").decode(), int(sequence), Kind(int(kind))
    except (KeyError, ValueError):
        raise corrupt((message.offset() or 0) + 1, "it is not an entry of ours") from None

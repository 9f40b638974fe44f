"""Which index each (producer, sequence) of a log on Kafka got, and its mark: the newest in memory, the rest in blocks.

A block covers a stretch of the log: its spans answer for the stretch, and its ``newest`` is every producer's newest
sequence at its end. So opening the log reads one block and the entries after it, and an old sequence is found by a
binary search over blocks. A block only says what is committed; blocks are never trimmed.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from typing import Any, NamedTuple

from confluent_kafka import Message

from logplayer.core.chain import GENESIS, mark_of
from logplayer.errors import CorruptEntry, LogError
from logplayer.log.frame import corrupt, decode
from logplayer.log.kafka.link import KafkaLink
from logplayer.log.map_blocks import Spans, find_in_spans, kept_spans, pack_spans
from logplayer.log.protocol import Kind
from logplayer.log.sequences import NO_MARK, Place, Run, SpanBuilder, pack_json, unpack_json

BLOCK_COUNT = 2000  # Entries per block: what opening the log has to read.
CACHE_COUNT_MAX = 8
TRIMS_KEPT = 4  # A trim that was noted may not have happened yet: the one before it counts then.
HEADER = "logplayer"
_log = logging.getLogger(__name__)


class KafkaMapBlock(NamedTuple):
    """Offsets below ``end`` are covered; ``number`` is its place in the map's topic, 0 for none at all."""

    number: int
    end: int
    last: int
    control: int
    newest: dict[str, int]
    spans: Spans
    chain: str  # The chain value at ``last``, in hexadecimal.
    trims: list[tuple[int, str]]  # The newest trim points, and the chain values there.

    def find(self, producer: str, sequence: int) -> Place | None:
        return find_in_spans(self.spans, self.newest, producer, sequence)


NOTHING = KafkaMapBlock(0, 0, 0, 0, {}, {}, "", [])


class TrimMark(NamedTuple):
    """The log is about to be trimmed up to ``up_to``, where its chain value is ``chain``."""

    up_to: int
    chain: bytes


class KafkaLogState:
    """What the log has, as far as it was read or written. It belongs to one event loop; threads only read records.

    Invariant: every record with an offset below ``end`` is accounted for in ``newest``, ``last`` and ``control``.
    """

    def __init__(self, link: KafkaLink) -> None:
        self._link = link
        self._cache: dict[int, KafkaMapBlock] = {}
        self._blocks = 0
        self._loading = asyncio.Lock()
        self.loaded = False
        self._start(NOTHING)

    def _start(self, block: KafkaMapBlock) -> None:
        self.covered = block.end  # By blocks.
        self.end = block.end
        self.last = block.last
        self.chain = bytes.fromhex(block.chain)
        self._trims = [(up_to, chain) for up_to, chain in block.trims]
        self.control = block.control
        self.newest = dict(block.newest)
        self._spans = SpanBuilder()
        self._places: dict[tuple[str, int], Place] = {}

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

    def trimmed_chain(self, low: int) -> bytes:
        """The chain value at the trim point ``low``, as it was noted before the trim."""
        return next((bytes.fromhex(chain) for up_to, chain in reversed(self._trims) if up_to == low), GENESIS)

    def learn(self, offset: int, producer: str, sequence: int, kind: Kind, mark: bytes, chain: bytes) -> bool:
        """Note the record at ``offset``; False if it is known already."""
        if offset < self.end:
            return False
        newest = self.newest.get(producer, 0)
        if sequence > newest + 1:
            raise LogError(f"{self._link.where} has {producer!r}/{sequence} at index {offset + 1} after {newest}")
        self.end, self.last, self.chain = offset + 1, offset + 1, chain
        if kind == Kind.CONTROL:
            self.control = offset + 1
        if sequence <= newest:
            first = self._places.get((producer, sequence))
            _log.warning(
                "%s holds %r/%d twice, %s at index %d: two writers were at work, and Kafka does not keep them apart; "
                "let one log server write",
                self._link.where,
                producer,
                sequence,
                f"at index {first.index} and again" if first else "the second time",
                offset + 1,
            )
            return True
        self.newest[producer] = sequence
        self._places[producer, sequence] = Place(offset + 1, mark)
        self._spans.add(Run(producer, sequence, offset + 1, 1, mark))
        return True

    async def find(self, producer: str, sequence: int) -> Place:
        """The place of a sequence that was appended before."""
        place = self._places.get((producer, sequence))
        if place is None:
            place = await asyncio.to_thread(self._find_in_blocks, producer, sequence)
        if place is None:
            raise LogError(f"the sequence map of {self._link.where} lacks {producer!r}/{sequence}; it is damaged")
        return place

    def _find_in_blocks(self, producer: str, sequence: int) -> Place | None:
        low, high = 1, self._blocks
        while low < high:
            middle = (low + high) // 2
            if self._block(middle).newest.get(producer, 0) >= sequence:
                high = middle
            else:
                low = middle + 1
        return self._block(low).find(producer, sequence) if high else None

    async def write_block(self, trim: TrimMark | None = None) -> None:
        """Cover everything that is known, and note a trim. What is learned meanwhile belongs to the next block."""
        if self.end == self.covered and trim is None:
            return
        if trim is not None:
            self._trims = [*self._trims[1 - TRIMS_KEPT :], (trim.up_to, trim.chain.hex())]
        spans, newest = pack_spans(self._spans), dict(self.newest)
        state = self.end, self.last, self.control, newest, spans, self.chain.hex(), self._trims
        block = KafkaMapBlock(self._blocks + 1, *state)
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

    def _block(self, number: int) -> KafkaMapBlock:
        if number not in self._cache:
            data = self._link.map_record(number)
            while len(self._cache) >= CACHE_COUNT_MAX:
                del self._cache[next(iter(self._cache))]
            try:
                end, last, control, newest, spans, chain, trims = unpack_json(zlib.decompress(data))
            except (ValueError, zlib.error) as error:
                raise LogError(f"block {number} of the map of {self._link.where} is damaged ({error})") from None
            block = KafkaMapBlock(number, end, last, control, newest, kept_spans(spans), chain, trims)
            self._cache[number] = block
        return self._cache[number]


def header(sequence: int, kind: Kind, chain: bytes) -> dict[str, str | bytes | None]:
    """What is stored beside an entry, so that a damaged payload does not take the memory of its sequence with it."""
    return {HEADER: b"%d/%d/%s" % (kind, sequence, chain.hex().encode())}


def _identified(message: Message) -> tuple[str, int, Kind, bytes, bytes]:
    try:
        record = decode(message.value() or b"", 0)
        return record.producer, record.sequence, record.kind, mark_of(record.payload), record.chain
    except CorruptEntry:
        pass
    try:
        found: dict[Any, Any] = dict(message.headers() or ())
        kind, sequence, chain = found[HEADER].decode().split("/")
        return (message.key() or b"").decode(), int(sequence), Kind(int(kind)), NO_MARK, bytes.fromhex(chain)
    except (KeyError, ValueError):
        raise corrupt((message.offset() or 0) + 1, "it is not an entry of ours") from None

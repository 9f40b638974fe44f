"""Which index a producer's sequence got: the memory that makes append idempotent for as long as the log lives.

``Producers`` is the small state that every append needs: each producer's newest sequence. Older answers are rare (a
retry after a crash), so they are looked up: first among the recent ones in memory, then in the log's headers, then, for
what was trimmed, in spans: a producer's sequences of one stretch of the log with their indexes as deltas, about two
bytes for an entry.

An entry's mark is a hash of its payload. It stays with the index for ever, eight bytes for an entry, so that a sequence
that comes again with another payload is found out even if the first was trimmed long ago.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from logplayer.core.chain import extend, mark_of
from logplayer.log.crc import crc32
from logplayer.log.frame import read_varint
from logplayer.log.protocol import CONTROL_PRODUCER, Kind, NewEntry
from logplayer.log.refusals import producer_conflict, sequence_gap
from logplayer.wire.entries import varint

RECENT_COUNT_MAX = 32768
MARK_BYTES = 8
NO_MARK = bytes(MARK_BYTES)
"""Nothing is known of the payload: it was appended by a version that kept no marks, or it is damaged."""
_new_tuple = tuple.__new__  # A third of the time that the class itself takes.
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


class Run(NamedTuple):
    """``count`` consecutive sequences of one producer at ``count`` consecutive indexes, and their marks in a row."""

    producer: str
    sequence: int
    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    count: int  # type: ignore[assignment]  # Hides tuple's own method.
    marks: bytes

    def mark(self, sequence: int) -> bytes:
        at = (sequence - self.sequence) * MARK_BYTES
        return self.marks[at : at + MARK_BYTES]


class Place(NamedTuple):
    """Where an old sequence is, and the mark of what was appended as it."""

    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    mark: bytes


class AppendPlan(NamedTuple):
    """What one append comes to: an index per entry, and the entries that are new with theirs."""

    indexes: list[int]
    new: list[tuple[int, NewEntry]]


class Producers:
    """Each producer's newest sequence, and the recent answers.

    Invariant: ``newest[p]`` is the highest sequence of p in the log, or in the plans made since.
    """

    def __init__(self) -> None:
        self.newest: dict[str, int] = {}
        # Two generations: to forget the oldest answer at each new one, a dict would search for it ever longer.
        self._recent: dict[tuple[str, int], int] = {}
        self._older: dict[tuple[str, int], int] = {}

    def learn(self, run: Run) -> None:
        """Note entries that are in the log."""
        self.newest[run.producer] = run.sequence + run.count - 1
        for i in range(run.count):
            self._remember(run.producer, run.sequence + i, run.index + i)

    def plan(
        self,
        entries: Sequence[NewEntry],
        next_index: int,
        look_up: Callable[[str, int], int],
        admit: Callable[[int, NewEntry], None],
        compare: Callable[[int, NewEntry], None],
    ) -> AppendPlan:
        """Give indexes from ``next_index`` on to what is new; a gap refuses the whole group and changes nothing.

        So does ``admit``, which is asked about the group's new control entry, of which there is at most one, and
        ``compare``, which is asked whether an entry that is not new is the one at that index.
        """
        newest: dict[str, int] = {}
        fresh: dict[tuple[str, int], int] = {}
        plan = AppendPlan([], [])
        for entry in entries:
            producer, sequence = entry.producer, entry.sequence
            last = newest.get(producer)
            if last is None:
                last = self.newest.get(producer, 0)
            if sequence == last + 1:
                index = next_index + len(plan.new)
                plan.new.append((index, entry))
                newest[producer] = sequence
                fresh[producer, sequence] = index
            elif sequence > last + 1:
                raise sequence_gap(producer, sequence, self.newest.get(producer, 0))
            else:
                key = producer, sequence
                index = fresh.get(key) or self._recent.get(key) or self._older.get(key) or look_up(producer, sequence)
                if index < next_index:
                    compare(index, entry)
                elif entry.payload != plan.new[index - next_index][1].payload:
                    raise producer_conflict(producer, sequence, 0)
            plan.indexes.append(index)
        for index, entry in plan.new:
            if entry.kind:  # CONTROL
                admit(index, entry)
        self.newest.update(newest)
        for (producer, sequence), index in fresh.items():
            self._remember(producer, sequence, index)
        return plan

    def plan_next(self, producer: str, sequence: int, index: int) -> bool:
        """Give ``index`` to an entry if it is the next of its producer, which most are."""
        newest = self.newest
        if producer not in newest or newest[producer] + 1 != sequence:
            return False
        newest[producer] = sequence
        self._remember(producer, sequence, index)
        return True

    def recent(self, producer: str, sequence: int) -> int:
        """The index of a sequence if it is among the recent ones, else 0."""
        key = producer, sequence
        return self._recent.get(key) or self._older.get(key) or 0

    def _remember(self, producer: str, sequence: int, index: int) -> None:
        self._recent[producer, sequence] = index
        if len(self._recent) >= RECENT_COUNT_MAX // 2:
            self._older, self._recent = self._recent, {}


def check_mark(place: Place, entry: NewEntry) -> None:
    """Raise ``ProducerConflict`` unless the entry is what was appended there, as far as that is known."""
    if place.mark != NO_MARK and place.mark != mark_of(entry.payload):
        raise producer_conflict(entry.producer, entry.sequence, place.index)


def runs_of(new: Sequence[tuple[int, NewEntry]], known: Sequence[bytes] = ()) -> list[Run]:
    """The shortest list of runs for entries in index order. ``known`` has their marks, if they are known."""
    runs: list[Run] = []
    producer, sequence, first, count = "", 0, 0, 0
    marks: list[bytes] = []
    known = known or [mark_of(entry[2]) for _, entry in new]
    for (index, (name, number, _, _)), mark in zip(new, known, strict=True):
        if name == producer and number == sequence + count and index == first + count:
            count += 1
            marks.append(mark)
            continue
        if count:
            runs.append(_new_tuple(Run, (producer, sequence, first, count, b"".join(marks))))
        producer, sequence, first, count, marks = name, number, index, 1, [mark]
    if count:
        runs.append(Run(producer, sequence, first, count, b"".join(marks)))
    return runs


def chain_through(before: bytes, runs: Iterable[Run], last: int) -> bytes:
    """The chain value at index ``last``, from the runs up to there and the value before the first of them.

    Only for entries whose marks are known. Which are CONTROL is known from their producer.
    """
    for producer, sequence, index, count, marks in runs:
        if index > last:
            break
        kind = Kind.CONTROL if producer == CONTROL_PRODUCER else Kind.DATA
        for nth in range(min(count, last - index + 1)):
            mark = marks[nth * MARK_BYTES : (nth + 1) * MARK_BYTES]
            before = extend(before, kind, producer, sequence + nth, mark)
    return before


class SpanBuilder:
    """Collects runs, in log order, into one span per producer."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._indexes: dict[str, list[int]] = {}
        self._marks: dict[str, bytearray] = {}

    def add(self, run: Run) -> None:
        self._first.setdefault(run.producer, run.sequence)
        self._indexes.setdefault(run.producer, []).extend(range(run.index, run.index + run.count))
        self._marks.setdefault(run.producer, bytearray()).extend(run.marks)

    def spans(self) -> list[tuple[str, int, int, bytes, bytes]]:
        """(producer, first sequence, last sequence, encoded indexes, marks)."""
        return [
            (
                producer,
                first,
                first + len(self._indexes[producer]) - 1,
                encode_indexes(self._indexes[producer]),
                bytes(self._marks[producer]),
            )
            for producer, first in self._first.items()
        ]


def encode_indexes(indexes: Iterable[int]) -> bytes:
    """Rising indexes as compressed deltas."""
    out, previous = [], 0
    for index in indexes:
        out.append(varint(index - previous))
        previous = index
    return zlib.compress(b"".join(out))


def index_in_span(data: bytes, nth: int) -> int:
    """The index of the span's entry number ``nth``, counted from 0."""
    raw, at, index = zlib.decompress(data), 0, 0
    for _ in range(nth + 1):
        delta, at = read_varint(raw, at)
        index += delta
    return index


def indexes_in_span(data: bytes) -> list[int]:
    """All indexes of a span, in order."""
    raw, at, index = zlib.decompress(data), 0, 0
    out = []
    while at < len(raw):
        delta, at = read_varint(raw, at)
        index += delta
        out.append(index)
    return out


def place_in_span(indexes: bytes, marks: bytes | None, nth: int) -> Place:
    """Index and mark of the span's entry number ``nth``, counted from 0."""
    mark = (marks or b"")[nth * MARK_BYTES : (nth + 1) * MARK_BYTES]
    return Place(index_in_span(indexes, nth), mark or NO_MARK)


def pack_json(value: Any) -> bytes:
    """JSON after its CRC-32: headers decide what is appended, so a flipped bit in one must not go unseen."""
    text = _to_json(value).encode()
    return crc32(text).to_bytes(4, "little") + text


def unpack_json(data: bytes) -> Any:
    """The value of ``pack_json``; ValueError when its CRC does not match."""
    if len(data) < 4 or crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        raise ValueError("a header's checksum does not match")
    return json.loads(data[4:])

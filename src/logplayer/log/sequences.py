"""Which index a producer's sequence got: the memory that makes append idempotent for as long as the log lives.

``Producers`` is the small state that every append needs: each producer's newest sequence. Older answers are rare (a
retry after a crash), so they are looked up: first among the recent ones in memory, then in the log's headers, then, for
what was trimmed, in spans: a producer's sequences of one stretch of the log with their indexes as deltas, about two
bytes for an entry.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from logplayer.errors import SequenceGap
from logplayer.log.crc import crc32
from logplayer.log.frame import read_varint
from logplayer.log.protocol import NewEntry, gap_message
from logplayer.wire.entries import varint

RECENT_COUNT_MAX = 32768
_new_tuple = tuple.__new__  # A third of the time that the class itself takes.
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


class Run(NamedTuple):
    """``count`` consecutive sequences of one producer at ``count`` consecutive indexes."""

    producer: str
    sequence: int
    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    count: int  # type: ignore[assignment]  # Hides tuple's own method.


class Plan(NamedTuple):
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

    def plan(self, entries: Sequence[NewEntry], next_index: int, look_up: Callable[[str, int], int]) -> Plan:
        """Give indexes from ``next_index`` on to what is new; a gap refuses the whole group and changes nothing."""
        newest: dict[str, int] = {}
        fresh: dict[tuple[str, int], int] = {}
        plan = Plan([], [])
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
                raise SequenceGap(gap_message(producer, sequence, last))
            else:
                key = producer, sequence
                index = fresh.get(key) or self._recent.get(key) or self._older.get(key) or look_up(producer, sequence)
            plan.indexes.append(index)
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

    def _remember(self, producer: str, sequence: int, index: int) -> None:
        self._recent[producer, sequence] = index
        if len(self._recent) >= RECENT_COUNT_MAX // 2:
            self._older, self._recent = self._recent, {}


def runs_of(new: Iterable[tuple[int, NewEntry]]) -> list[Run]:
    """The shortest list of runs for entries in index order."""
    runs: list[Run] = []
    producer, sequence, first, count = "", 0, 0, 0
    for index, (name, number, _, _) in new:
        if name == producer and number == sequence + count and index == first + count:
            count += 1
            continue
        if count:
            runs.append(_new_tuple(Run, (producer, sequence, first, count)))
        producer, sequence, first, count = name, number, index, 1
    if count:
        runs.append(Run(producer, sequence, first, count))
    return runs


class SpanBuilder:
    """Collects runs, in log order, into one span per producer."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._indexes: dict[str, list[int]] = {}

    def add(self, run: Run) -> None:
        self._first.setdefault(run.producer, run.sequence)
        self._indexes.setdefault(run.producer, []).extend(range(run.index, run.index + run.count))

    def spans(self) -> list[tuple[str, int, int, bytes]]:
        """(producer, first sequence, last sequence, encoded indexes)."""
        return [
            (producer, first, first + len(self._indexes[producer]) - 1, encode_indexes(self._indexes[producer]))
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


def pack_json(value: Any) -> bytes:
    """JSON behind its CRC-32: headers decide what is appended, so a flipped bit in one must not go unseen."""
    text = _to_json(value).encode()
    return crc32(text).to_bytes(4, "little") + text


def unpack_json(data: bytes) -> Any:
    """The value of ``pack_json``; ValueError when its CRC does not match."""
    if len(data) < 4 or crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        raise ValueError("a header's checksum does not match")
    return json.loads(data[4:])

"""How far does a target lag, in entries, bytes and seconds? Samples of the main stream answer, in bounded memory."""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_right
from contextlib import aclosing
from typing import NamedTuple

from logplayer.errors import LogError
from logplayer.log.protocol import Info, Log, Record

SAMPLES_MAX = 4096


class Sample(NamedTuple):
    """The log up to ``index``: when that entry was committed, and how many bytes the log had by then."""

    index: int  # type: ignore[assignment]  # A field that hides tuple.index, on purpose.
    committed_at_us: int
    bytes: int


class PlayerProgress:
    """A thinning record of the main stream. When it is full, every other sample goes: old times get coarser."""

    def __init__(self) -> None:
        self._samples: list[Sample] = [Sample(0, 0, 0)]
        self._bytes = 0

    def begin(self, oldest: Sample, start: Sample) -> None:
        """What is known of the log before the main stream's start, which this player did not read itself."""
        self._samples = [oldest, start] if oldest.index < start.index else [start]
        self._bytes = start.bytes

    def fetched(self, records: list[Record]) -> None:
        """The main stream read these; the first and the last become samples.

        Without the first one, an entry after an idle time would seem to have been committed during it.
        """
        first, last = records[0], records[-1]
        if len(records) > 1:
            self._samples.append(Sample(first.index, first.committed_at_us, self._bytes + len(first.payload)))
        self._bytes += sum([len(record.payload) for record in records])
        self._samples.append(Sample(last.index, last.committed_at_us, self._bytes))
        if len(self._samples) > SAMPLES_MAX:
            del self._samples[1:-1:2]

    @property
    def newest(self) -> Sample:
        return self._samples[-1]

    def bytes_behind(self, acked: int, end: int = 0) -> int:
        """About how many payload bytes lie between ``acked`` and ``end``; between two samples they count as even.

        What the main stream has not read itself counts as large as the entries before it were on average.
        """
        before, after = self._around(acked)
        read = self.newest.bytes - _between(before, after, acked, before.bytes, after.bytes)
        entries = self.newest.index - self._samples[0].index
        mean = (self.newest.bytes - self._samples[0].bytes) / entries if entries > 0 else 0.0
        return round(read + mean * max(0, end - max(acked, self.newest.index)))

    def seconds_behind(self, acked: int, now_us: int) -> float:
        """How long ago the oldest entry was committed that a target at ``acked`` does not have yet."""
        if acked >= self.newest.index:
            return 0.0
        before, after = self._around(acked)
        missing = max(acked + 1, before.index)
        committed = _between(before, after, missing, before.committed_at_us, after.committed_at_us)
        return max(0.0, (now_us - committed) / 1e6)

    def _around(self, index: int) -> tuple[Sample, Sample]:
        """The samples on both sides of ``index``; both are the same one beyond the ends."""
        position = bisect_right(self._samples, index, key=lambda sample: sample.index)
        last = len(self._samples) - 1
        return self._samples[max(position - 1, 0)], self._samples[min(position, last)]


async def survey(log: Log, info: Info, start: int) -> tuple[Sample, Sample]:
    """Samples of the log's first entry and of ``start``, for a player that begins there: how far does a target lag?

    The bytes between are an estimate from the payloads at both ends. What a log says of its own bytes counts room on
    the disk too, so it is only a bound.
    """
    unknown = Sample(start, time.time_ns() // 1000, 0)
    with contextlib.suppress(LogError):  # Somebody may trim it meanwhile; it is only for the status.
        first = await _batch(log, info.first, info.last)
        newest = await _batch(log, max(start, info.first), info.last)
        seen = [len(record.payload) for record in (*first, *newest)]
        if first and newest:
            bytes_ = round(sum(seen) / len(seen) * (start - info.first + 1))
            bound = min(bytes_, info.bytes) if info.bytes else bytes_  # Some logs do not know their bytes.
            return Sample(info.first - 1, first[0].committed_at_us, 0), Sample(start, newest[0].committed_at_us, bound)
    return unknown, unknown


async def _batch(log: Log, first: int, last: int) -> list[Record]:
    """The first records of ``[first, last]``, as many as come at once."""
    async with aclosing(log.read(first, last)) as batches:  # type: ignore[type-var]  # Logs give generators.
        async for records in batches:
            return list(records)
    return []


def _between(before: Sample, after: Sample, index: int, low: int, high: int) -> float:
    if after.index <= before.index or index <= before.index:
        return low
    return low + (high - low) * min(1.0, (index - before.index) / (after.index - before.index))

"""How far behind is a target, in entries, bytes and seconds? Samples of the main stream answer, in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from logplayer.log.protocol import Record

SAMPLES_MAX = 4096


class Sample(NamedTuple):
    """The log up to ``index``: when that entry was committed, and how many bytes the log had by then."""

    index: int  # type: ignore[assignment]  # A field that hides tuple.index, on purpose.
    committed_at_us: int
    bytes: int


class Progress:
    """A thinning record of the main stream. When it is full, every other sample goes: old times get coarser."""

    def __init__(self) -> None:
        self._samples: list[Sample] = [Sample(0, 0, 0)]
        self._bytes = 0

    def begin(self, oldest: Sample, start: Sample) -> None:
        """What is known of the log in front of the main stream's start, which this player did not read itself."""
        self._samples = [oldest, start] if oldest.index < start.index else [start]
        self._bytes = start.bytes

    def fetched(self, records: list[Record]) -> None:
        """The main stream read these; the last one becomes a sample."""
        self._bytes += sum([len(record.payload) for record in records])
        last = records[-1]
        self._samples.append(Sample(last.index, last.committed_at_us, self._bytes))
        if len(self._samples) > SAMPLES_MAX:
            del self._samples[1:-1:2]

    @property
    def newest(self) -> Sample:
        return self._samples[-1]

    def bytes_behind(self, acked: int) -> int:
        """About how many bytes of the log lie behind ``acked``; between two samples they count as spread evenly."""
        before, after = self._around(acked)
        return round(self.newest.bytes - _between(before, after, acked, before.bytes, after.bytes))

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


def _between(before: Sample, after: Sample, index: int, low: int, high: int) -> float:
    if after.index <= before.index or index <= before.index:
        return low
    return low + (high - low) * min(1.0, (index - before.index) / (after.index - before.index))

"""How far behind is a target, in entries, bytes and seconds? Samples of the main stream answer, in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from logplayer.log.protocol import Record

SAMPLES_MAX = 4096


class Sample(NamedTuple):
    """The log up to ``index``: when that entry was committed, and how many bytes and entries the log had by then."""

    index: int  # type: ignore[assignment]  # A field that hides tuple.index, on purpose.
    committed_at_us: int
    bytes: int
    entries: int


class Progress:
    """A thinning record of the main stream. When it is full, every other sample goes: old times get coarser."""

    def __init__(self) -> None:
        self._samples: list[Sample] = [Sample(0, 0, 0, 0)]
        self._bytes = 0
        self._entries = 0

    def fetched(self, records: list[Record]) -> None:
        """The main stream read these; the last one becomes a sample."""
        self._bytes += sum([len(record.payload) for record in records])
        self._entries += len(records)
        last = records[-1]
        self._samples.append(Sample(last.index, last.committed_at_us, self._bytes, self._entries))
        if len(self._samples) > SAMPLES_MAX:
            del self._samples[1:-1:2]

    @property
    def newest(self) -> Sample:
        return self._samples[-1]

    def at(self, index: int) -> Sample:
        """The newest sample that is not behind ``index``."""
        position = bisect_right(self._samples, index, key=lambda sample: sample.index)
        return self._samples[max(position - 1, 0)]

    def seconds_behind(self, acked: int, now_us: int) -> float:
        """How long ago the oldest entry was committed that a target at ``acked`` does not have yet."""
        if acked >= self.newest.index:
            return 0.0
        position = bisect_right(self._samples, acked, key=lambda sample: sample.index)
        return max(0.0, (now_us - self._samples[position].committed_at_us) / 1e6)

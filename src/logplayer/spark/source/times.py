"""Finds an index by commit time: ``startingTimestamp`` and ``endingTimestamp``.

Entries get their commit time from the clock of the log's writer, in the order of their indexes. So the place is found
by halving the range, with one short read for each step. If the writer's clock was set back in between, times are not in
order there, and the search finds one of the places that fit: a filter on ``committed_at`` is exact in that case too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

from logplayer.log.protocol import Info, Log
from logplayer.spark import event_loop
from logplayer.spark.source.archive import Archive, times_of


def first_since(log: Log, info: Info, kept: Archive | None, at_us: int) -> int:
    """The first index whose entry was committed at ``at_us`` or later; ``info.last + 1`` if there is none."""
    files = [file for file in kept.files() if file[0] < info.first] if kept is not None else []
    nth = bisect_left(files, at_us, key=lambda file: times_of(file[2])[1][-1])
    if nth < len(files):
        indexes, times = times_of(files[nth][2])
        return indexes[bisect_left(times, at_us)]
    return search(info.first, info.last, at_us, lru_cache(lambda index: _time_at(log, index, info.last)))


def search(first: int, last: int, at_us: int, time_at: Callable[[int], int]) -> int:
    """The first index of ``[first, last]`` with this time or a later one; ``last + 1`` if there is none."""
    return first + bisect_left(range(first, last + 1), at_us, key=time_at)


def _time_at(log: Log, index: int, last: int) -> int:
    """When the entry at ``index`` was committed, or the first one after it: indexes may have gaps."""

    async def read() -> int:
        records = log.read(index, last)
        try:
            async for some in records:
                if some:
                    return some[0].committed_at_us
        finally:
            close = getattr(records, "aclose", None)
            if close is not None:
                await close()
        return 1 << 62  # Nothing is there up to the end: what is looked for is not later.

    return event_loop.run(read())

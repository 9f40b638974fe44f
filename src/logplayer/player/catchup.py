"""Catch-up readers: they read what lagging targets missed, on a budget of their own, so the main stream never waits.

At most ``readers_max`` read at once, each a chunk of the log at a time. Targets that lag at about the same place, as
all do after a restart, share chunks: the last few are kept.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import NamedTuple

from logplayer.core import event
from logplayer.core.effect import ReadCatchUp
from logplayer.core.entry import Entry
from logplayer.errors import LogPlayerError, Trimmed
from logplayer.log.protocol import Log
from logplayer.player.entries import decode_entries
from logplayer.player.session import Tell

CHUNKS_KEPT = 4
STEP_ENTRIES_MAX = 1000  # What the core takes in one step. Too high: the main stream waits for that step.
NEAR = 1000  # A read that began less than this in front probably brings what is wanted.
DECODED_AT_ONCE = 200  # Records that are decoded before the loop may do something else.


class Chunk(NamedTuple):
    """Every entry of ``[first, through]``."""

    first: int
    through: int
    entries: list[Entry]

    def part(self, first: int, last: int) -> tuple[int, list[Entry]]:
        """Entries from ``first`` to ``last`` at most, few enough for one step of the core, and up to where they go."""
        low = bisect_left(self.entries, first, key=_index)
        high = bisect_right(self.entries, last, key=_index)
        if high - low > STEP_ENTRIES_MAX:
            high = low + STEP_ENTRIES_MAX
            return self.entries[high - 1].index, self.entries[low:high]
        return min(self.through, last), self.entries[low:high]


def _index(entry: Entry) -> int:
    return entry.index


class CatchUp:
    """All catch-up readers of one player."""

    def __init__(
        self, log: Log, readers_max: int, chunk_bytes: int, tell: Tell, report: Callable[[int, str], None]
    ) -> None:
        self._log = log
        self._chunk_bytes = chunk_bytes
        self._tell = tell
        self._report = report
        self._slots = asyncio.Semaphore(readers_max)
        self._chunks: deque[Chunk] = deque(maxlen=CHUNKS_KEPT)
        self._under_way: dict[int, asyncio.Future[None]] = {}  # first index -> done when that chunk is read
        self._tasks: set[asyncio.Task[None]] = set()

    def read(self, request: ReadCatchUp) -> None:
        """Start reading; the core hears of it."""
        task = asyncio.get_running_loop().create_task(self._read(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Stop all readers."""
        for task in self._tasks:
            task.cancel()

    async def _read(self, request: ReadCatchUp) -> None:
        target, session = request.target, request.session
        try:
            async with self._slots:
                chunk = await self._chunk(request.first, request.last)
        except Trimmed as error:
            self._tell(event.CatchUpTrimmed(target, session, error.first))
            return
        except (LogPlayerError, OSError) as error:
            self._tell(event.CatchUpFailed(target, session, str(error)))
            return
        through, entries = chunk.part(request.first, request.last)
        self._tell(event.CaughtUp(target, session, request.first - 1, through, entries))

    async def _chunk(self, first: int, last: int) -> Chunk:
        """A chunk that holds ``first``: one that is kept, one that another reader is reading, or a new one."""
        begun = max((start for start in self._under_way if first - NEAR < start <= first), default=None)
        if begun is not None:
            await asyncio.wait([self._under_way[begun]])
        found = self._find(first)
        if found is not None:
            return found
        done = self._under_way[first] = asyncio.get_running_loop().create_future()
        try:
            return await self._read_chunk(first, last)
        finally:
            done.set_result(None)
            if self._under_way.get(first) is done:
                del self._under_way[first]

    def _find(self, first: int) -> Chunk | None:
        for chunk in self._chunks:
            if chunk.first <= first <= chunk.through:
                return chunk
        return None

    async def _read_chunk(self, first: int, last: int) -> Chunk:
        entries: list[Entry] = []
        bytes_ = 0
        through = last
        async with aclosing(self._log.read(first, last)) as batches:  # type: ignore[type-var]  # Logs give generators.
            async for records in batches:
                for start in range(0, len(records), DECODED_AT_ONCE):
                    entries += decode_entries(records[start : start + DECODED_AT_ONCE], self._report)
                    await asyncio.sleep(0)  # Decoding is work on the loop: let the main stream pass.
                bytes_ += sum([len(record.payload) for record in records])
                if bytes_ >= self._chunk_bytes:
                    through = entries[-1].index
                    break
        chunk = Chunk(first, through, entries)
        self._chunks.append(chunk)
        return chunk

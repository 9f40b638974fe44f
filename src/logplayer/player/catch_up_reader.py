"""Catch-up readers: they read what lagging targets missed, on a budget of their own, so the main stream never waits.

At most ``readers_max`` read at once, each a chunk of the log at a time. Targets that lag at about the same place, as
all do after a restart, share chunks: the last few are kept.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import deque
from contextlib import aclosing
from typing import NamedTuple

from logplayer.core import events
from logplayer.core.effects import ReadCatchUp
from logplayer.core.entry import Entry
from logplayer.errors import CorruptEntry, LogDiverged, LogPlayerError, Trimmed
from logplayer.log.chain import require_continued
from logplayer.log.protocol import Log, Record
from logplayer.player.entries import read_entries
from logplayer.player.session import Tell

CHUNKS_KEPT = 4
STEP_ENTRIES_MAX = 1000  # What the core takes in one step. Too high: the main stream waits for that step.
NEAR = 1000  # A read that began less than this in front probably brings what is wanted.


class ChunkPart(NamedTuple):
    """The entries of a chunk that are given to the core in one step."""

    through: int
    entries: list[Entry]
    before: bytes  # The chain value before the first of them,
    chain: bytes  # and the one at ``through``.


class CatchUpChunk(NamedTuple):
    """Every entry of ``[first, through]``; ``before`` is the chain value that they continue."""

    first: int
    through: int
    entries: list[Entry]
    before: bytes

    def part(self, first: int, last: int) -> ChunkPart:
        """Entries from ``first`` to ``last`` at most, few enough for one step of the core, and up to where they go."""
        entries = self.entries
        low = bisect_left(entries, first, key=_index)
        high = bisect_right(entries, last, key=_index)
        through = min(self.through, last)
        if high - low > STEP_ENTRIES_MAX:
            high = low + STEP_ENTRIES_MAX
            through = entries[high - 1].index
        before = entries[low - 1].chain if low else self.before
        return ChunkPart(through, entries[low:high], before, entries[high - 1].chain if high > low else before)


def _index(entry: Entry) -> int:
    return entry.index


class CatchUp:
    """All catch-up readers of one player."""

    def __init__(self, log: Log, readers_max: int, chunk_bytes: int, tell: Tell, unfenced: bool = False) -> None:
        self._log = log
        self._unfenced = unfenced  # Its chain may break, and the main stream warns of that.
        self._chunk_bytes = chunk_bytes
        self._tell = tell
        self._slots = asyncio.Semaphore(readers_max)
        self._chunks: deque[CatchUpChunk] = deque(maxlen=CHUNKS_KEPT)
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
                chunk = await self._chunk(request.first, request.last, request.chain)
        except Trimmed as error:
            self._tell(events.CatchUpTrimmed(target, session, error.first))
            return
        except LogDiverged as error:
            self._tell(events.CatchUpDiverged(target, session, str(error)))
            return
        except (LogPlayerError, OSError) as error:
            self._tell(events.CatchUpFailed(target, session, str(error)))
            return
        through, entries, before, value = chunk.part(request.first, request.last)
        if before != request.chain:
            error_text = f"entry {request.first} of the log does not continue what the target has"
            self._tell(events.CatchUpDiverged(target, session, error_text))
        else:
            self._tell(events.CaughtUp(target, session, request.first - 1, through, entries, value))

    async def _chunk(self, first: int, last: int, before: bytes) -> CatchUpChunk:
        """A chunk that holds ``first``: one that is kept, one that another reader is reading, or a new one."""
        begun = max((start for start in self._under_way if first - NEAR < start <= first), default=None)
        if begun is not None:
            await asyncio.wait([self._under_way[begun]])
        found = self._find(first)
        if found is not None:
            return found
        done = self._under_way[first] = asyncio.get_running_loop().create_future()
        try:
            return await self._read_chunk(first, last, before)
        finally:
            done.set_result(None)
            if self._under_way.get(first) is done:
                del self._under_way[first]

    def _require_continued(self, record: Record, before: bytes) -> None:
        if not self._unfenced:
            require_continued(record.index - 1, before, record)

    def _find(self, first: int) -> CatchUpChunk | None:
        for chunk in self._chunks:
            if chunk.first <= first <= chunk.through:
                return chunk
        return None

    async def _read_chunk(self, first: int, last: int, before: bytes) -> CatchUpChunk:
        """Each batch of the log must continue the one before, and the first of them what the target has."""
        value = before
        entries: list[Entry] = []
        bytes_ = 0
        through = last
        try:
            async with aclosing(self._log.read(first, last)) as batches:  # type: ignore[type-var]  # Logs give generators.
                async for records in batches:
                    self._require_continued(records[0], value)
                    value = records[-1].chain
                    entries += read_entries(records)
                    await asyncio.sleep(0)  # A log may have much at hand: let the main stream pass.
                    bytes_ += sum([len(record.payload) for record in records])
                    if bytes_ >= self._chunk_bytes:
                        through = entries[-1].index
                        break
        except CorruptEntry:
            if not entries:
                raise
            through = entries[-1].index  # What is whole is delivered; the next read begins at the damage and tells.
        chunk = CatchUpChunk(first, through, entries, before)
        self._chunks.append(chunk)
        return chunk

"""The newest entries of the main stream, kept while a target is about to join it.

A read of the log takes a while, and under steady load the main stream has moved on by the time it is answered. A target
that could only read would follow it at a read's distance for ever. So the entries that are dispatched meanwhile are
kept here, within the bounds of one queue, and the last stretch comes from memory, in the same step as the join.
"""

from __future__ import annotations

from bisect import bisect_right

from logplayer.core.chain import GENESIS
from logplayer.core.entry import Entry


class TailBuffer:
    """Every entry of ``(after, current]``, where ``after`` moves on when the bounds are reached."""

    __slots__ = ("_after", "_bytes_max", "_chain", "_count_max", "bytes", "entries", "keeping")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._after = 0
        self._chain = GENESIS  # The chain value at ``after``.
        self.entries: list[Entry] = []
        self.bytes = 0
        self.keeping = False

    def __repr__(self) -> str:
        return (
            f"<TailBuffer keeping={self.keeping} after={self._after} {len(self.entries)} entries, {self.bytes} bytes>"
        )

    def keep(self, current: int, chain: bytes) -> None:
        """Keep what is dispatched after ``current``. If something is kept already, it stays."""
        if not self.keeping:
            self.keeping = True
            self._after = current
            self._chain = chain

    def add(self, entry: Entry) -> None:
        """The main stream dispatched the entry, and the router has split it."""
        self.entries.append(entry)
        self.bytes += _bytes_of(entry)
        while self.entries and (len(self.entries) > self._count_max or self.bytes > self._bytes_max):
            oldest = self.entries.pop(0)
            self._after = oldest.index
            self._chain = oldest.chain
            self.bytes -= _bytes_of(oldest)

    def since(self, index: int, chain: bytes) -> list[Entry] | None:
        """Every dispatched entry after ``index``, or None if not all of them are kept.

        Nor if the chain value there is another one: then the entries do not continue what is meant.
        """
        if not self.keeping or index < self._after:
            return None
        at = bisect_right(self.entries, index, key=_index)
        if chain != (self.entries[at - 1].chain if at else self._chain):
            return None
        return self.entries[at:]

    def forget(self) -> None:
        """Nobody needs it, or the main stream has jumped."""
        self.keeping = False
        self.entries.clear()
        self.bytes = 0


def _index(entry: Entry) -> int:
    return entry.index


def _bytes_of(entry: Entry) -> int:
    return sum([len(part) for part in (entry.parts or {}).values()])

"""Cuts a range of the log, and of its archive, into pieces that tasks read side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from logplayer.errors import Trimmed
from logplayer.log.open import LogPlace
from logplayer.log.protocol import Info, Record
from logplayer.spark import event_loop
from logplayer.spark.source import archive, batches


class Piece(NamedTuple):
    """Entries ``[first, last]``; ``path`` is the archive's file that holds them, empty if the log does."""

    first: int
    last: int
    path: str = ""

    def records(self, log: LogPlace) -> Iterator[list[Record]]:
        """The piece's records in batches."""
        if not self.path:
            yield from event_loop.read_range(log, self.first, self.last)
            return
        for batch in archive.read_file(self.path, self.first, self.last):
            yield batches.records_of(batch)

    def raw(self, log: LogPlace) -> Iterator[pa.RecordBatch]:
        """The piece as raw Arrow batches; from the archive they come as they are."""
        if not self.path:
            for records in event_loop.read_range(log, self.first, self.last):
                yield batches.raw_batch(records)
            return
        for batch in archive.read_file(self.path, self.first, self.last):
            yield batch.select(batches.RAW_SCHEMA.names).cast(batches.RAW_SCHEMA)


def plan(info: Info, first: int, last: int, kept: archive.Archive | None, task_bytes: int, tasks: int) -> list[Piece]:
    """Pieces that cover ``[first, last]`` without a gap: the archive as far as it reaches, then the log.

    Raises Trimmed if a part of the range is in neither.
    """
    pieces: list[Piece] = []
    at = first
    if kept is not None:
        for low, high, path in kept.files():
            if high >= at and low <= last and low <= at:
                pieces.append(Piece(at, min(high, last), path))
                at = min(high, last) + 1
    if at > last:
        return pieces
    if at < info.first:
        where = "neither the log nor its archive has" if kept else "the log no longer has"
        raise Trimmed(
            f"{where} entry {at}; the first that can be read is {info.first}: start there, or name the archive",
            info.first,
        )
    return pieces + cut(at, last, entries_per_task(info, at, last, task_bytes, tasks))


def readable(info: Info, first: int, last: int, kept: archive.Archive | None) -> list[tuple[int, int]]:
    """The parts of ``[first, last]`` that the archive or the log has, in order."""
    found = []
    at = first
    if kept is not None:
        low, high = max(first, kept.begin), min(last, kept.through)
        if low <= high and low < info.first:
            found.append((low, high))
            at = high + 1
    if max(at, info.first) <= last:
        found.append((max(at, info.first), last))
    return found


def cut(first: int, last: int, count: int) -> list[Piece]:
    """``[first, last]`` in pieces of ``count`` entries."""
    return [Piece(at, min(at + count - 1, last)) for at in range(first, last + 1, count)]


def entries_per_task(info: Info, first: int, last: int, task_bytes: int, tasks: int) -> int:
    """So many entries that a task reads about ``task_bytes``, and that there is work for ``tasks`` of them."""
    return max(1, min(task_bytes // mean_entry_bytes(info), -(-(last - first + 1) // tasks)))


def mean_entry_bytes(info: Info) -> int:
    """What an entry takes in the log, on average."""
    return max(64, info.bytes // max(1, info.last - info.first + 1))

"""What a file log knows of old entries: where a producer's sequence is, and the mark of what was appended as it.

Segments answer from their headers, what was trimmed is in the history; the entries themselves are never read. Blocking:
the writer asks in its own thread, a reader of another process's log in one of its threads.
"""

from __future__ import annotations

import contextlib
import sqlite3
from bisect import bisect_left, bisect_right

from logplayer.errors import LogError, LogUnavailable
from logplayer.log.file import segment
from logplayer.log.file.directory import Directory
from logplayer.log.protocol import NewEntry, Newest
from logplayer.log.sequences import Place, Run, check_mark


class Past:
    """Asked by one thread at a time."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._chunk: tuple[int, int, list[Run]] = (1, 0, [])  # The last one asked for: retries come in a row.

    def find(self, producer: str, sequence: int) -> int:
        """The first index of an old sequence: from the headers of its segment, or from the history."""
        firsts = self._directory.segments()
        nth = bisect_left(firsts, sequence, key=lambda first: self._newest_at_start(first, producer)) - 1
        if nth >= 0:
            with self._opened(firsts[nth]) as db:
                for _, _, head in segment.headers(db):
                    for run in head.runs:
                        if run.producer == producer and run.sequence <= sequence < run.sequence + run.count:
                            return run.index + sequence - run.sequence
        return self._trimmed(producer, sequence).index

    def compare(self, index: int, entry: NewEntry, newest: sqlite3.Connection | None) -> None:
        """Raise ``ProducerConflict`` unless ``entry`` is the one at ``index``.

        ``newest`` is the newest segment, if the index is in there: so nothing is opened where a disk may be full.
        """
        check_mark(self._place(index, entry.producer, entry.sequence, newest), entry)

    def _place(self, index: int, producer: str, sequence: int, newest: sqlite3.Connection | None) -> Place:
        first, last, runs = self._chunk
        if not first <= index <= last:
            firsts = self._directory.segments()
            nth = bisect_right(firsts, index) - 1
            if nth < 0:
                return self._trimmed(producer, sequence)
            with contextlib.nullcontext(newest) if newest is not None else self._opened(firsts[nth]) as db:
                self._chunk = first, last, runs = segment.header_at(db, index)
        run = runs[bisect_right(runs, index, key=lambda run: run.index) - 1]
        return Place(index, run.mark(run.sequence + index - run.index))

    def chain(self, index: int) -> bytes:
        """The chain value at an index of a sealed segment."""
        firsts = self._directory.segments()
        path = self._directory.segment(firsts[bisect_right(firsts, index) - 1])
        with contextlib.closing(segment.connect_sealed(path)) as db:
            return segment.read_chain(db, index)

    def newest(self, producer: str) -> Newest:
        """The producer's newest entry, as the segments have it: for those who do not write the log."""
        try:
            return self._read_newest(producer)
        except sqlite3.OperationalError as error:  # The writer may have trimmed a segment under our hands.
            raise LogUnavailable(f"{self._directory.path} cannot be read now ({error}); ask again") from None

    def _read_newest(self, producer: str) -> Newest:
        before = 0
        for first in reversed(self._directory.segments()):
            with self._opened(first) as db:
                found = Newest(0, 0)
                for _, _, head in segment.headers(db):
                    for run in head.runs:
                        if run.producer == producer:
                            found = Newest(run.sequence + run.count - 1, run.index + run.count - 1)
                if found.sequence:
                    return found
                before = segment.read_start(db).newest.get(producer, 0)
                if not before:
                    return found
        return Newest(before, self._trimmed(producer, before).index)

    def _newest_at_start(self, first: int, producer: str) -> int:
        with self._opened(first) as db:
            return segment.read_start(db).newest.get(producer, 0)

    def _opened(self, first: int) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(segment.connect(self._directory.segment(first)))

    def _trimmed(self, producer: str, sequence: int) -> Place:
        place = self._directory.trimmed_place(producer, sequence)
        if place is None:
            raise LogError(
                f"the index of sequence {sequence} of producer {producer!r} is in neither a segment nor history.db "
                f"of {self._directory.path}; restore history.db from a backup"
            )
        return place

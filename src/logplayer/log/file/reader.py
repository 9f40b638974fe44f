"""Reads the segments of a file log, in whatever process. Blocking: the file log calls it in threads."""

from __future__ import annotations

import contextlib
import sqlite3
from bisect import bisect_right
from pathlib import Path

from logplayer.errors import CorruptEntry, LogError, LogFormatError, LogUnavailable, Trimmed
from logplayer.log.file import segment
from logplayer.log.file.directory import Directory
from logplayer.log.file.segment import FrameChunk
from logplayer.log.frame import corrupt, decode_frames
from logplayer.log.protocol import Info, Record
from logplayer.log.refusals import trimmed


class SegmentReader:
    """A position-free reader: it keeps the segment open that it read last. Not for two threads at once."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._first = 0
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
        self._first = 0

    def chunks(self, at: int, bytes_max: int) -> list[FrameChunk]:
        """Chunks from the one with index ``at`` on; empty if ``at`` is not there yet.

        Raises ``Trimmed`` when the segment is gone. A segment that a newer one follows is complete, so an entry
        that is missing from it is damage and not the future.
        """
        firsts = self._directory.segments()
        nth = bisect_right(firsts, at) - 1
        if nth < 0:
            raise self._trimmed(at)
        sealed = nth + 1 < len(firsts)
        try:
            found = segment.read_chunks(self._open(firsts[nth], sealed), at, bytes_max)
            if sealed and not found:
                raise corrupt(at, "it is missing from its segment")
        except (sqlite3.OperationalError, CorruptEntry) as error:
            self.close()
            if firsts[nth] not in self._directory.segments():
                raise self._trimmed(at) from None  # It was deleted under our hands: not damage, but the past.
            if isinstance(error, CorruptEntry):
                raise
            raise _unreadable(self._directory.segment(firsts[nth]), error) from None
        return found

    def _open(self, first: int, sealed: bool = False) -> sqlite3.Connection:
        if self._db is None or self._first != first:
            self.close()
            path = self._directory.segment(first)
            self._db, self._first = segment.connect_sealed(path) if sealed else segment.connect(path), first
        return self._db

    def info(self) -> Info:
        """The first and the last index, from the newest segment."""
        while True:
            firsts = self._directory.segments()
            if not firsts:
                raise LogFormatError(f"there is no log at {self._directory.path}")
            try:
                db = self._open(firsts[-1])
                start, (trim, trimmed_chain) = segment.read_start(db), segment.read_trim(db)
                last, control, chain = segment.read_tail(db)
            except sqlite3.DatabaseError as error:
                self.close()
                if firsts == self._directory.segments():
                    raise _unreadable(self._directory.segment(firsts[-1]), error) from None
                continue  # A newer segment took its place meanwhile.
            size = self._directory.bytes_on_disk()
            return Info(start.log_id, trim, last, control, size, chain, trimmed_chain)

    def _trimmed(self, at: int) -> Trimmed:
        first = at + 1
        with contextlib.suppress(LogFormatError):
            first = self.info().first
        return trimmed(at, first)


def read_record(directory: Directory, index: int, first: int) -> Record | LogError:
    """The entry at ``index`` of a log that begins at ``first``, or what is wrong with it."""
    if index < first:
        return trimmed(index, first)
    try:
        with contextlib.closing(SegmentReader(directory)) as reader:
            for chunk in reader.chunks(index, 1):
                for record in decode_frames(chunk.data, chunk.first, index, index):
                    return record
    except CorruptEntry as damage:
        return damage
    return corrupt(index, "it is missing from its segment")


def _unreadable(path: Path, error: sqlite3.DatabaseError) -> LogUnavailable:
    return LogUnavailable(f"{path} cannot be read: {error}; check the disk and its room")

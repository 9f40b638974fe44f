"""Moves committed pages from write-ahead logs into their databases, in a thread and on connections of its own.

So no append waits for it. A segment has its own write-ahead log, which therefore never outgrows the segment; it is
used again by a later one when the segment is sealed.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from pathlib import Path

from logplayer.log.segment import Chunk, connect, wal_of
from logplayer.log.spare import Spare

EVERY_BYTES = 4 * 1024 * 1024  # So that no append meets a long sync of the database.


class Checkpointer:
    """Best effort: a checkpoint that fails (a full disk, a busy reader) is made up for by a later one."""

    def __init__(self, spare: Spare, spare_bytes: int) -> None:
        self._spare = spare
        self._spare_bytes = spare_bytes
        self._jobs: queue.SimpleQueue[tuple[Path, sqlite3.Connection | None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="logplayer-log-checkpoint", daemon=True)
        self._bytes = 0
        self._released: set[Path] = set()
        self.at_rest = threading.Lock()  # Who holds it need not share the last of the room with a checkpoint.

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def wrote(self, path: Path, chunks: list[Chunk]) -> None:
        """Called by the writer after each commit."""
        self._bytes += sum(len(chunk.data) for chunk in chunks)
        if self._bytes >= EVERY_BYTES:
            self._bytes = 0
            self._jobs.put((path, None))

    def seal(self, path: Path, db: sqlite3.Connection) -> None:
        """The segment is complete: put all of it into its database and close the writer's connection."""
        self._bytes = 0
        self._jobs.put((path, db))

    def release(self, path: Path) -> None:
        """The segment is about to be deleted; what is still to be done for it is void."""
        self._released.add(path)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            path, sealed = job
            with self.at_rest:
                with contextlib.suppress(sqlite3.Error, OSError):
                    if path not in self._released:
                        self._finish(path, sealed) if sealed else self._checkpoint(path)
                if sealed is not None:
                    with contextlib.suppress(sqlite3.Error):
                        sealed.close()  # A last connection makes a checkpoint of its own.

    def _finish(self, path: Path, sealed: sqlite3.Connection) -> None:
        """All pages into the database; the write-ahead log is spare then, unless somebody still reads from it."""
        sealed.execute("PRAGMA busy_timeout=200")
        busy, frames, moved = sealed.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        if not busy and frames == moved:
            self._spare.keep(wal_of(path), self._spare_bytes)

    @staticmethod
    def _checkpoint(path: Path) -> None:
        db = connect(path, write=True)
        try:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            db.close()

"""Moves committed pages from write-ahead logs into their databases, in a thread and on connections of its own.

So no append waits for it. A segment has its own write-ahead log; it is used again by a later one when the segment is
sealed.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
from pathlib import Path

from logplayer.log.segment import Chunk, connect, wal_of
from logplayer.log.spare import Spare

BUSY_MS = 200  # How long it waits for readers.
EVERY_BYTES = 4 * 1024 * 1024  # So that no append meets a long sync of the database.


class Checkpointer:
    """Best effort: a checkpoint that fails (a full disk, a busy reader) is made up for by a later one."""

    def __init__(self, spare: Spare, spare_bytes: int) -> None:
        self._spare = spare
        self._spare_bytes = spare_bytes
        self._jobs: queue.SimpleQueue[tuple[Path, sqlite3.Connection | None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="logplayer-log-checkpoint", daemon=True)
        self._bytes = 0
        self._open: tuple[Path, sqlite3.Connection] | None = None  # The segment that grows: to open it takes long.
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
        self._jobs.put((path, None))  # It may still be open here: its room comes back when it is closed.

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            path, sealed = job
            with self.at_rest:
                if sealed is not None or path in self._released:
                    self._close()
                with contextlib.suppress(sqlite3.Error, OSError):
                    if path not in self._released:
                        self._finish(path, sealed) if sealed else self._checkpoint(path)
                if sealed is not None:
                    self._close()
                    with contextlib.suppress(sqlite3.Error):
                        sealed.close()  # A last connection makes a checkpoint of its own.
        self._close()

    def _finish(self, path: Path, sealed: sqlite3.Connection) -> None:
        """All pages into the database; the write-ahead log is spare then, unless somebody has the segment open."""
        sealed.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        busy, frames, moved = sealed.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        if busy or frames != moved:
            return
        self._spare.hold(wal_of(path))
        sealed.close()
        # In this order: who deletes a trimmed segment says so first, and must not be taken for SQLite.
        if self._spare.alone and path not in self._released:
            self._spare.keep(self._spare_bytes)
        else:
            self._spare.let_go()
            self._checkpoint(path, "TRUNCATE")

    def _checkpoint(self, path: Path, how: str = "PASSIVE") -> None:
        if self._open is None or self._open[0] != path:
            self._close()
            self._open = path, connect(path, write=True)
        try:
            self._open[1].execute(f"PRAGMA busy_timeout={BUSY_MS}")
            self._open[1].execute(f"PRAGMA wal_checkpoint({how})")
        except sqlite3.Error:
            self._close()
            raise

    def _close(self) -> None:
        if self._open is not None:
            (_, db), self._open = self._open, None
            with contextlib.suppress(sqlite3.Error):
                db.close()

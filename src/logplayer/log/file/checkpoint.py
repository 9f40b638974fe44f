"""Moves committed pages from write-ahead logs into their databases, in a thread and on connections of its own.

So no append waits for it. A segment has its own write-ahead log; it is used again by a later one when the segment is
sealed. Until then it grows by a page of 32 KB or more with each commit, however small the entry is; and while appends
go on, a checkpoint never ends with all of it in the database, which SQLite wants before it writes over it. So a log of
small entries that come one by one keeps appends waiting now and then, for the few pages that are left.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import threading
import time
from pathlib import Path

from logplayer.log.file.segment import PAGE_BYTES, FrameChunk, connect, wal_of
from logplayer.log.file.wal_recycling import Spare
from logplayer.observe.instruments import Delays

BUSY_MS = 200  # How long it waits for readers.
EVERY_BYTES = 4 * 1024 * 1024  # So that no append meets a long sync of the database.
WAL_BYTES_MIN = 16 * 1024 * 1024  # A shorter write-ahead log is not worth an append's wait.
RESTART_MS = 50


class Checkpointer:
    """Best effort: a checkpoint that fails (a full disk, a busy reader) is made up for by a later one."""

    def __init__(self, spare: Spare, spare_bytes: int, delays: Delays | None = None) -> None:
        self._delays = delays or Delays()
        self._spare = spare
        self._spare_bytes = spare_bytes
        self._jobs: queue.SimpleQueue[tuple[Path, sqlite3.Connection | None, bool] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="logplayer-log-checkpoint", daemon=True)
        self._bytes = self._wal_bytes = 0
        self._open: tuple[Path, sqlite3.Connection] | None = None  # The segment that grows: to open it takes long.
        self._released: set[Path] = set()
        self.at_rest = threading.Lock()  # Its holder need not share the last of the room with a checkpoint.

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def wrote(self, path: Path, chunks: list[FrameChunk]) -> None:
        """Called by the writer after each commit."""
        self._bytes += sum(len(chunk.data) for chunk in chunks)
        self._wal_bytes += sum(len(chunk.data) // PAGE_BYTES + 1 for chunk in chunks) * PAGE_BYTES
        if self._wal_bytes >= max(self._spare_bytes, WAL_BYTES_MIN):
            self._bytes = self._wal_bytes = 0
            self._jobs.put((path, None, True))
        elif self._bytes >= EVERY_BYTES:
            self._bytes = 0
            self._jobs.put((path, None, False))

    def seal(self, path: Path, db: sqlite3.Connection) -> None:
        """The segment is complete: put all of it into its database and close the writer's connection."""
        self._bytes = self._wal_bytes = 0
        self._jobs.put((path, db, False))

    def release(self, path: Path) -> None:
        """The segment is about to be deleted; what is still to be done for it is void."""
        self._released.add(path)
        self._jobs.put((path, None, False))  # It may still be open here: its room comes back when it is closed.

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            path, sealed, restart = job
            began = time.perf_counter()
            with self.at_rest:
                if sealed is not None or path in self._released:
                    self._close()
                with contextlib.suppress(sqlite3.Error, OSError):
                    if path not in self._released:
                        self._finish(path, sealed) if sealed else self._checkpoint(path)
                        if restart:
                            self._checkpoint(path, "RESTART", RESTART_MS)
                if sealed is not None:
                    self._close()
                    with contextlib.suppress(sqlite3.Error):
                        sealed.close()  # A last connection makes a checkpoint of its own.
            self._delays.note(time.perf_counter() - began)
        self._close()

    def _finish(self, path: Path, sealed: sqlite3.Connection) -> None:
        """All pages into the database; the write-ahead log is spare then, unless somebody has the segment open."""
        sealed.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        busy, frames, moved = sealed.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        if busy or frames != moved:
            return
        self._spare.hold(wal_of(path))
        sealed.close()
        # In this order: a trim says so before it deletes a segment, and must not be taken for SQLite.
        if self._spare.alone and path not in self._released:
            self._spare.keep(self._spare_bytes)
        else:
            self._spare.let_go()
            self._checkpoint(path, "TRUNCATE")

    def _checkpoint(self, path: Path, how: str = "PASSIVE", busy_ms: int = BUSY_MS) -> None:
        if self._open is None or self._open[0] != path:
            self._close()
            self._open = path, connect(path, write=True)
        try:
            self._open[1].execute(f"PRAGMA busy_timeout={busy_ms}")
            self._open[1].execute(f"PRAGMA wal_checkpoint({how})")
        except sqlite3.Error:
            self._close()
            raise

    def _close(self) -> None:
        if self._open is not None:
            (_, db), self._open = self._open, None
            with contextlib.suppress(sqlite3.Error):
                db.close()

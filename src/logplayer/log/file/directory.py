"""The directory of a file log: its segments by first index, its lock, and the memory of what was trimmed.

LOCK                        held with flock by the one process that writes; its pid is inside
00000000000000000001.seg    entries from index 1 on (a SQLite database, with its -wal and -shm beside it)
00000000000000006401.seg    the newest segment: the only one that is written to
history.db                  (producer, sequence) -> index and mark, of the segments that were trimmed away
RESERVE                     a megabyte of nothing, given up when the disk is full so that a trim can be written
SPARE                       the write-ahead log of a sealed segment, for one of the next; there while the log is written
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from pathlib import Path

from logplayer.crashpoint import crashpoint
from logplayer.errors import LogFormatError
from logplayer.fsync import PRIVATE_FILE, make_private_directory, make_private_file, sync
from logplayer.log.file import wal_recycling
from logplayer.log.file.segment import connect, headers, wal_of
from logplayer.log.file.wal_recycling import Spare
from logplayer.log.protocol import Locked
from logplayer.log.sequences import Place, SpanBuilder, place_in_span

SUFFIX = ".seg"
RESERVE_BYTES = 1024 * 1024


class Directory:
    """Names and files of one log; knows nothing of entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spare = Spare(path)
        self._lock: int | None = None

    def segments(self) -> list[int]:
        """First indexes of all segments, oldest first."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return sorted(int(name[: -len(SUFFIX)]) for name in names if name.endswith(SUFFIX) and name[:20].isdigit())

    def segment(self, first: int) -> Path:
        return self.path / f"{first:020}{SUFFIX}"

    def check(self) -> None:
        """Refuse a path that holds anything else, before anything is written into it."""
        if self.path.exists() and not self.path.is_dir():
            raise LogFormatError(f"{self.path} is a file; a log is a directory: name another path")
        if not self.path.exists() or self.segments():
            return
        strangers = sorted(name for name in os.listdir(self.path) if not self._is_ours(name))
        if strangers:
            raise LogFormatError(f"{self.path} is not a log: it holds {strangers[0]!r}; name an empty or new directory")

    @staticmethod
    def _is_ours(name: str) -> bool:
        ours = name in ("LOCK", "RESERVE", wal_recycling.NAME) or name.startswith("history.db")
        return ours or ".new" in name or ".seg-" in name

    def lock(self) -> None:
        """Become the log's only writer. The kernel frees the lock when this process dies, however it dies."""
        if not self.path.exists():
            make_private_directory(self.path)
            sync(self.path.parent)
        fd = os.open(self.path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise Locked(
                f"{self.path} is written by process {holder}; stop it, or share the log with "
                f"`logplayer log serve` and use its grpc:// address"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        self._lock = fd

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def keep_reserve(self) -> None:
        """Set room aside, or as much of it as the disk has."""
        with contextlib.suppress(OSError):
            fd = os.open(self.path / "RESERVE", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
            try:
                for share in (1, 2, 4, 8):
                    try:
                        os.posix_fallocate(fd, 0, RESERVE_BYTES // share)
                        return
                    except OSError:
                        os.ftruncate(fd, 0)
            finally:
                os.close(fd)

    def give_up_reserve(self) -> None:
        (self.path / "RESERVE").unlink(missing_ok=True)
        self.spare.drop()

    def bytes_on_disk(self) -> int:
        """What the log takes on the disk, write-ahead logs included."""
        total = 0
        with contextlib.suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    total += entry.stat().st_size
        return total

    def clean(self) -> None:
        """Remove what a crash has left: half-made segments, companions of segments that are gone, the spare."""
        self.spare.drop()
        kept = {f"{first:020}{SUFFIX}" for first in self.segments()}
        for name in os.listdir(self.path):
            base = name.rsplit("-", 1)[0]
            if ".new" in name or (base.endswith(SUFFIX) and base not in kept):
                (self.path / name).unlink(missing_ok=True)

    def forget(self, first: int) -> None:
        """Delete a trimmed segment once its sequences are in the history. Safe to repeat after a crash at any step."""
        self._remember(first)
        crashpoint("history-written")
        path = self.segment(first)
        path.unlink()  # The database first: without it its write-ahead log is nothing.
        crashpoint("segment-unlinked")
        for companion in (wal_of(path), Path(f"{path}-shm")):
            companion.unlink(missing_ok=True)
        sync(self.path)

    def _remember(self, first: int) -> None:
        spans = SpanBuilder()
        db = connect(self.segment(first))
        try:
            for _, _, head in headers(db):
                for run in head.runs:
                    spans.add(run)
        finally:
            db.close()
        history = self._history()
        try:
            history.execute("BEGIN")
            history.executemany("INSERT OR REPLACE INTO spans VALUES(?,?,?,?,?)", spans.spans())
            history.execute("COMMIT")
        finally:
            history.close()

    def _history(self) -> sqlite3.Connection:
        make_private_file(self.path / "history.db")
        db = sqlite3.connect(self.path / "history.db", isolation_level=None, timeout=10)
        db.execute("PRAGMA synchronous=FULL")
        db.execute(
            "CREATE TABLE IF NOT EXISTS spans(producer TEXT, first INTEGER, last INTEGER, indexes BLOB, marks BLOB, "
            "PRIMARY KEY(producer, first)) WITHOUT ROWID"
        )
        if not db.execute("SELECT 1 FROM pragma_table_info('spans') WHERE name='marks'").fetchone():
            db.execute("ALTER TABLE spans ADD COLUMN marks BLOB")  # Made by a version that kept none.
        return db

    def trimmed_place(self, producer: str, sequence: int) -> Place | None:
        """The index that a trimmed entry had, and its mark."""
        if not (self.path / "history.db").exists():
            return None
        history = self._history()
        try:
            row = history.execute(
                "SELECT first, indexes, marks FROM spans WHERE producer=? AND first<=? AND last>=?",
                (producer, sequence, sequence),
            ).fetchone()
        finally:
            history.close()
        return place_in_span(row[1], row[2], sequence - row[0]) if row else None

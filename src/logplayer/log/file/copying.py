"""Copies the files of a file log while it is written.

Why the copy is one log, although the original goes on meanwhile:

* A sealed segment never changes. The newest one is copied in one read transaction, by SQLite itself: its rows, the
  trim point and the start state in it are of one moment.
* The newest is copied last and names the trim point. A segment that a trim removes before it was copied is not needed
  if that trim came first; whether it did, only a new look at the directory tells, so the copy begins again.
* The history is copied after all segments. A segment is in the history before it is removed, so nothing is in neither;
  what is in both, or came later, is removed from the copy.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from logplayer.errors import LogFormatError, LogUnavailable
from logplayer.fsync import make_private_file
from logplayer.log.file import segment
from logplayer.log.file.directory import Directory
from logplayer.log.sequences import index_in_span

HISTORY = "history.db"
ATTEMPTS_MAX = 20


def copy_log(source: Directory, part: Path) -> None:
    """Copy the segments and the history of a log, which may be written and trimmed meanwhile, into ``part``.

    Raises:
        LogUnavailable: A file cannot be read, or the log was trimmed under each of many attempts.
    """
    sealed: set[int] = set()  # Those that are copied and stay so.
    for _ in range(ATTEMPTS_MAX):
        firsts = source.segments()
        for gone in sealed.difference(firsts):
            (part / source.segment(gone).name).unlink()
        sealed.intersection_update(firsts)
        if all(_copy_segment(source, first, part, first != firsts[-1], sealed) for first in firsts):
            _copy_history(source, part, firsts[0])
            return
    raise LogUnavailable(
        f"{source.path} was trimmed under each of {ATTEMPTS_MAX} attempts to copy it; try again, or trim less often"
    )


def _copy_segment(source: Directory, first: int, part: Path, is_sealed: bool, sealed: set[int]) -> bool:
    """False if the segment is gone."""
    if first in sealed:
        return True
    path = source.segment(first)
    try:
        opened = segment.connect_sealed(path) if is_sealed else segment.connect(path)
        with contextlib.closing(opened) as db:
            _copy_database(db, part / path.name)
    except (sqlite3.DatabaseError, LogFormatError) as error:
        if not path.exists():
            return False
        if isinstance(error, LogFormatError):
            raise
        raise LogUnavailable(f"{path} cannot be read: {error}; check the disk and its room") from None
    if is_sealed:
        sealed.add(first)
    return path.exists()  # Else the rows that only its write-ahead log had may have gone before we opened it.


def _copy_database(db: sqlite3.Connection, to: Path) -> None:
    """In one read transaction. Nobody has the copy yet, so one sync at the end is enough."""
    to.unlink(missing_ok=True)
    make_private_file(to)
    with contextlib.closing(sqlite3.connect(to, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous=OFF")
        copy.execute("PRAGMA journal_mode=OFF")
        db.backup(copy)


def _copy_history(source: Directory, part: Path, first: int) -> None:
    """What was trimmed before the oldest segment of the copy, which begins at ``first``: the rest is in segments."""
    if not (source.path / HISTORY).exists():
        return
    with contextlib.closing(sqlite3.connect(source.path / HISTORY, timeout=10)) as db:
        _copy_database(db, part / HISTORY)
    with contextlib.closing(sqlite3.connect(part / HISTORY)) as copy, copy:
        later = [
            (producer, sequence)
            for producer, sequence, indexes in copy.execute("SELECT producer, first, indexes FROM spans")
            if index_in_span(indexes, 0) >= first
        ]
        copy.executemany("DELETE FROM spans WHERE producer=? AND first=?", later)

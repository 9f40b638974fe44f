"""One segment of the file log: a SQLite database with the entries of one range of indexes.

``chunks`` has a row per commit (more when it is large): the first index, the number of entries, a header that says who
wrote them, and the frames. ``meta`` has the state at the segment's start and the trim point. A producer's state needs
no row of its own: it is the start state plus the headers, so it commits with the entries because it is the same row.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from logplayer.errors import LogFormatError
from logplayer.files import sync
from logplayer.log.crashpoint import crashpoint
from logplayer.log.frame import corrupt
from logplayer.log.sequences import Run, pack_json, unpack_json
from logplayer.log.spare import Spare

APPLICATION_ID = 0x4C505347
VERSION = 1
PAGE_BYTES = 32768  # Large pages: a third of the writes and checksums of 4 KB pages at 10 KB an entry.

_SCHEMA = """
CREATE TABLE chunks(first INTEGER PRIMARY KEY, count INTEGER NOT NULL, head BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE meta(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""
_FROM = "FROM chunks WHERE first >= coalesce((SELECT max(first) FROM chunks WHERE first <= ?), 0) ORDER BY first"


class Start(NamedTuple):
    """The log's state where a segment starts: ``first`` is the segment's first index, ``trim`` the log's."""

    log_id: str
    first: int
    control: int
    trim: int
    newest: dict[str, int]


class Chunk(NamedTuple):
    """Entries ``[first, first + count - 1]`` as frames. ``control`` is the newest CONTROL index up to here."""

    first: int
    count: int  # type: ignore[assignment]  # Hides tuple's own method.
    control: int
    runs: list[Run]
    data: bytes

    @property
    def last(self) -> int:
        return self.first + self.count - 1


def connect(path: Path, *, write: bool = False) -> sqlite3.Connection:
    """Open a segment that exists; a file that is no segment of ours, or of a newer version, is refused."""
    mode = "rw" if write else "ro"
    try:
        db = sqlite3.connect(
            f"file:{_quote(path)}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False, timeout=10
        )
        try:
            application = db.execute("PRAGMA application_id").fetchone()[0]
            version = db.execute("PRAGMA user_version").fetchone()[0]
        except BaseException:
            db.close()
            raise
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise LogFormatError(f"{path} is not a log segment ({error}); name a directory that holds a log") from None
    if application != APPLICATION_ID or version > VERSION:
        db.close()
        if application != APPLICATION_ID:
            raise LogFormatError(f"{path} is another application's database; name a directory that holds a log")
        raise LogFormatError(f"{path} has format {version}; this program knows up to {VERSION}: upgrade it")
    if write:
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute("PRAGMA cache_size=-4096")
    return db


def _quote(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def create(path: Path, start: Start, spare: Spare) -> None:
    """Make a segment durable under its name. The rename is the commit point: before it, the segment is not there."""
    new = path.with_suffix(".new")
    _remove(new)
    try:
        _build(new, start)
        crashpoint("segment-written")
        spare.place(wal_of(path))
        os.rename(new, path)
    except BaseException:
        _remove(new)  # The next try may be at another index.
        raise
    sync(path.parent)
    crashpoint("segment-renamed")


def _build(new: Path, start: Start) -> None:
    """Nobody has it yet, so one sync of the whole is enough: a rotation keeps appends waiting."""
    db = sqlite3.connect(new, isolation_level=None)
    try:
        db.execute(f"PRAGMA page_size={PAGE_BYTES}")
        db.execute("PRAGMA synchronous=OFF")
        db.execute("PRAGMA journal_mode=OFF")
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={VERSION}")
        db.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
        db.execute("INSERT INTO meta VALUES('start', ?)", (pack_json(start._asdict()),))
        db.execute("PRAGMA journal_mode=WAL")
    finally:
        db.close()
    sync(new)


def _remove(new: Path) -> None:
    for leftover in (new, wal_of(new), Path(f"{new}-shm"), Path(f"{new}-journal")):
        leftover.unlink(missing_ok=True)


def wal_of(path: Path) -> Path:
    """Where SQLite keeps the write-ahead log of a segment."""
    return Path(f"{path}-wal")


def read_start(db: sqlite3.Connection) -> Start:
    """The state at the segment's start."""
    row = db.execute("SELECT value FROM meta WHERE key='start'").fetchone()
    try:
        return Start(**unpack_json(row[0]))
    except (TypeError, ValueError) as error:
        raise LogFormatError(f"a segment's start state cannot be read ({error}); restore it from a backup") from None


def read_trim(db: sqlite3.Connection) -> int:
    """The log's first readable index as this segment knows it."""
    row = db.execute("SELECT value FROM meta WHERE key='trim'").fetchone()
    return int(row[0]) if row else read_start(db).trim


def write_trim(db: sqlite3.Connection, trim: int) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES('trim', ?)", (trim,))


def pack_head(first: int, count: int, control: int, runs: list[Run]) -> bytes:
    """The header covers the row's keys, so that no flipped bit moves a chunk to other indexes."""
    return pack_json([first, count, control, [(producer, sequence, count) for producer, sequence, _, count in runs]])


def _unpack_head(first: int, count: int, head: bytes) -> tuple[int, list[Run]]:
    try:
        said_first, said_count, control, who = unpack_json(head)
        if (said_first, said_count) != (first, count):
            raise ValueError("its row has moved")
        runs, index = [], first
        for producer, sequence, n in who:
            runs.append(Run(producer, sequence, index, n))
            index += n
    except (TypeError, ValueError) as error:
        raise corrupt(first, str(error)) from None
    return control, runs


def insert(db: sqlite3.Connection, chunks: list[Chunk]) -> None:
    """Add the chunks in one transaction; its COMMIT, which syncs the write-ahead log, is the commit point of append."""
    db.execute("BEGIN IMMEDIATE")
    for chunk in chunks:
        head = pack_head(chunk.first, chunk.count, chunk.control, chunk.runs)
        db.execute("INSERT INTO chunks VALUES(?,?,?,?)", (chunk.first, chunk.count, head, chunk.data))
    crashpoint("rows-written")
    db.execute("COMMIT")


def read_chunks(db: sqlite3.Connection, at: int, bytes_max: int) -> list[Chunk]:
    """Chunks from the one that holds index ``at`` on, about ``bytes_max`` of them; frames are not checked here."""
    out: list[Chunk] = []
    expected, room = at, bytes_max
    try:
        for first, count, head, data in db.execute(f"SELECT first, count, head, data {_FROM}", (at,)):
            if first + count <= at:
                continue
            if first > expected:
                raise corrupt(expected, f"it is missing: entry {first} follows")
            control, runs = _unpack_head(first, count, head)
            out.append(Chunk(first, count, control, runs, data))
            expected, room = first + count, room - len(data)
            if room <= 0:
                break
    except (sqlite3.DatabaseError, TypeError) as error:
        if out:
            return out  # Serve what came before; the next call meets the damage again and names it.
        _reraise_if_transient(error)
        raise corrupt(expected, f"the database says {str(error)!r}") from None
    return out


def _reraise_if_transient(error: Exception) -> None:
    """A busy or vanished database is not a damaged one."""
    name = getattr(error, "sqlite_errorname", "")
    if isinstance(error, sqlite3.OperationalError) and not name.startswith(("SQLITE_CORRUPT", "SQLITE_IOERR")):
        raise error


def headers(db: sqlite3.Connection) -> Iterator[tuple[int, int, int, list[Run]]]:
    """(first, count, control, runs) of every chunk; the entries themselves are not read."""
    for first, count, head in db.execute("SELECT first, count, head FROM chunks ORDER BY first"):
        yield first, count, *_unpack_head(first, count, head)


def read_tail(db: sqlite3.Connection) -> tuple[int, int]:
    """(last, control) of the segment; last is one less than its first when it is empty."""
    row: Any = db.execute("SELECT first, count, head FROM chunks ORDER BY first DESC LIMIT 1").fetchone()
    if row is None:
        start = read_start(db)
        return start.first - 1, start.control
    control, _ = _unpack_head(*row)
    return row[0] + row[1] - 1, control

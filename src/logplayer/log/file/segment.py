"""One segment of the file log: a SQLite database with the entries of one range of indexes.

``chunks`` has a row per commit (more when it is large): the first index, the number of entries, a header with their
producers, and the frames. ``meta`` has the state at the segment's start and the trim point. A producer's state needs
no row of its own: it is the start state plus the headers, so it commits with the entries because it is the same row.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from logplayer.crashpoint import crashpoint
from logplayer.errors import LogFormatError
from logplayer.fsync import make_private_file, sync
from logplayer.log.file.wal_recycling import Spare
from logplayer.log.frame import corrupt
from logplayer.log.sequences import Run, chain_through, pack_json, unpack_json

APPLICATION_ID = 0x4C505347
VERSION = 3  # Since 2 a header has the marks of its entries, since 3 entries and headers have chain values.
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
    chain: str  # The chain value before ``first``, in hexadecimal.
    trimmed_chain: str  # The one before ``trim``.


class FrameChunk(NamedTuple):
    """Entries ``[first, first + count - 1]`` as frames. ``control`` is the newest CONTROL index up to here."""

    first: int
    count: int  # type: ignore[assignment]  # Hides tuple's own method.
    control: int
    runs: list[Run]
    data: bytes
    chain: bytes  # The chain value at the last of them.

    @property
    def last(self) -> int:
        return self.first + self.count - 1


def connect_sealed(path: Path) -> sqlite3.Connection:
    """Open a segment that nobody writes any more, for reading; also on a full disk.

    SQLite makes an index of the write-ahead log beside each database that it opens, even if that log is empty. A disk
    without room for it must not hide what is there: the way out of a full disk begins with reading a decision.
    """
    try:
        return connect(path)
    except sqlite3.OperationalError:
        wal = wal_of(path)
        if wal.exists() and wal.stat().st_size:
            raise
        return connect(path, option="&immutable=1")


def connect(path: Path, *, write: bool = False, option: str = "") -> sqlite3.Connection:
    """Open a segment that exists; a file that is not a segment, or is one of a newer version, is refused."""
    mode = "rw" if write else "ro"
    try:
        where = f"file:{_quote(path)}?mode={mode}{option}"
        db = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False, timeout=10)
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
    if application != APPLICATION_ID or version != VERSION:
        db.close()
        if application != APPLICATION_ID:
            raise LogFormatError(f"{path} is another application's database; name a directory that holds a log")
        if version > VERSION:
            raise LogFormatError(f"{path} has format {version}; this program knows up to {VERSION}: upgrade it")
        raise LogFormatError(
            f"{path} has format {version}, whose entries have no chain value; make a new log and append to it what "
            "'logplayer log dump' of the earlier version shows"
        )
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
    make_private_file(new)
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


def read_trim(db: sqlite3.Connection) -> tuple[int, bytes]:
    """The log's first readable index as this segment knows it, and the chain value before it."""
    row = db.execute("SELECT value FROM meta WHERE key='trim'").fetchone()
    if row is None:
        start = read_start(db)
        return start.trim, bytes.fromhex(start.trimmed_chain)
    try:
        trim, chain = unpack_json(row[0])
        return trim, bytes.fromhex(chain)
    except (TypeError, ValueError) as error:
        raise LogFormatError(f"a segment's trim point cannot be read ({error}); restore it from a backup") from None


def write_trim(db: sqlite3.Connection, trim: int, chain: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES('trim', ?)", (pack_json([trim, chain.hex()]),))


class ChunkHead(NamedTuple):
    """What a chunk says of its entries without them."""

    control: int  # The newest CONTROL index up to its end.
    runs: list[Run]
    chain: bytes  # The chain value at its end.


def pack_head(first: int, count: int, control: int, runs: list[Run], chain: bytes) -> bytes:
    """The header covers the row's keys, so that no flipped bit moves a chunk to other indexes."""
    who = [(producer, sequence, count, marks.hex()) for producer, sequence, _, count, marks in runs]
    return pack_json([first, count, control, who, chain.hex()])


def _unpack_head(first: int, count: int, head: bytes) -> ChunkHead:
    try:
        said_first, said_count, control, who, chain = unpack_json(head)
        if (said_first, said_count) != (first, count):
            raise ValueError("its row has moved")
        runs, index = [], first
        for producer, sequence, n, marks in who:
            runs.append(Run(producer, sequence, index, n, bytes.fromhex(marks)))
            index += n
        return ChunkHead(control, runs, bytes.fromhex(chain))
    except (TypeError, ValueError) as error:
        raise corrupt(first, str(error)) from None


def insert(db: sqlite3.Connection, chunks: list[FrameChunk]) -> None:
    """Add the chunks in one transaction; its COMMIT, which syncs the write-ahead log, is the commit point of append."""
    db.execute("BEGIN IMMEDIATE")
    for chunk in chunks:
        head = pack_head(chunk.first, chunk.count, chunk.control, chunk.runs, chunk.chain)
        db.execute("INSERT INTO chunks VALUES(?,?,?,?)", (chunk.first, chunk.count, head, chunk.data))
    crashpoint("rows-written")
    db.execute("COMMIT")


def read_chunks(db: sqlite3.Connection, at: int, bytes_max: int) -> list[FrameChunk]:
    """Chunks from the one that holds index ``at`` on, about ``bytes_max`` of them; frames are not checked here."""
    out: list[FrameChunk] = []
    expected, room = at, bytes_max
    try:
        for first, count, head, data in db.execute(f"SELECT first, count, head, data {_FROM}", (at,)):
            if first + count <= at:
                continue
            if first > expected:
                raise corrupt(expected, f"it is missing: entry {first} follows")
            control, runs, chain = _unpack_head(first, count, head)
            out.append(FrameChunk(first, count, control, runs, data, chain))
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


def headers(db: sqlite3.Connection) -> Iterator[tuple[int, int, ChunkHead]]:
    """(first, count, header) of every chunk; the entries themselves are not read."""
    for first, count, head in db.execute("SELECT first, count, head FROM chunks ORDER BY first"):
        yield first, count, _unpack_head(first, count, head)


def read_chain(db: sqlite3.Connection, index: int) -> bytes:
    """The chain value at ``index``, which is in this segment or right before it; the entries are not read."""
    newest_first = "SELECT first, count, head FROM chunks WHERE first <= ? ORDER BY first DESC LIMIT 2"
    rows = db.execute(newest_first, (index,)).fetchall()
    before = _unpack_head(*rows[1]).chain if len(rows) > 1 else bytes.fromhex(read_start(db).chain)
    return chain_through(before, _unpack_head(*rows[0]).runs, index) if rows else before


def header_at(db: sqlite3.Connection, index: int) -> tuple[int, int, list[Run]]:
    """(first, last, runs) of the chunk that holds ``index``, which is in this segment."""
    row = db.execute("SELECT first, count, head FROM chunks WHERE first <= ? ORDER BY first DESC LIMIT 1", (index,))
    found = row.fetchone()
    if found is None or found[0] + found[1] <= index:
        raise corrupt(index, "it is missing from its segment")
    return found[0], found[0] + found[1] - 1, _unpack_head(*found).runs


def read_tail(db: sqlite3.Connection) -> tuple[int, int, bytes]:
    """(last, control, chain) of the segment; last is one less than its first when it is empty."""
    row: Any = db.execute("SELECT first, count, head FROM chunks ORDER BY first DESC LIMIT 1").fetchone()
    if row is None:
        start = read_start(db)
        return start.first - 1, start.control, bytes.fromhex(start.chain)
    control, _, chain = _unpack_head(*row)
    return row[0] + row[1] - 1, control, chain

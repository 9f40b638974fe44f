"""A target in an SQLite file: the embedded default.

Durable: the write-ahead log of SQLite is synced at each commit (``synchronous=FULL``), and an ack follows the commit.
Data, position and quarantine are tables of one file, so one transaction covers them, and ordinary tools can read it:

    data(key, value)   position(target, log_index, epoch, term, digest, log_id, chain)   quarantine(log_index, payload)
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from logplayer.core import digest as digests
from logplayer.core.entry import Session
from logplayer.core.fence import Position
from logplayer.crashpoint import crashpoint
from logplayer.errors import Poison, Unavailable, UserError
from logplayer.fsync import make_private_file
from logplayer.target.protocol import Change, Row, Store, decode_rows

_APPLICATION_ID = 0x4C50_5447
_VERSION = 2  # Since 2 the position has the log's chain value.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS data (key BLOB PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS quarantine (log_index INTEGER PRIMARY KEY, payload BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS position (
  one INTEGER PRIMARY KEY CHECK (one = 1), target TEXT NOT NULL, log_index INTEGER NOT NULL,
  epoch INTEGER NOT NULL, term INTEGER NOT NULL, digest BLOB NOT NULL, log_id TEXT NOT NULL,
  chain BLOB NOT NULL);
"""
# What SQLite says when a row can never be stored: a constraint that somebody put on the table, or its length limit.
_FOR_GOOD = (sqlite3.IntegrityError, sqlite3.DataError)


class SqliteTarget(Store):
    """Rows in a SQLite file, with the target's index in the same transaction.

    Args:
        path: The file. A file belongs to one target.
        name: The target's name.
        read_only: Only read, also while a server has the file open. A file that is not there is an error then.

    Raises:
        UserError: The file belongs to another target or program.

    Example:
        >>> lp.SqliteTarget("a.db", "a").get(b"alice")  # doctest: +SKIP
        b'90'
    """

    def __init__(self, path: str | Path, name: str, *, read_only: bool = False) -> None:
        self._path = Path(path)
        self._name = name
        if read_only and not self._path.is_file():
            raise UserError(f"{self._path} is not there")
        try:
            self._db = self._open(read_only)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise Unavailable(f"{self._path} is locked by another process; stop it, or try again later") from None
            raise UserError(f"{self._path} cannot be opened as a target's SQLite file: {error}") from None
        except OSError as error:
            raise UserError(f"{self._path} cannot be made as a target's SQLite file: {error.strerror}") from None
        self._reader: sqlite3.Connection | None = None
        self._reader_lock = threading.Lock()

    def position(self) -> Position:
        row = self._db.execute("SELECT log_index, epoch, term, digest, log_id, chain FROM position").fetchone()
        if row is None:
            return Position()
        return Position(row[0], Session(row[1], row[2]), digests.from_bytes(row[3]), row[4], bytes(row[5]))

    def apply(self, change: Change) -> Position:
        try:
            with self._transaction():
                after = change.check(self.position())
                for is_put, rows in change.runs:
                    self._write(is_put, rows)
                aside = [(message.index, message.payload) for message in change.quarantined]
                self._db.executemany("REPLACE INTO quarantine VALUES (?, ?)", aside)
                crashpoint("store-rows-written")
                self._store(after)
                crashpoint("store-position-written")
        except _FOR_GOOD as error:
            self._find_poison(change)
            raise error
        return after

    def get(self, key: bytes) -> bytes | None:
        with self._reading() as db:
            row = db.execute("SELECT value FROM data WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        with self._reading() as db:
            yield from db.execute("SELECT key, value FROM data")

    def quarantine(self) -> Iterator[tuple[int, bytes]]:
        with self._reading() as db:
            yield from db.execute("SELECT log_index, payload FROM quarantine ORDER BY log_index")

    def close(self) -> None:
        self._db.close()
        if self._reader is not None:
            self._reader.close()

    # --- Inside ---

    def _open(self, read_only: bool) -> sqlite3.Connection:
        if not self._path.parent.is_dir():
            raise UserError(f"{self._path.parent} is not a directory; make it before a target's file can be there")
        if not read_only:
            make_private_file(self._path)
        self._place = self._read_only_place() if read_only else str(self._path)
        db = self._connect()
        application = db.execute("PRAGMA application_id").fetchone()[0]
        empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not empty and application != _APPLICATION_ID:
            raise UserError(f"{self._path} is an SQLite file of another program; give a target a file of its own")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise UserError(f"{self._path} has format {version}, newer than this version's {_VERSION}; upgrade")
        if not empty and version < _VERSION:
            raise UserError(
                f"{self._path} has format {version}, which lacks the log's chain value; fill a new file with a backfill"
            )
        if read_only:
            db.execute("PRAGMA query_only = ON")
        else:
            self._prepare(db, empty)
        owner = db.execute("SELECT target FROM position").fetchone()
        if owner is not None and owner[0] != self._name:
            raise UserError(f"{self._path} belongs to target {owner[0]!r}, not to {self._name!r}")
        return db

    def _connect(self) -> sqlite3.Connection:
        uri = self._place.startswith("file:")
        return sqlite3.connect(self._place, isolation_level=None, check_same_thread=False, timeout=30, uri=uri)

    def _read_only_place(self) -> str:
        """A URI that opens the file without writing anything.

        Beside a server, SQLite reads with the help of the files that the server has made. Without one it would make
        them; whoever may not write here reads the file alone, which nobody changes then.
        """
        place = f"file:{quote(str(self._path.absolute()))}?mode=ro"
        shared = Path(f"{self._path}-wal").exists() or os.access(self._path.parent, os.W_OK)
        return place if shared else f"{place}&immutable=1"

    def _prepare(self, db: sqlite3.Connection, empty: bool) -> None:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        if empty:
            db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {_VERSION}")
        db.executescript(_SCHEMA)
        # The owner's name is there from the start: a second target that opens the file must not find it free.
        db.execute("INSERT INTO position VALUES (1, ?, 0, 0, 0, x'', '', x'') ON CONFLICT DO NOTHING", (self._name,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # IMMEDIATE takes the write lock before the position is read: nobody can move it until the commit.
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
            crashpoint("store-committed")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _write(self, is_put: bool, rows: list[Row]) -> None:
        if is_put:
            sql = "INSERT INTO data VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            self._db.executemany(sql, [row[1:] for row in rows])
        else:
            self._db.executemany("DELETE FROM data WHERE key = ?", [row[1:2] for row in rows])

    def _store(self, position: Position) -> None:
        index, session, digest, log_id, chain = position
        self._db.execute(
            "REPLACE INTO position VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
            (self._name, index, *session, digests.to_bytes(digest), log_id, chain),
        )

    def _find_poison(self, change: Change) -> None:
        """Raise Poison for the entry that the store refuses: write one at a time, and keep nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for message in change.messages:
                if message.quarantine:
                    continue
                try:
                    for row in decode_rows(message):
                        self._write(row.value is not None, [row])
                except _FOR_GOOD as error:
                    raise Poison(f"SQLite refuses entry {message.index}: {error}", message.index) from None
        finally:
            self._db.execute("ROLLBACK")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        # A connection of its own: readers neither wait for the writer nor see what is not committed.
        with self._reader_lock:
            if self._reader is None:
                self._reader = self._connect()
            yield self._reader

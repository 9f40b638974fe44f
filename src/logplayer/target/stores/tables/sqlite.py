"""A target in the tables of an SQLite file: the user's own schema, with foreign keys on.

Position and quarantine are two tables beside them, ``logplayer_position`` and ``logplayer_quarantine``. Durable:
``synchronous=EXTRA`` syncs each commit in every journal mode, and the file keeps the mode that it has.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

from logplayer.core import digest as digests
from logplayer.core.entry import Delivery, Session
from logplayer.core.fence import Position
from logplayer.errors import Unavailable, UserError
from logplayer.fsync import make_private_file
from logplayer.log.json_rows import value_to_json
from logplayer.target.stores.tables.base import TableStore
from logplayer.target.stores.tables.exact import affinity_limit
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping
from logplayer.target.stores.tables.runs import Decoder, RowRefused, RowRun, TableShape
from logplayer.wire.fastpath import NOT_FINITE, RowForm
from logplayer.wire.rows import Op
from logplayer.wire.values import Json

_SCHEMA = """
CREATE TABLE IF NOT EXISTS logplayer_quarantine (log_index INTEGER PRIMARY KEY, payload BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS logplayer_position (
  one INTEGER PRIMARY KEY CHECK (one = 1), target TEXT NOT NULL, log_index INTEGER NOT NULL,
  epoch INTEGER NOT NULL, term INTEGER NOT NULL, digest BLOB NOT NULL, log_id TEXT NOT NULL,
  chain BLOB NOT NULL);
"""
_POSITION = "SELECT log_index, epoch, term, digest, log_id, chain FROM logplayer_position"


class SqliteTables(TableStore):
    """Rows in the tables of an SQLite file, with the target's index in the same transaction.

    Args:
        path: The file. It is made if it is not there; its tables are yours to make.
        name: The target's name. A file belongs to one target.
        mapping: How tables and columns are named here.
        read_only: Only read, also while a server has the file open.

    Raises:
        UserError: The file belongs to another target, or is not an SQLite file.
        Unavailable: Another process has locked it.

    Example:
        >>> lp.TargetServer({"a": lp.SqliteTables("shop.db", "a")})  # doctest: +SKIP
    """

    _db: sqlite3.Connection
    product = "SQLite"
    driver_error = sqlite3.Error

    def __init__(
        self, path: str | Path, name: str, *, mapping: TableMapping = NO_MAPPING, read_only: bool = False
    ) -> None:
        super().__init__(name, Decoder(mapping, _CONVERT, distinct=False, zone="+00:00"), read_only=read_only)
        self._path = Path(path)
        self._reader: sqlite3.Connection | None = None
        self._statements: dict[RowForm, tuple[str, list[int] | None]] = {}
        self._commit_refused = False
        self._broken_before: set[tuple[Any, ...]] = set()
        if read_only and not self._path.is_file():
            raise UserError(f"{self._path} is not there")
        try:
            self._db = self._open()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise Unavailable(f"{self._path} is locked by another process; stop it, or try again later") from None
            raise UserError(f"{self._path} cannot be opened as an SQLite file: {error}; check --path") from None
        except OSError as error:
            raise UserError(f"{self._path} cannot be made as an SQLite file: {error.strerror}") from None

    def position(self) -> Position:
        return _stored(self._db)

    def quarantine(self) -> Iterator[tuple[int, bytes]]:
        with self._reading() as db:
            yield from db.execute("SELECT log_index, payload FROM logplayer_quarantine ORDER BY log_index")

    def close(self) -> None:
        self._db.close()
        if self._reader is not None:
            self._reader.close()

    # --- Inside ---

    def _open(self) -> sqlite3.Connection:
        if not self._path.parent.is_dir():
            raise UserError(f"{self._path.parent} is not a directory; make it before a target's file can be there")
        new = not self._path.exists()
        if new:
            make_private_file(self._path)
        db = self._connect()
        if not self._read_only:
            if new:
                db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = EXTRA")
            db.execute("PRAGMA foreign_keys = ON")
            db.executescript(_SCHEMA)
            initial = "INSERT INTO logplayer_position VALUES (1, ?, 0, 0, 0, x'', '', x'') ON CONFLICT DO NOTHING"
            db.execute(initial, (self._name,))
        elif not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'logplayer_position'").fetchone():
            raise UserError(f"{self._path} is not the file of a target; check --path")
        owner = db.execute("SELECT target FROM logplayer_position").fetchone()
        if owner is not None and owner[0] != self._name:
            raise UserError(f"{self._path} belongs to target {owner[0]!r}, not to {self._name!r}")
        return db

    def _connect(self) -> sqlite3.Connection:
        mode = "ro" if self._read_only else "rw"
        place = f"file:{quote(str(self._path.absolute()))}?mode={mode}"
        return sqlite3.connect(place, isolation_level=None, check_same_thread=False, timeout=30, uri=True)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # IMMEDIATE takes the write lock before the position is read: nobody can move it until the commit.
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._commit()
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _commit(self) -> None:
        try:
            self._db.execute("COMMIT")
            self._commit_refused = False
        except sqlite3.IntegrityError:  # Foreign keys that are deferred; _settle finds the entry.
            self._commit_refused = True
            raise

    def _locked_position(self) -> Position:
        if self._commit_refused:
            self._broken_before = self._broken()
        return self.position()

    def _store(self, after: Position, aside: list[Delivery]) -> None:
        if aside:
            kept = [(message.index, message.payload) for message in aside]
            self._db.executemany("REPLACE INTO logplayer_quarantine VALUES (?, ?)", kept)
        index, session, digest, log_id, chain = after
        self._db.execute(
            "REPLACE INTO logplayer_position VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
            (self._name, index, *session, digests.to_bytes(digest), log_id, chain),
        )

    def _write(self, run: RowRun, shape: TableShape, *, careful: bool) -> int:
        if run.kinds & NOT_FINITE:
            _refuse_nan(run)
        sql, order = self._statement(run.form)
        rows = run.rows if order is None else [tuple(row[nth] for nth in order) for row in run.rows]
        return self._db.executemany(sql, rows).rowcount

    def _statement(self, form: RowForm) -> tuple[str, list[int] | None]:
        """The statement that writes such rows, and in which order it takes their values, if not in theirs."""
        known = self._statements.get(form)
        if known is None:
            order = sorted(range(len(form.keys)), key=lambda nth: form.keys[nth])  # Stable, and the key is last.
            known = _put(form) if form.op == Op.PUT else _change(form), None if form.op != Op.PATCH else order
            self._statements[form] = known
        return known

    def _forget(self) -> None:
        super()._forget()
        self._statements.clear()

    def _run_statement(self, sql: str) -> None:
        self._db.execute(sql)

    def _settle(self) -> None:
        """Foreign keys that are deferred only fail the commit, which names no entry."""
        for table, row, parent, _ in self._broken() - self._broken_before if self._commit_refused else ():
            self._commit_refused = False
            raise RowRefused(
                f"FOREIGN KEY constraint failed: row {row} of table {table!r} has no parent in {parent!r}; "
                f"{self.remedy}"
            )

    def _broken(self) -> set[tuple[Any, ...]]:
        return set(self._db.execute("PRAGMA foreign_key_check"))

    def _look_up(self, table: str) -> TableShape | None:
        return _shape(self._db, table)

    def _is_for_good(self, error: Exception) -> bool:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.ProgrammingError):
            return True
        # A table or a column that is gone since it was looked up, a trigger that fails, a statement that is wrong.
        return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR

    def _reason(self, error: Exception, run: RowRun | None) -> str:
        if run is None or getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
            return str(error)
        keys = self._db.execute(f"PRAGMA foreign_key_list({_quoted(run.form.table)})").fetchall()
        shown = ", ".join(f"{key[3]} -> {key[2]}.{key[4] or 'its key'}" for key in keys)
        return f"{error} ({run.form.table}: {shown or 'other tables refer to this row'})"

    def _read_tables(self, only: str = "") -> Iterator[tuple[str, TableShape]]:
        with self._reading() as db:
            names = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
            shapes = [(name, _shape(db, name)) for name in names if not name.startswith(("sqlite_", "logplayer_"))]
        yield from ((name, shape) for name, shape in shapes if shape is not None and shape.primary)

    def _read_rows(self, table: str, shape: TableShape) -> Iterator[tuple[Any, ...]]:
        names = ", ".join(map(_quoted, shape.types))
        with self._reading() as db:
            yield from db.execute(f"SELECT {names} FROM {_quoted(table)}")

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        with closing(self._connect()) as db:
            db.execute("BEGIN")
            yield db

    def _position_in(self, db: sqlite3.Connection) -> Position:
        return _stored(db)

    def _shape_in(self, db: sqlite3.Connection, table: str) -> TableShape | None:
        return _shape(db, table)

    def _run(self, db: sqlite3.Connection, text: str) -> list[tuple[Any, ...]]:
        return db.execute(text).fetchall()

    def _make_copy(
        self, db: sqlite3.Connection, copy: str, more: tuple[str, str], table: str, shape: TableShape
    ) -> None:
        first, second = map(_quoted, more)
        columns = f"CAST(0 AS INTEGER) AS {first}, CAST('' AS TEXT) AS {second}, t.*"
        db.execute(f"CREATE TEMP TABLE {_quoted(copy)} AS SELECT {columns} FROM {_quoted(table)} t LIMIT 0")

    def _insert_into(self, db: sqlite3.Connection, copy: str, names: list[str], rows: list[list[Any]]) -> None:
        columns, marks = ", ".join(map(_quoted, names)), ", ".join("?" * len(names))
        converted = [list(map(self._decoder.converted, row)) for row in rows]
        db.executemany(f"INSERT INTO {self._copy_name(copy)} ({columns}) VALUES ({marks})", converted)

    def _quote(self, name: str) -> str:
        return _quoted(name)

    def _table_name(self, table: str) -> str:
        return f"main.{_quoted(table)}"

    def _copy_name(self, copy: str) -> str:
        return f"temp.{_quoted(copy)}"

    def _same(self, one: str, other: str) -> str:
        return f"{one} IS {other} COLLATE BINARY"

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        # A connection of its own: readers neither wait for the writer nor see what is not committed.
        with self._reader_lock:
            if self._reader is None:
                self._reader = self._connect()
            yield self._reader


def _stored(db: sqlite3.Connection) -> Position:
    row = db.execute(_POSITION).fetchone()
    if row is None:
        return Position()
    return Position(row[0], Session(row[1], row[2]), digests.from_bytes(row[3]), row[4], bytes(row[5]))


def _shape(db: sqlite3.Connection, table: str) -> TableShape | None:
    columns = db.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
    if not columns:
        return None
    primary = tuple(column[1] for column in sorted((one for one in columns if one[5]), key=lambda one: one[5]))
    unique = [frozenset(primary)] if primary else []
    for index in db.execute(f"PRAGMA index_list({_quoted(table)})").fetchall():
        if index[2] and not index[4]:  # Unique, and of the whole table.
            found = db.execute(f"PRAGMA index_info({_quoted(index[1])})").fetchall()
            unique.append(frozenset(one[2] for one in found))
    limits = {column[1]: limit for column in columns if (limit := affinity_limit(column[2])) is not None}
    return TableShape({column[1]: column[2] for column in columns}, primary, tuple(unique), limits)


def _put(form: RowForm) -> str:
    names = ", ".join(map(_quoted, form.names))
    marks = ", ".join("?" * len(form.names))
    keys = ", ".join(map(_quoted, form.key_names))
    changed = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in form.other_names)
    then = f"UPDATE SET {changed}" if changed else "NOTHING"
    return f"INSERT INTO {_quoted(form.table)} ({names}) VALUES ({marks}) ON CONFLICT ({keys}) DO {then}"


def _change(form: RowForm) -> str:
    where = " AND ".join(f"{_quoted(name)} = ?" for name in form.key_names)
    if form.op == Op.DELETE:
        return f"DELETE FROM {_quoted(form.table)} WHERE {where}"
    changed = ", ".join(f"{_quoted(name)} = ?" for name in form.other_names)
    return f"UPDATE {_quoted(form.table)} SET {changed} WHERE {where}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refuse_nan(run: RowRun) -> None:
    if any(isinstance(value, float) and value != value for row in run.rows for value in row):
        raise RowRefused("NaN does not fit: SQLite would store null; append null, or quarantine the entry")


_CONVERT: dict[type, Callable[[Any], Any]] = {
    Decimal: str,
    datetime: lambda value: value.isoformat(" "),
    date: date.isoformat,
    time: time.isoformat,
    UUID: str,
    Json: lambda value: value.text,
    list: lambda value: json.dumps([value_to_json(item) for item in value], ensure_ascii=False),
}

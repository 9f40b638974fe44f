"""A target in the tables of a MySQL or MariaDB database, on InnoDB.

Position and quarantine are two tables beside the user's own, ``logplayer_position`` and ``logplayer_quarantine``, with
a row for each target. Tables of another engine are refused: a rollback would leave their rows.

``INSERT ... ON DUPLICATE KEY UPDATE`` takes a row for the one that it duplicates in ANY unique key, and would then
change another row in silence. So the statement checks it: ``id = IF(id <=> VALUES(id), id, NULL)`` comes first, and
null for a column of the primary key is an error in strict mode, which is switched on. The rows are then written one
by one, by UPDATE where the key is there and INSERT where not, and what that says is the truth. So are rows whose key is
not the primary one. Texts in keys are compared by their bytes: a collation may take 'Alice' for 'alice'.

MySQL commits before and after every statement that changes a schema, so such an entry is refused.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

import pymysql
from pymysql.constants import CLIENT

from logplayer.core import digest as digests
from logplayer.core.entry import Delivery, Session
from logplayer.core.fence import Position
from logplayer.errors import TargetError, Unavailable, UserError
from logplayer.log.json_rows import value_to_json
from logplayer.target.stores.tables.base import TableStore
from logplayer.target.stores.tables.exact import limits_of
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping
from logplayer.target.stores.tables.mysql_codes import ABOUT_ROWS
from logplayer.target.stores.tables.mysql_put import put_row
from logplayer.target.stores.tables.mysql_text import (
    LITERALS,
    Types,
    change,
    change_values,
    delete_many,
    identifier,
    is_text,
    marks,
    put_around,
    quoted,
)
from logplayer.target.stores.tables.runs import Decoder, RowRefused, RowRun, TableShape
from logplayer.wire.fastpath import NOT_FINITE, RowForm
from logplayer.wire.rows import Op
from logplayer.wire.values import Json

_log = logging.getLogger(__name__)
Db = Any  # A connection of PyMySQL, which has no types.
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS logplayer_position (
  target VARBINARY(255) PRIMARY KEY, log_index BIGINT NOT NULL, epoch BIGINT NOT NULL, term BIGINT NOT NULL,
  digest VARBINARY(64) NOT NULL, log_id VARBINARY(255) NOT NULL, chain VARBINARY(64) NOT NULL) ENGINE=InnoDB""",
    """CREATE TABLE IF NOT EXISTS logplayer_quarantine (
  target VARBINARY(255), log_index BIGINT, payload LONGBLOB NOT NULL, PRIMARY KEY (target, log_index)) ENGINE=InnoDB""",
)
_SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', "
    "time_zone = '+00:00', autocommit = 1, foreign_key_checks = 1, unique_checks = 1"
)
_POSITION = "SELECT log_index, epoch, term, digest, log_id, chain FROM logplayer_position WHERE target = %s"
_STORE = (
    "UPDATE logplayer_position SET log_index = %s, epoch = %s, term = %s, digest = %s, log_id = %s, chain = %s "
    "WHERE target = %s"
)
_COLUMNS = """SELECT column_name, column_type FROM information_schema.columns
WHERE table_schema = database() AND table_name = %s ORDER BY ordinal_position"""
_KEYS = """SELECT index_name, column_name FROM information_schema.statistics
WHERE table_schema = database() AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index"""
_COLLATIONS = """SELECT column_name, character_set_name, collation_name FROM information_schema.columns
WHERE table_schema = database() AND table_name = %s AND character_set_name IS NOT NULL"""
_TABLES = """SELECT table_name, engine FROM information_schema.tables
WHERE table_schema = database() AND table_type = 'BASE TABLE' ORDER BY table_name"""
_STATEMENT_LENGTH = 1_000_000  # About: as the driver cuts its own.
REFUSED = {1044, 1045, 1049, 1698}  # The role, its password, or the database.


class MysqlTables(TableStore):
    """Rows in the tables of a MySQL or MariaDB database, with the target's index in the same transaction.

    Args:
        url: ``mysql://user:password@host:port/database``; with ``?socket=/path`` for a socket.
        name: The target's name.
        mapping: How tables and columns are named here.
        read_only: Only read, also while a server writes.

    Raises:
        Unavailable: The database cannot be reached.
        UserError: The URL is wrong, or LogPlayer's own tables are not on InnoDB.

    Example:
        >>> lp.TargetServer({"a": lp.MysqlTables("mysql://user@host/db", "a")})  # doctest: +SKIP
    """

    product = "MySQL"
    driver_error = pymysql.err.MySQLError

    def __init__(self, url: str, name: str, *, mapping: TableMapping = NO_MAPPING, read_only: bool = False) -> None:
        super().__init__(name, Decoder(mapping, _CONVERT, distinct=False, zone=""), read_only=read_only)
        self._where_to = parse_url(url)
        self._statements: dict[RowForm, tuple[str, str]] = {}
        self._writer: Db = None
        self._reader: Db = None
        self._db: Db = None
        try:
            self._connected()
        except pymysql.err.OperationalError as error:
            if error.args and error.args[0] in REFUSED:
                raise UserError(f"no target in MySQL: {_said(error)}; check --url") from None
            raise Unavailable(f"no MySQL for target {name}: {_said(error)}; is it up, and --url right?") from None
        except pymysql.err.MySQLError as error:
            raise UserError(f"no target in MySQL: {_said(error)}; check --url") from None

    def position(self) -> Position:
        return self._stored(self._connected())

    def quarantine(self) -> Iterator[tuple[int, bytes]]:
        text = "SELECT log_index, payload FROM logplayer_quarantine WHERE target = %s ORDER BY log_index"
        with self._reading() as db:
            yield from ((index, bytes(payload)) for index, payload in _rows(db, text, (self._name,)))

    def close(self) -> None:
        for connection in (self._writer, self._reader):
            if connection is not None and connection.open:
                connection.close()

    # --- Connections ---

    def _connect(self) -> Db:
        db = pymysql.connect(**self._where_to, charset="utf8mb4", client_flag=CLIENT.FOUND_ROWS, autocommit=True)
        with db.cursor() as cursor:
            cursor.execute(_SESSION)
        return db

    def _connected(self) -> Db:
        if self._writer is None or not self._writer.open:
            db = self._connect()
            try:
                self._prepare(db)
            except BaseException:
                db.close()
                raise
            self._writer = db
        return self._writer

    def _prepare(self, db: Db) -> None:
        if not self._read_only:
            for statement in _SCHEMA:
                _rows(db, statement)
            initial = "INSERT IGNORE INTO logplayer_position VALUES (%s, 0, 0, 0, '', '', '')"
            _rows(db, initial, (self._name,))
            self._warn(db)
        engines = dict(_rows(db, _TABLES))
        for table in ("logplayer_position", "logplayer_quarantine"):
            if table not in engines:
                raise UserError(f"no target {self._name!r} is in this MySQL database; check --id and --url")
            if engines[table] != "InnoDB":
                raise UserError(f"table {table} is on {engines[table]}; a target needs InnoDB: ALTER TABLE ... ENGINE")
        if not _rows(db, _POSITION, (self._name,)):
            raise UserError(f"no target {self._name!r} is in this MySQL database; check --id and --url")

    @staticmethod
    def _warn(db: Db) -> None:
        [(flushes,)] = _rows(db, "SELECT @@innodb_flush_log_at_trx_commit")
        if flushes != 1:
            setting = "innodb_flush_log_at_trx_commit"
            _log.warning("MySQL runs with %s = %s: an ack may be lost when the machine fails", setting, flushes)

    @contextmanager
    def _reading(self) -> Iterator[Db]:
        with self._reader_lock:
            if self._reader is None or not self._reader.open:
                self._reader = self._connect()
            yield self._reader

    # --- Writing ---

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db = self._connected()  # This one to the end: on another connection a write would be outside of it.
        self._db.begin()
        try:
            yield
            self._db.commit()
        except BaseException:
            if self._db.open:
                try:
                    self._db.rollback()
                except pymysql.err.MySQLError:
                    self._db.close()  # The server rolls back what is not committed.
            raise

    def _locked_position(self) -> Position:
        return self._stored(self._db, " FOR UPDATE")

    def _stored(self, db: Db, suffix: str = "") -> Position:
        found = _rows(db, _POSITION + suffix, (self._name,))
        if not found:
            raise TargetError(f"the position of target {self._name} is gone from MySQL; restore its tables")
        index, epoch, term, digest, log_id, chain = found[0]
        return Position(
            index, Session(epoch, term), digests.from_bytes(bytes(digest)), bytes(log_id).decode(), bytes(chain)
        )

    def _store(self, after: Position, aside: list[Delivery]) -> None:
        for message in aside:
            row = (self._name, message.index, message.payload)
            _rows(self._db, "REPLACE INTO logplayer_quarantine VALUES (%s, %s, %s)", row)
        index, session, digest, log_id, chain = after
        _rows(self._db, _STORE, (index, *session, digests.to_bytes(digest), log_id, chain, self._name))

    def _write(self, run: RowRun, shape: TableShape, *, careful: bool) -> int:
        form, rows = run.form, run.rows
        if run.kinds & NOT_FINITE:
            for value in (value for row in rows for value in row if isinstance(value, float)):
                _number(value)
        with self._db.cursor() as cursor:
            # Columns of another key than the primary one may be null: what checks them would make them so.
            if form.op == Op.PUT and not careful and set(form.key_names) == set(shape.primary):
                return sum(map(cursor.execute, self._puts(form, shape.types, rows)))
            if form.op == Op.PUT:
                return sum(put_row(cursor, form, shape.types, row, run.key) for row in rows)
            if form.op == Op.DELETE and len(form.names) == 1:
                [name], values = form.names, [row[0] for row in rows]
                kind = shape.types[name]
                return int(cursor.execute(delete_many(form.table, name, kind, len(rows)), values * (1 + is_text(kind))))
            changes = [change_values(form, shape.types, row) for row in rows]
            return int(cursor.executemany(change(form, shape.types), changes) or 0)

    def _puts(self, form: RowForm, types: Types, rows: list[tuple[Any, ...]]) -> Iterator[str]:
        """The statements that put rows. The driver looks up how to write each value; here each column is looked up."""
        first, last = self._statements.get(form) or self._statements.setdefault(form, put_around(form, types))
        columns = [self._literals(column) for column in zip(*rows, strict=True)]
        texts = list(map(", ".join, zip(*columns, strict=True)))
        count = max(1, len(texts) * _STATEMENT_LENGTH // max(1, sum(map(len, texts))))  # As many as fit on average.
        for start in range(0, len(texts), count):
            yield f"{first}({'), ('.join(texts[start : start + count])}){last}"

    def _literals(self, column: tuple[Any, ...]) -> list[str]:
        kinds = set(map(type, column))
        if len(kinds) == 1:
            literal = LITERALS.get(kinds.pop())
            if literal is not None:
                return list(map(literal, column))
        return [LITERALS.get(type(value), self._db.escape)(value) for value in column]

    def _forget(self) -> None:
        super()._forget()
        self._statements.clear()

    def _run_statement(self, sql: str) -> None:
        raise RowRefused(
            "MySQL commits before and after a statement that changes a schema, so it cannot be run exactly once; run "
            "it by hand when the target is blocked here, and quarantine the entry"
        )

    def _look_up(self, table: str) -> TableShape | None:
        engine = dict(_rows(self._db, _TABLES)).get(table)
        if engine not in (None, "InnoDB"):
            raise RowRefused(
                f"table {table!r} is on {engine}, which does not roll back; ALTER TABLE {table} ENGINE=InnoDB, or "
                "quarantine the entry"
            )
        return _shape(self._db, table)

    def _is_for_good(self, error: Exception) -> bool:
        if not isinstance(error, pymysql.err.MySQLError) or not self._db.open:
            return False
        return bool(error.args) and error.args[0] in ABOUT_ROWS

    def _reason(self, error: Exception, run: RowRun | None) -> str:
        return _said(error)

    # --- Comparing ---

    @contextmanager
    def _snapshot(self) -> Iterator[Db]:
        with closing(self._connect()) as db:
            _rows(db, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            _rows(db, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            yield db

    def _position_in(self, db: Db) -> Position:
        return self._stored(db)

    def _shape_in(self, db: Db, table: str) -> TableShape | None:
        return _shape(db, table)

    def _run(self, db: Db, text: str) -> list[tuple[Any, ...]]:
        return _rows(db, text)

    def _make_copy(self, db: Db, copy: str, more: tuple[str, str], table: str, shape: TableShape) -> None:
        first, second = map(identifier, more)
        texts = {
            name: f" CHARACTER SET {charset} COLLATE {collation}"
            for name, charset, collation in _rows(db, _COLLATIONS, (table,))
        }
        columns = [f"{identifier(name)} {kind}{texts.get(name, '')} NULL" for name, kind in shape.types.items()]
        made = ", ".join([f"{first} BIGINT", f"{second} LONGTEXT", *columns])
        _rows(db, f"CREATE TEMPORARY TABLE {identifier(copy)} ({made}) ENGINE=InnoDB")

    def _insert_into(self, db: Db, copy: str, names: list[str], rows: list[list[Any]]) -> None:
        insert = f"INSERT INTO {quoted(copy)} ({', '.join(map(quoted, names))}) VALUES ({marks(len(names))})"
        with db.cursor() as cursor:
            cursor.executemany(insert, [list(map(self._decoder.converted, row)) for row in rows])

    def _quote(self, name: str) -> str:
        return identifier(name)

    def _table_name(self, table: str) -> str:
        return identifier(table)

    def _same(self, one: str, other: str) -> str:
        return f"CAST({one} AS BINARY) <=> CAST({other} AS BINARY)"  # A collation may take other texts for equal.

    # --- Reading ---

    def _read_tables(self, only: str = "") -> Iterator[tuple[str, TableShape]]:
        with self._reading() as db:
            names = [name for name, _ in _rows(db, _TABLES) if not name.startswith("logplayer_")]
            found = [(name, _shape(db, name)) for name in names]
        yield from ((name, shape) for name, shape in found if shape is not None and shape.primary)

    def _read_rows(self, table: str, shape: TableShape) -> Iterator[tuple[Any, ...]]:
        names = ", ".join(map(quoted, shape.types))
        with self._reading() as db:
            yield from _rows(db, f"SELECT {names} FROM {quoted(table)}")


def parse_url(url: str, option: str = "--url") -> dict[str, Any]:
    """What PyMySQL's ``connect`` takes, of the URL that ``option`` gave. Raises UserError if it is not one of MySQL."""
    parts = urlsplit(url)
    database = parts.path.strip("/")
    if parts.scheme not in ("mysql", "mariadb") or not database:
        raise UserError(f"{option} is not a URL of MySQL; write mysql://USER:PASSWORD@HOST:PORT/DATABASE")
    found: dict[str, Any] = {"user": unquote(parts.username or ""), "database": unquote(database)}
    if parts.password:
        found["password"] = unquote(parts.password)
    socket = parse_qs(parts.query).get("socket")
    if socket:
        return found | {"unix_socket": socket[0]}
    return found | {"host": parts.hostname or "127.0.0.1", "port": parts.port or 3306}


def _rows(db: Db, text: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
    with db.cursor() as cursor:
        cursor.execute(text, parameters or None)
        return list(cursor.fetchall())


def _said(error: Exception) -> str:
    return str(error.args[1] if len(error.args) > 1 else error)


def _shape(db: Db, table: str) -> TableShape | None:
    types = dict(_rows(db, _COLUMNS, (table,)))
    if not types:
        return None
    keys: dict[str, list[str]] = {}
    for index, column in _rows(db, _KEYS, (table,)):
        keys.setdefault(index, []).append(column)
    unique = tuple(map(frozenset, keys.values()))
    return TableShape(types, tuple(keys.get("PRIMARY", ())), unique, limits_of(types))


def _number(value: Any) -> Any:
    if not math.isfinite(value):
        raise RowRefused(f"{value} does not fit: MySQL has no such number; append null, or quarantine the entry")
    return value


def _utc(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


_CONVERT: dict[type, Callable[[Any], Any]] = {
    Decimal: _number,
    datetime: _utc,
    UUID: str,
    Json: lambda value: value.text,
    list: lambda value: json.dumps([value_to_json(item) for item in value], ensure_ascii=False),
}

"""A target in PostgreSQL: a schema of its own for each target, ``logplayer_<name>``.

Durable if the server is: ``synchronous_commit = off`` is switched on for this connection, and a server with
``fsync = off`` is warned about. PostgreSQL cuts long names without an error, so a name that it would cut is refused,
and the owner's name is in the position's row: two targets can never share a schema.

One transaction covers data, position and quarantine, and ``SELECT ... FOR UPDATE`` on the position's row makes two
servers on one store wait for one another.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from logplayer.core import digest as digests
from logplayer.core.entry import Delivery, Session
from logplayer.core.fence import Position
from logplayer.crashpoint import crashpoint
from logplayer.errors import Poison, TargetError, Unavailable, UserError
from logplayer.target.protocol import Change, Row, Store, decode_rows

_log = logging.getLogger(__name__)
Db = psycopg.Connection[Any]
_DATA = "CREATE TABLE IF NOT EXISTS {schema}.data (key bytea PRIMARY KEY, value bytea NOT NULL)"
_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.quarantine (log_index bigint PRIMARY KEY, payload bytea NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.position (
  one boolean PRIMARY KEY DEFAULT true CHECK (one), log_index bigint NOT NULL DEFAULT 0,
  epoch bigint NOT NULL DEFAULT 0, term bigint NOT NULL DEFAULT 0, digest bytea NOT NULL DEFAULT '',
  log_id text NOT NULL DEFAULT '', target text NOT NULL DEFAULT '', chain bytea NOT NULL DEFAULT '');
INSERT INTO {schema}.position DEFAULT VALUES ON CONFLICT DO NOTHING;
"""
# Whatever else the operator chose waits for the disk of this server at least.
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
# By way of JSON, so that a table of an earlier version, which lacks columns, can be asked too.
_OWNER = "SELECT to_jsonb(position) ->> 'target', to_jsonb(position) ->> 'chain' FROM {schema}.position"
_ADOPT = "UPDATE {schema}.position SET target = %s WHERE target = ''"
_POSITION = "SELECT log_index, epoch, term, digest, log_id, chain FROM {schema}.position"
_STORE = """
UPDATE {schema}.position SET (log_index, epoch, term, digest, log_id, chain) = (%s, %s, %s, %s, %s, %s)
"""
_PUT = "INSERT INTO {schema}.data VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
# What PostgreSQL says when a row can never be stored: a constraint, a trigger's veto, a value out of its limits.
_FOR_GOOD = (psycopg.IntegrityError, psycopg.DataError, psycopg.errors.RaiseException)


class PostgresPosition:
    """What every target in PostgreSQL has: its connections, its position and its quarantine, in a schema of its own."""

    _data = ""  # What is made beside them.

    def __init__(self, url: str, name: str, *, read_only: bool = False) -> None:
        self._url = url
        self._name = name
        self._schema_name = f"logplayer_{name}"
        self._schema = sql.Identifier(self._schema_name)
        self._read_only = read_only
        self._texts: dict[str, bytes] = {}
        self._writer: Db | None = None
        self._reader: Db | None = None
        self._reader_lock = threading.Lock()
        try:
            psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # Its text quotes the URL, and the password in it.
            raise UserError("--url is not a URL of PostgreSQL; write postgresql://USER@HOST:PORT/DATABASE") from None
        try:
            self._connected()
        except psycopg.OperationalError as error:  # Also "starting up", which looks like the rest.
            why = str(error).strip()
            raise Unavailable(f"no PostgreSQL for target {name}: {why}; is it up, and --url right?") from None
        except psycopg.Error as error:
            raise UserError(f"no target in PostgreSQL: {str(error).strip()}; check --url") from None

    def position(self) -> Position:
        """What is stored; ``Position()`` if nothing ever was.

        Raises:
            Exception: What psycopg raises if it cannot be read now.

        Example:
            >>> store.position().index  # doctest: +SKIP
            42
        """
        return self._stored(self._connected())

    def quarantine(self) -> Iterator[tuple[int, bytes]]:
        """Every quarantined delivery: its index and its payload.

        Raises:
            Exception: What psycopg raises if it cannot be read now.

        Example:
            >>> [index for index, payload in store.quarantine()]  # doctest: +SKIP
            [17]
        """
        for index, payload in self._read("SELECT log_index, payload FROM {schema}.quarantine ORDER BY 1"):
            yield index, bytes(payload)

    def close(self) -> None:
        """Give back the connections; call nothing after it.

        Example:
            >>> store.close()  # doctest: +SKIP
        """
        for connection in (self._writer, self._reader):
            if connection is not None:
                connection.close()

    # --- Inside ---

    def _sql(self, text: str) -> bytes:
        """The statement for this schema; to put it together takes longer than many a query."""
        known = self._texts.get(text)
        if known is None:
            known = self._texts[text] = sql.SQL(text).format(schema=self._schema).as_bytes()
        return known

    def _connect(self) -> Db:
        return psycopg.connect(self._url, autocommit=True)

    def _connected(self) -> Db:
        if self._writer is None or self._writer.closed:
            db = self._connect()
            try:
                self._prepare(db)
            except BaseException:
                db.close()
                raise
            self._writer = db
        return self._writer

    def _prepare(self, db: Db) -> None:
        self._refuse_a_name_that_is_cut(db)
        db.execute(_DURABLE)
        if not self._read_only:
            for statement in [*_SCHEMA.strip().split(";\n"), *([self._data] if self._data else [])]:
                db.execute(self._sql(statement.rstrip(";")))
            self._owner(db)
            db.execute(self._sql(_ADOPT), (self._name,))
            self._warn(db)
        owner = self._owner(db)
        if owner not in ("", self._name):
            raise UserError(f"schema {self._schema_name} belongs to target {owner!r}, not to {self._name!r}")

    def _owner(self, db: Db) -> str:
        try:
            row = db.execute(self._sql(_OWNER)).fetchone()
        except psycopg.errors.UndefinedTable:
            raise UserError(f"no target {self._name!r} is in this PostgreSQL database; check --id and --url") from None
        if row is None:
            return ""
        owner, chain = row
        if owner is None or chain is None:
            raise UserError(
                f"schema {self._schema_name} was made by an earlier version and lacks the log's chain value; drop it, "
                "and fill the target again with a backfill"
            )
        return str(owner)

    def _refuse_a_name_that_is_cut(self, db: Db) -> None:
        row = db.execute("SELECT current_setting('max_identifier_length')::int").fetchone()
        limit = row[0] if row is not None else 63
        excess = len(self._schema_name.encode()) - limit
        if excess > 0:
            raise UserError(
                f"PostgreSQL would cut the schema name of target {self._name!r} after {limit} bytes, "
                f"and targets could then share one; use a name that is {excess} bytes shorter"
            )

    @staticmethod
    def _warn(db: Db) -> None:
        for setting in ("fsync", "full_page_writes"):
            row = db.execute(sql.SQL("SHOW {}").format(sql.Identifier(setting))).fetchone()
            if row is not None and row[0] != "on":
                _log.warning("PostgreSQL runs with %s = %s: an ack may be lost when the machine fails", setting, row[0])

    def _stored(self, db: Db, suffix: str = "") -> Position:
        row = db.execute(self._sql(_POSITION + suffix)).fetchone()
        if row is None:
            raise TargetError(f"the position of target {self._name} is gone from PostgreSQL; restore its schema")
        index, epoch, term, digest, log_id, chain = row
        return Position(index, Session(epoch, term), digests.from_bytes(bytes(digest)), log_id, bytes(chain))

    def _store(self, db: Db, position: Position) -> None:
        index, session, digest, log_id, chain = position
        db.execute(self._sql(_STORE), (index, *session, digests.to_bytes(digest), log_id, chain))

    def _keep_aside(self, db: Db, messages: list[Delivery]) -> None:
        aside = [(message.index, message.payload) for message in messages]
        if aside:
            with db.cursor() as cursor:
                cursor.executemany(self._sql("INSERT INTO {schema}.quarantine VALUES (%s, %s)"), aside)

    def _read(self, text: str, parameters: tuple[Any, ...] = ()) -> Iterator[Any]:
        with self._reading() as db:
            yield from db.execute(self._sql(text), parameters)

    @contextmanager
    def _reading(self) -> Iterator[Db]:
        with self._reader_lock:
            if self._reader is None or self._reader.closed:
                self._reader = self._connect()
            yield self._reader


class PostgresTarget(PostgresPosition, Store):
    """Rows in a table of PostgreSQL.

    Args:
        url: What psycopg takes: ``postgresql://user@host/db``.
        name: The target's name. Each has a schema of its own in the database.
        read_only: Only read, also while a server writes.

    Raises:
        Unavailable: The database cannot be reached.
        UserError: The URL is wrong, or the schema is another target's.

    Example:
        >>> lp.TargetServer({"a": lp.PostgresTarget("postgresql://user@host/db", "a")})  # doctest: +SKIP

    A connection that was lost is opened again by the next call. If it was lost during a commit, nobody knows here
    whether it happened; the position in the database does, and the next Open reads it.
    """

    _data = _DATA

    def apply(self, change: Change) -> Position:
        if self._read_only:
            raise TargetError("this store was opened for reading")
        db = self._connected()  # This one to the end: on another connection a write would be outside the transaction.
        try:
            with db.transaction():
                after = change.check(self._stored(db, " FOR UPDATE"))
                for is_put, rows in change.runs:
                    self._write(db, is_put, rows)
                self._keep_aside(db, change.quarantined)
                crashpoint("store-rows-written")
                self._store(db, after)
                crashpoint("store-position-written")
            crashpoint("store-committed")
        except _FOR_GOOD as error:
            self._find_poison(db, change)
            raise error
        return after

    def get(self, key: bytes) -> bytes | None:
        row = next(self._read("SELECT value FROM {schema}.data WHERE key = %s", (key,)), None)
        return None if row is None else bytes(row[0])

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._read("SELECT key, value FROM {schema}.data"):
            yield bytes(key), bytes(value)

    # --- Inside ---

    def _write(self, db: Db, is_put: bool, rows: list[Row]) -> None:
        with db.cursor() as cursor:
            if is_put:
                cursor.executemany(self._sql(_PUT), [row[1:] for row in rows])
            else:
                cursor.executemany(self._sql("DELETE FROM {schema}.data WHERE key = %s"), [row[1:2] for row in rows])

    def _find_poison(self, db: Db, change: Change) -> None:
        """Raise Poison for the entry that the store refuses: write one at a time, and keep nothing."""
        for message in change.messages:
            if message.quarantine:
                continue
            try:
                with db.transaction(force_rollback=True):
                    for row in decode_rows(message):
                        self._write(db, row.value is not None, [row])
            except _FOR_GOOD as error:
                reason = str(error).splitlines()[0]
                raise Poison(f"PostgreSQL refuses entry {message.index}: {reason}", message.index) from None

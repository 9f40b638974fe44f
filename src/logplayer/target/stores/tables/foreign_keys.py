"""The foreign keys of a database, by its catalog: PostgreSQL, MySQL and MariaDB, SQLite.

Nothing is written. Tables have the names that their rows have in the log: in PostgreSQL a table of the given schema has
its plain name, any other ``schema.name``. LogPlayer's own tables are left out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from logplayer.errors import ConfigError, Unavailable, UserError
from logplayer.target.places import check_url

OWN = "logplayer_"
_POSTGRES = ("postgresql://", "postgres://")
_MYSQL = ("mysql://", "mariadb://")


class ForeignKey(NamedTuple):
    """Rows of ``child`` name a row of ``parent``: the nth of ``columns`` has the value of the nth of ``referred``."""

    name: str  # Empty in SQLite, which does not keep it.
    child: str
    columns: tuple[str, ...]
    parent: str
    referred: tuple[str, ...]

    def __str__(self) -> str:
        named = f"{self.name}: " if self.name else ""
        return f"{named}{self.child} ({', '.join(self.columns)}) -> {self.parent} ({', '.join(self.referred)})"


class TableKey(NamedTuple):
    """A table: how SQL writes it, and its primary key."""

    quoted: str
    key: tuple[str, ...]


class TableSchema(NamedTuple):
    """What a catalog says."""

    tables: dict[str, TableKey]
    foreign_keys: list[ForeignKey]


class Pair(NamedTuple):
    """A row and the row that its foreign key names, each by its primary key."""

    child: tuple[Any, ...]
    parent: tuple[Any, ...]


class SchemaReader:
    """A connection that reads a catalog; :func:`open_schema` makes it.

    Args:
        run: Runs a query with parameters and returns its rows.
        close: Ends the connection.
        quoted: How this database writes a name.
    """

    def __init__(
        self, run: Callable[..., list[tuple[Any, ...]]], close: Callable[[], None], quoted: Callable[[str], str]
    ) -> None:
        self.run = run
        self.close = close
        self.quoted = quoted

    def read(self) -> TableSchema:
        """The tables and their foreign keys."""
        raise NotImplementedError

    def pairs(self, schema: TableSchema, key: ForeignKey, count: int) -> list[Pair]:
        """At most ``count`` rows of the child, each with its parent; none if a table has no primary key."""
        child, parent = schema.tables.get(key.child), schema.tables.get(key.parent)
        if child is None or parent is None or not child.key or not parent.key:
            return []
        joined = zip(key.columns, key.referred, strict=True)
        on = " AND ".join(f"c.{self.quoted(one)} = p.{self.quoted(other)}" for one, other in joined)
        names = [f"c.{self.quoted(name)}" for name in child.key] + [f"p.{self.quoted(name)}" for name in parent.key]
        query = f"SELECT {', '.join(names)} FROM {child.quoted} c JOIN {parent.quoted} p ON {on} LIMIT {count:d}"
        width = len(child.key)
        return [Pair(tuple(row[:width]), tuple(row[width:])) for row in self.run(query)]


def open_schema(database: str, schema: str = "public") -> SchemaReader:
    """Connect to ``database``: a URL of PostgreSQL or MySQL, or the path of an SQLite file.

    Args:
        database: ``postgresql://...``, ``mysql://...``, or a path.
        schema: The schema of PostgreSQL whose tables have their plain names in the log.

    Raises:
        UserError: It is not such a database.
        Unavailable: It cannot be reached.

    Example:
        >>> open_schema("shop.db").read()  # doctest: +SKIP
    """
    if "://" in database:
        check_url(database)
    if database.startswith(_POSTGRES):
        return _with("psycopg", "postgres", lambda: open_postgres(database, schema))
    if database.startswith(_MYSQL):
        return _with("pymysql", "mysql", lambda: _open_mysql(database))
    if "://" in database:
        raise ConfigError(
            "--database is not a database with tables; write postgresql://USER@HOST:PORT/DATABASE, "
            "mysql://USER:PASSWORD@HOST:PORT/DATABASE, or the path of an SQLite file"
        )
    return _open_sqlite(database)


def _with(module: str, extra: str, make: Callable[[], SchemaReader]) -> SchemaReader:
    try:
        return make()
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ConfigError(f"--database needs {module}: pip install 'logplayer[{extra}]'") from None


# --- PostgreSQL ---

_PG_TABLES = """
SELECT n.nspname::text, c.relname::text,
  (SELECT array_agg(a.attname::text ORDER BY k.n) FROM pg_index i
     CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, n)
     JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
     WHERE i.indrelid = c.oid AND i.indisprimary AND k.n <= i.indnkeyatts)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2
"""
_PG_KEYS = """
SELECT f.conname::text, cn.nspname::text, c.relname::text, pn.nspname::text, p.relname::text,
  (SELECT array_agg(a.attname::text ORDER BY k.n) FROM unnest(f.conkey) WITH ORDINALITY AS k(attnum, n)
     JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = k.attnum),
  (SELECT array_agg(a.attname::text ORDER BY k.n) FROM unnest(f.confkey) WITH ORDINALITY AS k(attnum, n)
     JOIN pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.attnum)
FROM pg_constraint f
JOIN pg_class c ON c.oid = f.conrelid JOIN pg_namespace cn ON cn.oid = c.relnamespace
JOIN pg_class p ON p.oid = f.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace
WHERE f.contype = 'f' AND f.conparentid = 0 ORDER BY 2, 3, 1
"""


def open_postgres(url: str, schema: str = "public", option: str = "--database") -> SchemaReader:
    """Connect to the PostgreSQL that ``option`` gave; ``url`` may also be another form that libpq takes.

    Raises:
        UserError: The URL is wrong.
        Unavailable: The server cannot be reached.
    """
    import psycopg

    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # Its text quotes the URL, and the password in it.
        raise ConfigError(f"{option} is not a URL of PostgreSQL; write postgresql://USER@HOST:PORT/DATABASE") from None
    try:
        db = psycopg.connect(url, autocommit=True, connect_timeout=10)
    except psycopg.OperationalError as error:
        raise Unavailable(f"no PostgreSQL at {option}: {str(error).strip()}; is it up, and the URL right?") from None

    def run(query: str, *parameters: object) -> list[tuple[Any, ...]]:
        try:
            return db.execute(query.encode(), parameters or None).fetchall()
        except psycopg.Error as error:
            raise UserError(f"PostgreSQL at {option} refuses a question: {str(error).strip()}") from None

    return _PostgresSchema(run, db.close, _double_quoted, schema)


class _PostgresSchema(SchemaReader):
    def __init__(self, run: Any, close: Any, quoted: Any, schema: str) -> None:
        super().__init__(run, close, quoted)
        self._schema = schema

    def read(self) -> TableSchema:
        tables = {
            self._name(schema, name): TableKey(f"{self.quoted(schema)}.{self.quoted(name)}", tuple(key or ()))
            for schema, name, key in self.run(_PG_TABLES)
            if not schema.startswith(OWN)
        }
        keys = [
            ForeignKey(name, self._name(*row[:2]), tuple(row[4]), self._name(*row[2:4]), tuple(row[5]))
            for name, *row in self.run(_PG_KEYS)
        ]
        return TableSchema(tables, keys)

    def _name(self, schema: str, name: str) -> str:
        return name if schema == self._schema else f"{schema}.{name}"


# --- MySQL and MariaDB ---

_MY_TABLES = """
SELECT t.table_name, k.column_name FROM information_schema.tables t
LEFT JOIN information_schema.key_column_usage k ON k.table_schema = t.table_schema AND k.table_name = t.table_name
  AND k.constraint_name = 'PRIMARY'
WHERE t.table_schema = database() AND t.table_type = 'BASE TABLE' ORDER BY t.table_name, k.ordinal_position
"""
_MY_KEYS = """
SELECT constraint_name, table_name, column_name, referenced_table_schema = database(), referenced_table_schema,
  referenced_table_name, referenced_column_name
FROM information_schema.key_column_usage
WHERE table_schema = database() AND referenced_table_name IS NOT NULL
ORDER BY table_name, constraint_name, ordinal_position
"""


def _open_mysql(url: str) -> SchemaReader:
    import pymysql

    from logplayer.target.stores.tables.mysql import REFUSED, parse_url

    try:
        db = pymysql.connect(**parse_url(url, "--database"), charset="utf8mb4", autocommit=True, connect_timeout=10)
    except pymysql.err.MySQLError as error:
        kind = UserError if error.args and error.args[0] in REFUSED else Unavailable
        why = error.args[1] if len(error.args) > 1 else error
        raise kind(f"no MySQL at --database: {why}; is it up, and the URL right?") from None

    def run(query: str, *parameters: object) -> list[tuple[Any, ...]]:
        try:
            with db.cursor() as cursor:
                cursor.execute(query, parameters or None)
                return list(cursor.fetchall())
        except pymysql.err.MySQLError as error:
            why = error.args[1] if len(error.args) > 1 else error
            raise UserError(f"MySQL at --database refuses a question: {why}") from None

    return _MysqlSchema(run, db.close, lambda name: "`" + name.replace("`", "``") + "`")


class _MysqlSchema(SchemaReader):
    def read(self) -> TableSchema:
        found: dict[str, list[str]] = {}
        for name, column in self.run(_MY_TABLES):
            if not name.startswith(OWN):
                found.setdefault(name, []).extend([column] if column else [])
        tables = {name: TableKey(self.quoted(name), tuple(key)) for name, key in found.items()}
        return TableSchema(tables, _grouped(self._columns()))

    def _columns(self) -> Iterable[tuple[str, str, str, str, str]]:
        for name, child, column, here, database, parent, referred in self.run(_MY_KEYS):
            yield name, child, column, parent if here else f"{database}.{parent}", referred


def _grouped(rows: Iterable[tuple[str, str, str, str, str]]) -> list[ForeignKey]:
    """One foreign key of its columns' rows: name, child, column, parent, referred column."""
    found: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for name, child, column, parent, referred in rows:
        found.setdefault((name, child, parent), []).append((column, referred))
    return [
        ForeignKey(name, child, tuple(one for one, _ in pairs), parent, tuple(other for _, other in pairs))
        for (name, child, parent), pairs in found.items()
    ]


# --- SQLite ---


def _open_sqlite(path: str) -> SchemaReader:
    if not Path(path).is_file():
        raise ConfigError(f"--database {path} is not a file; give the path of an SQLite file, or a URL")
    try:
        db = sqlite3.connect(f"file:{quote(str(Path(path).absolute()))}?mode=ro", uri=True, check_same_thread=False)
        db.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.Error as error:
        raise ConfigError(f"--database {path} cannot be read as an SQLite file: {error}") from None

    def run(query: str, *parameters: object) -> list[tuple[Any, ...]]:
        try:
            return db.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise UserError(f"{path} refuses a question: {error}") from None

    return _SqliteSchema(run, db.close, _double_quoted)


class _SqliteSchema(SchemaReader):
    def read(self) -> TableSchema:
        names = [row[0] for row in self.run("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        names = [name for name in names if not name.startswith((OWN, "sqlite_"))]
        tables = {name: TableKey(self.quoted(name), self._key(name)) for name in names}
        return TableSchema(tables, [key for name in names for key in self._foreign_keys(name, tables)])

    def _key(self, table: str) -> tuple[str, ...]:
        found = [row for row in self.run(f"PRAGMA table_info({self.quoted(table)})") if row[5]]
        return tuple(row[1] for row in sorted(found, key=lambda row: int(row[5])))

    def _foreign_keys(self, table: str, tables: dict[str, TableKey]) -> list[ForeignKey]:
        rows = sorted(self.run(f"PRAGMA foreign_key_list({self.quoted(table)})"), key=lambda row: (row[0], row[1]))
        keys = []
        for number in sorted({row[0] for row in rows}):
            own: Sequence[tuple[Any, ...]] = [row for row in rows if row[0] == number]
            parent = next((name for name in tables if name.lower() == own[0][2].lower()), own[0][2])
            primary = tables[parent].key if parent in tables else ()
            referred = tuple(row[4] or (primary[nth] if nth < len(primary) else "?") for nth, row in enumerate(own))
            keys.append(ForeignKey("", table, tuple(row[3] for row in own), parent, referred))
        return keys


def _double_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

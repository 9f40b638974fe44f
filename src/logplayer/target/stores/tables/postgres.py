"""A target in the tables of a PostgreSQL schema that is the user's own.

Position and quarantine are in a schema beside it, ``logplayer_<name>``, as :mod:`logplayer.target.stores.postgres` has
them, and every connection is prepared as there. A run is one statement over arrays: ``INSERT ... SELECT FROM
unnest(...)``. Arrays are cast to the type of the column without its length, so that a text that is too long is refused
and not cut. Tables with columns that are arrays themselves are written row by row, in a pipeline.

A column that is GENERATED ALWAYS AS IDENTITY takes the log's value where a row is inserted (OVERRIDING SYSTEM VALUE),
but no UPDATE may set it. So an UPDATE compares it, and a row that has another value is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg
from psycopg import sql

from logplayer.core.entry import Delivery
from logplayer.core.fence import Position
from logplayer.errors import UserError
from logplayer.target.stores.postgres import Db, PostgresPosition
from logplayer.target.stores.tables.base import TableStore
from logplayer.target.stores.tables.exact import limits_of
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping
from logplayer.target.stores.tables.runs import Decoder, RowRefused, RowRun, TableShape
from logplayer.wire.fastpath import RowForm
from logplayer.wire.rows import Op
from logplayer.wire.values import Json

# Constraints and values, triggers and functions that raise, tables and columns that are gone since they were looked up,
# rights that are missing, statements that cannot run in a transaction or are not there at all.
_FOR_GOOD = (
    psycopg.IntegrityError,
    psycopg.DataError,
    psycopg.ProgrammingError,
    psycopg.NotSupportedError,
    psycopg.errors.RaiseException,
    psycopg.errors.ActiveSqlTransaction,
)
_JSON = 1 << 12  # Of the kinds of a run: field json of Value.
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, -1),
  CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(a.atttypid, a.atttypmod) END,
  a.attidentity = 'a'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
SELECT i.indisprimary, array_agg(a.attname ORDER BY array_position(i.indkey::int2[], a.attnum))
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate
GROUP BY i.indexrelid, i.indisprimary
"""
_TABLES = """
SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'p') ORDER BY relname
"""


class PostgresTables(TableStore):
    """Rows in the tables of a PostgreSQL schema, with the target's index in the same transaction.

    Args:
        url: What psycopg takes: ``postgresql://user@host/db``.
        name: The target's name. Its position is in the schema ``logplayer_<name>``.
        schema: The schema that has the tables.
        mapping: How tables and columns are named here.
        read_only: Only read, also while a server writes.

    Raises:
        Unavailable: The database cannot be reached.
        UserError: The URL is wrong, the schema is not there, or ``logplayer_<name>`` is another target's.

    Example:
        >>> lp.TargetServer({"a": lp.PostgresTables("postgresql://user@host/db", "a")})  # doctest: +SKIP
    """

    product = "PostgreSQL"
    driver_error = psycopg.Error

    def __init__(
        self,
        url: str,
        name: str,
        *,
        schema: str = "public",
        mapping: TableMapping = NO_MAPPING,
        read_only: bool = False,
    ) -> None:
        super().__init__(name, Decoder(mapping), read_only=read_only)
        self._tables_schema = schema
        self._statements: dict[RowForm, bytes] = {}
        self._named: dict[str, sql.Identifier] = {}  # The tables that were looked up.
        self._own = PostgresPosition(url, name, read_only=read_only)
        found = self._own._connected().execute("SELECT to_regnamespace(%s)", (sql.Identifier(schema).as_string(),))
        if found.fetchone() == (None,):
            self._own.close()
            raise UserError(f"this PostgreSQL database has no schema {schema!r}; create it, or check --schema")

    def position(self) -> Position:
        return self._own.position()

    def quarantine(self) -> Iterator[tuple[int, bytes]]:
        return self._own.quarantine()

    def close(self) -> None:
        self._own.close()

    # --- Inside ---

    def _transaction(self) -> AbstractContextManager[Any]:
        self._db: Db = self._own._connected()  # This one to the end: see PostgresTarget.apply.
        return self._db.transaction()

    def _locked_position(self) -> Position:
        return self._own._stored(self._db, " FOR UPDATE")

    def _store(self, after: Position, aside: list[Delivery]) -> None:
        self._own._keep_aside(self._db, aside)
        self._own._store(self._db, after)

    def _write(self, run: RowRun, shape: TableShape, *, careful: bool) -> int:
        found = self._write_rows(run, shape)
        if found < len(run.rows) and shape.fixed.intersection(run.form.other_names):
            self._check_fixed(run, shape, careful=careful)
        return found

    def _write_rows(self, run: RowRun, shape: TableShape) -> int:
        form = run.form
        if len(run.rows) == 1 or any(shape.types[name].endswith("[]") for name in form.names):
            return self._write_each(run, shape)
        columns: list[list[Any]] = list(map(list, zip(*run.rows, strict=True)))
        if run.kinds & _JSON:
            columns = list(map(_to_postgres, columns))
        return self._db.execute(self._statement(form, shape), columns).rowcount

    def _statement(self, form: RowForm, shape: TableShape) -> bytes:
        """The statement that writes a whole run, made once for each form of row."""
        known = self._statements.get(form)
        if known is None:
            known = self._statements[form] = self._make_statement(form, shape).as_bytes(self._db)
        return known

    def _forget(self) -> None:
        super()._forget()
        self._statements.clear()

    def _make_statement(self, form: RowForm, shape: TableShape) -> sql.Composed:
        types = [shape.types[name] for name in form.names]
        arrays = sql.SQL(", ").join(sql.SQL("{}::{}[]").format(sql.Placeholder(), sql.SQL(kind)) for kind in types)
        aliases = [sql.Identifier(f"c{nth}") for nth in range(len(types))]
        source = sql.SQL("unnest({}) AS v({})").format(arrays, sql.SQL(", ").join(aliases))
        new = [sql.SQL("v.{}").format(alias) for alias in aliases]
        if form.op == Op.PUT:
            return self._put(form, shape, sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(new), source))
        return self._change(form, shape, new, source)

    def _write_each(self, run: RowRun, shape: TableShape) -> int:
        """One statement for each row."""
        form = run.form
        marks = [sql.Placeholder()] * len(form.names)
        order = list(range(len(form.names)))
        if form.op == Op.PUT:
            statement = self._put(form, shape, sql.SQL("VALUES ({})").format(sql.SQL(", ").join(marks)))
        else:
            where = _compared(form, shape)
            order.sort(key=lambda nth: where[nth])  # As the statement has them: what is compared is last.
            statement = self._change(form, shape, marks, None)
        rows = [_to_postgres([row[nth] for nth in order]) for row in run.rows]
        if len(rows) == 1:
            return self._db.execute(statement, rows[0]).rowcount
        with self._db.cursor() as cursor:
            cursor.executemany(statement, rows)
            return cursor.rowcount

    def _put(self, form: RowForm, shape: TableShape, values: sql.Composable) -> sql.Composed:
        fixed = shape.fixed.intersection(form.other_names)
        changed = [name for name in form.other_names if name not in fixed]
        if fixed and not changed:
            changed = form.key_names[:1]  # It has the value: a row that is there must be met, to be compared.
        setting = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in changed)
        same = [sql.SQL("t.{0} = excluded.{0}").format(sql.Identifier(name)) for name in sorted(fixed)]
        where = sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(same)) if same else sql.SQL("")
        return sql.SQL("INSERT INTO {} AS t ({}) OVERRIDING SYSTEM VALUE {} ON CONFLICT ({}) DO {}").format(
            self._table(form.table),
            sql.SQL(", ").join(map(sql.Identifier, form.names)),
            values,
            sql.SQL(", ").join(map(sql.Identifier, form.key_names)),
            sql.SQL("UPDATE SET {}{}").format(setting, where) if changed else sql.SQL("NOTHING"),
        )

    def _change(self, form: RowForm, shape: TableShape, new: list[Any], source: sql.Composable | None) -> sql.Composed:
        """An UPDATE or a DELETE; ``new`` stands for the values in the order of the columns."""
        table = sql.Identifier("t")
        pairs = list(zip(form.names, _compared(form, shape), new, strict=True))
        where = sql.SQL(" AND ").join(
            sql.SQL("{}.{} = {}").format(table, sql.Identifier(name), value)
            for name, compared, value in pairs
            if compared
        )
        if form.op == Op.DELETE:
            using = sql.SQL("USING {} ").format(source) if source is not None else sql.SQL("")
            return sql.SQL("DELETE FROM {} AS t {}WHERE {}").format(self._table(form.table), using, where)
        changed = [
            sql.SQL("{} = {}").format(sql.Identifier(name), value) for name, compared, value in pairs if not compared
        ] or [sql.SQL("{0} = t.{0}").format(sql.Identifier(form.key_names[0]))]
        using = sql.SQL("FROM {} ").format(source) if source is not None else sql.SQL("")
        return sql.SQL("UPDATE {} AS t SET {} {}WHERE {}").format(
            self._table(form.table), sql.SQL(", ").join(changed), using, where
        )

    def _check_fixed(self, run: RowRun, shape: TableShape, *, careful: bool) -> None:
        """Refuse a row that is there, and has another value where no UPDATE can set one."""
        form, row = run.form, run.rows[0]
        keys = {name: value for name, key, value in zip(form.names, form.keys, row, strict=True) if key}
        where = sql.SQL(" AND ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder()) for name in keys
        )
        there = sql.SQL("SELECT FROM {} WHERE {}").format(self._table(form.table), where)
        if careful and self._db.execute(there, list(keys.values())).fetchone() is None:
            return  # A patch of a row that is not there, or a row that a trigger has left out.
        column = min(shape.fixed.intersection(form.other_names))
        raise RowRefused(
            f"row {run.key.decode(errors='replace')}: column {column!r} is GENERATED ALWAYS AS IDENTITY "
            "and has another value, which PostgreSQL lets nobody change; "
            f"ALTER TABLE {form.table} ALTER COLUMN {column} SET GENERATED BY DEFAULT, or quarantine the entry"
        )

    def _table(self, name: str) -> sql.Identifier:
        return self._named.get(name) or sql.Identifier(self._tables_schema, name)

    def _run_statement(self, statement: str) -> None:
        path = sql.Identifier(self._tables_schema)
        self._db.execute(sql.SQL("SET LOCAL search_path TO {}").format(path))
        try:
            # Results in binary need the extended protocol, which takes one statement only.
            self._db.execute(sql.SQL(statement), binary=True)
        except psycopg.errors.ActiveSqlTransaction as error:
            raise RowRefused(
                f"{str(error).splitlines()[0]}; append it in a form that can (CREATE INDEX without CONCURRENTLY), or "
                "quarantine the entry and run the statement by hand"
            ) from None
        self._db.execute("SET LOCAL search_path TO DEFAULT")

    def _settle(self) -> None:
        """Constraints that are deferred would only fail the commit, which names no entry."""
        self._db.execute("SET CONSTRAINTS ALL IMMEDIATE")
        self._db.execute("SET CONSTRAINTS ALL DEFERRED")

    def _look_up(self, table: str) -> TableShape | None:
        return self._shape(self._db, table)

    def _candidates(self, table: str) -> Iterator[sql.Identifier]:
        """What ``table`` may name: one of this schema, or schema.table, as a capture names one outside of public."""
        yield sql.Identifier(self._tables_schema, table)
        schema, dot, name = table.partition(".")
        if dot and schema and name:
            yield sql.Identifier(schema, name)

    def _shape(self, db: Db, table: str) -> TableShape | None:
        for named in self._candidates(table):
            name = named.as_string()
            columns = db.execute(_COLUMNS, (name,)).fetchall()
            if columns:
                self._named[table] = named
                break
        else:
            return None
        keys = db.execute(_KEYS, (name,)).fetchall()
        primary = next((tuple(names) for is_primary, names in keys if is_primary), ())
        unique = tuple(frozenset(names) for _, names in keys)
        limits = limits_of({column: declared for column, _, declared, _ in columns}, fraction=6)
        fixed = frozenset(column for column, _, _, always in columns if always)
        return TableShape({column: kind for column, kind, _, _ in columns}, primary, unique, limits, fixed)

    def _is_for_good(self, error: Exception) -> bool:
        return isinstance(error, _FOR_GOOD)

    def _reason(self, error: Exception, run: RowRun | None) -> str:
        diagnosis = getattr(error, "diag", None)
        detail = getattr(diagnosis, "message_detail", None)
        name = getattr(diagnosis, "constraint_name", None)
        said = str(error).splitlines()[0]
        named = f" (constraint {name})" if name and name not in said else ""
        return f"{said}{named}" + (f" ({detail})" if detail else "")

    def _where(self) -> str:
        return f"schema {self._tables_schema!r} of this PostgreSQL database"

    @contextmanager
    def _snapshot(self) -> Iterator[Db]:
        with self._own._connect() as db:
            db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            db.autocommit = False
            yield db
            db.rollback()

    def _position_in(self, db: Db) -> Position:
        return self._own._stored(db)

    def _shape_in(self, db: Db, table: str) -> TableShape | None:
        return self._shape(db, table)

    def _run(self, db: Db, text: str) -> list[tuple[Any, ...]]:
        cursor = db.execute(text.encode())
        return cursor.fetchall() if cursor.description else []

    def _make_copy(self, db: Db, copy: str, more: tuple[str, str], table: str, shape: TableShape) -> None:
        first, second = map(self._quote, more)
        columns = f"0::bigint AS {first}, ''::text AS {second}, t.*"
        self._run(
            db,
            f"CREATE TEMP TABLE {self._quote(copy)} ON COMMIT DROP AS SELECT {columns} "
            f"FROM {self._table_name(table)} t WITH NO DATA",
        )

    def _insert_into(self, db: Db, copy: str, names: list[str], rows: list[list[Any]]) -> None:
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier("pg_temp", copy),
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.SQL(", ").join([sql.Placeholder()] * len(names)),
        )
        with db.cursor() as cursor:
            cursor.executemany(statement, list(map(_to_postgres, rows)))

    def _quote(self, name: str) -> str:
        return sql.Identifier(name).as_string()

    def _table_name(self, table: str) -> str:
        return self._table(table).as_string()

    def _copy_name(self, copy: str) -> str:
        return f"pg_temp.{self._quote(copy)}"

    def _same(self, one: str, other: str) -> str:
        return f"{one}::text IS NOT DISTINCT FROM {other}::text"  # Some types have no equality.

    def _read_tables(self, only: str = "") -> Iterator[tuple[str, TableShape]]:
        schema = sql.Identifier(self._tables_schema).as_string()
        with self._own._reading() as db:
            names = [only] if only else [name for (name,) in db.execute(_TABLES, (schema,)).fetchall()]
            found = [(name, self._shape(db, name)) for name in names]
        yield from ((name, shape) for name, shape in found if shape is not None and shape.primary)

    def _read_rows(self, table: str, shape: TableShape) -> Iterator[tuple[Any, ...]]:
        names = sql.SQL(", ").join(_readable(name, kind) for name, kind in shape.types.items())
        with self._own._reading() as db:
            for row in db.execute(sql.SQL("SELECT {} FROM {}").format(names, self._table(table))):
                yield tuple(
                    Json(value) if kind in ("json", "jsonb") and value is not None else value
                    for value, kind in zip(row, shape.types.values(), strict=True)
                )


def _readable(name: str, kind: str) -> sql.Composable:
    """A column as Python can hold it: json as its text."""
    column = sql.Identifier(name)
    return sql.SQL("{}::text").format(column) if kind in ("json", "jsonb") else column


def _compared(form: RowForm, shape: TableShape) -> list[bool]:
    """Of each column whether an UPDATE or a DELETE compares it: the key, and what cannot be set."""
    return [key or name in shape.fixed for name, key in zip(form.names, form.keys, strict=True)]


def _to_postgres(values: list[Any]) -> list[Any]:
    """Parameters as psycopg takes them: all of its own types as they are, json as text."""
    if Json not in set(map(type, values)):
        return values
    return [value.text if type(value) is Json else value for value in values]

"""What a change does to tables: runs of rows that one statement can write, and statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from logplayer.core.entry import Delivery
from logplayer.errors import Malformed, Poison
from logplayer.target.stores.tables.exact import Limit
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping
from logplayer.wire.fastpath import ANY_KIND, RowForm, RowReader
from logplayer.wire.fastpath import RowRun as RowRun
from logplayer.wire.rows import Op, RowChange, decode_row_changes
from logplayer.wire.values import decode_tagged

# What may change a schema. Anything else could end the transaction that the position is in.
_STATEMENTS = {"CREATE", "ALTER", "DROP", "COMMENT", "GRANT", "REVOKE", "TRUNCATE"}
Convert = Callable[[Any], Any]
NOTHING: Mapping[type, Convert] = {}
NO_LIMITS: Mapping[str, Limit] = {}
_COMMENTS = re.compile(r"\s+|--[^\n]*\n?|/\*.*?\*/", re.DOTALL)
_EMPTIES = re.compile(
    r"(?:TRUNCATE(?:\s+TABLE)?|DROP\s+TABLE(?:\s+IF\s+EXISTS)?)\s+(?:ONLY\s+)?"
    r"(.*?)(?:\s+(?:CASCADE|RESTRICT|RESTART\s+IDENTITY|CONTINUE\s+IDENTITY)\b.*)?\s*;?\s*$",
    re.IGNORECASE | re.DOTALL,
)
_NAME = re.compile(r'"((?:[^"]|"")+)"|`([^`]+)`|([^\s."`*]+)')
_ONE = r'(?:"(?:[^"]|"")+"|`[^`]+`|[A-Za-z_]\w*)'
_DELETES = re.compile(rf"DELETE\s+FROM\s+({_ONE}(?:\s*\.\s*{_ONE})?)\s*;?\s*$", re.IGNORECASE)


class RowRefused(Exception):
    """A row or a statement that this database can never take, with what to do. It becomes Poison with its entry."""


class TableShape(NamedTuple):
    """A table as the database has it."""

    types: dict[str, str]  # Of each column, as the database names them.
    primary: tuple[str, ...]
    unique: tuple[frozenset[str], ...]  # The columns of each unique key, the primary key included.
    limits: Mapping[str, Limit] = NO_LIMITS  # Of columns that would change some values in silence.
    fixed: frozenset[str] = frozenset()  # Columns that no UPDATE can set: GENERATED ALWAYS AS IDENTITY.


class Decoder:
    """Takes entries apart into runs of rows.

    Args:
        mapping: How tables and columns are named in the target.
        convert: Makes of values of some types what the database's driver takes.
        distinct, zone: As :class:`logplayer.wire.fastpath.RowReader` has them.
    """

    def __init__(
        self,
        mapping: TableMapping = NO_MAPPING,
        convert: Mapping[type, Convert] = NOTHING,
        *,
        distinct: bool = True,
        zone: str | None = None,
    ) -> None:
        self._mapping = mapping
        self._convert = convert
        self._reader = RowReader(self._other, distinct=distinct, zone=zone)

    def runs(self, messages: Iterable[Delivery]) -> list[RowRun]:
        """The changes of entries in their order, as few runs as there can be."""
        runs: list[RowRun] = []
        fast = not self._mapping
        for message in messages:
            if message.quarantine:
                continue
            try:
                if fast and self._reader.read(message.payload, runs):
                    continue
                self._add(message.payload, runs)
            except Malformed as error:
                raise _not_understood(message, error) from None
        return runs

    def rows(self, message: Delivery) -> Iterator[RowRun]:
        """The changes of one entry, each as a run of its own."""
        try:
            for change in self._changes(message.payload):
                runs: list[RowRun] = []
                self._add_change(change, runs)
                yield runs[0]
        except Malformed as error:
            raise _not_understood(message, error) from None

    def _changes(self, payload: bytes) -> Iterator[RowChange]:
        for change in decode_row_changes(payload):
            mapped = self._mapping.apply(change)
            if mapped is not None:
                yield mapped

    def _add(self, payload: bytes, runs: list[RowRun]) -> None:
        for change in self._changes(payload):
            self._add_change(change, runs)

    def _add_change(self, change: RowChange, runs: list[RowRun]) -> None:
        names, values, keys = zip(*change.columns, strict=True) if change.columns else ((), (), ())
        form = self._reader.form(int(change.op), change.table, names, keys)
        if change.op == Op.DDL:
            statement = RowRun(form, change.key, change.sql)
            statement.ended = True
            runs.append(statement)
            return
        self._reader.add(runs, form, change.key, tuple(map(self.converted, values)), ANY_KIND)

    def _other(self, tag: int, data: bytes) -> Any:
        return self.converted(decode_tagged(tag, data))

    def name_here(self, table: str) -> str:
        """A table's name in the target; empty if it is left out."""
        return self._mapping.name_here(table)

    def converted(self, value: Any) -> Any:
        """A value as the database's driver takes it."""
        convert = self._convert.get(type(value))
        return value if convert is None else convert(value)


def _not_understood(message: Delivery, error: Malformed) -> Poison:
    return Poison(f"entry {message.index} cannot be understood: {error}", message.index)


def check_statement(sql: str) -> None:
    """Refuse what does not change a schema: it could end the transaction that the position is in."""
    word = re.match(r"[A-Za-z]*", _without_comments(sql))
    if word is None or word.group().upper() not in _STATEMENTS:
        raise RowRefused(
            f"the statement {sql!r:.60} does not begin with {', '.join(sorted(_STATEMENTS))}, and is not DELETE FROM "
            "with a name and nothing else; append data as rows, and quarantine this entry"
        )


def deleted_table(sql: str) -> str:
    """The table that ``DELETE FROM name`` empties, as rows name it; empty for every other statement.

    It is how a capture writes a TRUNCATE: it needs no right but DELETE, and is part of a transaction everywhere.
    """
    found = _DELETES.match(_without_comments(sql))
    return _log_name(found.group(1), "public") if found is not None else ""


def emptied_tables(sql: str, schema: str = "") -> list[str]:
    """The tables that have no rows after a statement, as rows name them at a target in that schema."""
    found = _EMPTIES.match(_without_comments(sql))
    if found is None:
        return []
    return [_log_name(part, schema or "public") for part in found.group(1).split(",") if _NAME.search(part)]


def _log_name(text: str, schema: str) -> str:
    """A name as the log has it: with its schema, unless that is the target's own."""
    parts: list[str] = [next(filter(None, names)).replace('""', '"') for names in _NAME.findall(text)]
    if len(parts) > 1 and parts[-2] not in (schema, "main"):
        return f"{parts[-2]}.{parts[-1]}"
    return parts[-1]


def _without_comments(sql: str) -> str:
    while (found := _COMMENTS.match(sql)) is not None:
        sql = sql[found.end() :]
    return sql


def known_table(table: str, shape: TableShape | None, where: str) -> TableShape:
    """The table, or a refusal if the database has none."""
    if shape is None:
        raise RowRefused(
            f"{where} has no table {table!r}; create it, or map its name in logplayer.toml ([tables]), or "
            "quarantine the entry"
        )
    return shape


def check_shape(form: RowForm, shape: TableShape | None, where: str) -> TableShape:
    """Refuse a row whose table or columns are not there, or whose key is not one of the table's."""
    shape = known_table(form.table, shape, where)
    for name in form.names:
        if name not in shape.types:
            raise RowRefused(
                f"table {form.table!r} has no column {name!r}; add it (ALTER TABLE), or ignore or rename it in "
                "logplayer.toml ([tables]), or quarantine the entry"
            )
    if frozenset(form.key_names) not in shape.unique:
        raise RowRefused(
            f"table {form.table!r} has no primary or unique key on {', '.join(form.key_names)}, which name the row; "
            "create one, or append the rows with the table's own key"
        )
    return shape


def check_values(run: RowRun, limits: Iterable[tuple[int, Limit]]) -> None:
    """Refuse a value that a column would round, cut or pad. ``limits``: by the places of the columns in the rows."""
    for nth, limit in limits:
        if not run.kinds & limit.kinds:
            continue
        column = [row[nth] for row in run.rows]
        if limit.free.issuperset(map(type, column)):
            continue
        for value in column:
            if value is not None and not limit.keeps(value):
                raise RowRefused(
                    f"row {run.key.decode(errors='replace')}: column {run.form.names[nth]!r} ({limit.declared}) cannot "
                    f"hold {value!r:.60} as it is; widen the column (ALTER TABLE), or quarantine the entry"
                )


def moved(run: RowRun) -> RowRun | None:
    """The patch of one row that changes the key, of the row that has the new key; None if it does not change it."""
    form, [row] = run.form, run.rows
    new = {name: value for name, key, value in zip(form.names, form.keys, row, strict=True) if not key}
    if not any(name in new for name in form.key_names):
        return None
    found = RowRun(form, run.key)
    found.kinds = run.kinds
    found.rows = [
        tuple(
            new.get(name, value) if key else value for name, key, value in zip(form.names, form.keys, row, strict=True)
        )
    ]
    return found

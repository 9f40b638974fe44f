"""What a change does to tables: runs of rows that one statement can write, and statements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from logplayer.core.entry import Message
from logplayer.errors import Malformed, Poison
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping
from logplayer.wire.rows import Op, RowChange, decode_row_changes

# What may change a schema. Anything else could end the transaction that the position is in.
_STATEMENTS = {"CREATE", "ALTER", "DROP", "COMMENT", "GRANT", "REVOKE", "TRUNCATE"}
_COMMENTS = re.compile(r"\s+|--[^\n]*\n?|/\*.*?\*/", re.DOTALL)


class RowRefused(Exception):
    """A row or a statement that this database can never take, with what to do. It becomes Poison with its entry."""


class TableShape(NamedTuple):
    """A table as the database has it."""

    types: dict[str, str]  # Of each column, as the database names them.
    primary: tuple[str, ...]
    unique: tuple[frozenset[str], ...]  # The columns of each unique key, the primary key included.


class RowRun(NamedTuple):
    """Rows of one table, one operation and one set of columns; no row is in it twice."""

    op: Op
    table: str
    names: tuple[str, ...]
    keys: tuple[bool, ...]
    rows: list[tuple[Any, ...]]
    key: bytes  # Of the first row, for messages.
    sql: str = ""

    @property
    def key_names(self) -> list[str]:
        """The columns of the primary key."""
        return [name for name, key in zip(self.names, self.keys, strict=True) if key]

    @property
    def other_names(self) -> list[str]:
        """The columns that are written beside the key."""
        return [name for name, key in zip(self.names, self.keys, strict=True) if not key]


def changes_of(message: Message, mapping: TableMapping = NO_MAPPING) -> list[RowChange]:
    """The rows of one entry as the target's own schema names them, or Poison if its payload has none."""
    try:
        changes = decode_row_changes(message.payload)
    except Malformed as error:
        raise Poison(f"entry {message.index} cannot be understood: {error}", message.index) from None
    if mapping is NO_MAPPING:
        return changes
    return [mapped for change in changes if (mapped := mapping.apply(change)) is not None]


def runs_of(changes: Iterable[RowChange]) -> Iterator[RowRun]:
    """The changes in their order, as few runs as there can be."""
    run: RowRun | None = None
    seen: set[bytes] = set()
    for change in changes:
        names, values, keys = zip(*change.columns, strict=True) if change.columns else ((), (), ())
        moves = change.op == Op.PATCH and len(set(names)) < len(names)
        if (
            run is None
            or moves
            or change.op == Op.DDL
            or change.key in seen
            or (change.op, change.table, names, keys) != run[:4]
        ):
            if run is not None:
                yield run
            run = RowRun(change.op, change.table, names, keys, [], change.key, change.sql)
            seen = set()
        run.rows.append(values)
        # What comes after a changed primary key begins another run: the key may be the new one.
        seen.add(change.key)
    if run is not None:
        yield run


def check_statement(sql: str) -> None:
    """Refuse what does not change a schema: it could end the transaction that the position is in."""
    rest = sql
    while (found := _COMMENTS.match(rest)) is not None:
        rest = rest[found.end() :]
    word = re.match(r"[A-Za-z]*", rest)
    if word is None or word.group().upper() not in _STATEMENTS:
        raise RowRefused(
            f"the statement {sql!r:.60} does not begin with {', '.join(sorted(_STATEMENTS))}; append data as rows, "
            "and quarantine this entry"
        )


def check_shape(run: RowRun, shape: TableShape | None, where: str) -> TableShape:
    """Refuse a row whose table or columns are not there, or whose key is not one of the table's."""
    if shape is None:
        raise RowRefused(
            f"{where} has no table {run.table!r}; create it, or map its name in logplayer.toml ([tables]), or "
            "quarantine the entry"
        )
    for name in run.names:
        if name not in shape.types:
            raise RowRefused(
                f"table {run.table!r} has no column {name!r}; add it (ALTER TABLE), or ignore or rename it in "
                "logplayer.toml ([tables]), or quarantine the entry"
            )
    if frozenset(run.key_names) not in shape.unique:
        raise RowRefused(
            f"table {run.table!r} has no primary or unique key on {', '.join(run.key_names)}, which name the row; "
            "create one, or append the rows with the table's own key"
        )
    return shape

"""What a change does to tables: runs of rows that one statement can write, and statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from logplayer.core.entry import Message
from logplayer.errors import Malformed, Poison
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping
from logplayer.wire.fastpath import FormedRow, RowForm
from logplayer.wire.rows import Op, decode_formed_rows, decode_row_changes, formed, row_reader

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


class Decoder:
    """Takes entries apart, and keeps the forms that rows have."""

    def __init__(self, mapping: TableMapping = NO_MAPPING) -> None:
        self._mapping = mapping
        self._reader = row_reader()

    def runs(self, messages: Iterable[Message]) -> Iterator[RowRun]:
        """The changes of entries in their order, as few runs as there can be."""
        run: RowRun | None = None
        form: RowForm | None = None
        seen: set[bytes] = set()
        for message in messages:
            if message.quarantine:
                continue
            for found in self._decode(message):
                if isinstance(found, RowRun):  # A statement is alone.
                    if run is not None:
                        yield run
                    yield found
                    run = form = None
                    continue
                its, key, values = found
                if its is form and key not in seen and run is not None:
                    run.rows.append(values)
                    seen.add(key)
                    continue
                if run is not None:
                    yield run
                run, seen = RowRun(Op(its.op), its.table, its.names, its.keys, [values], key), {key}
                # What comes after a changed primary key begins another run: its key may be the new one.
                form = None if its.op == Op.PATCH and len(set(its.names)) < len(its.names) else its
        if run is not None:
            yield run

    def rows(self, message: Message) -> Iterator[RowRun]:
        """The changes of one entry, each as a run of its own."""
        for found in self._decode(message):
            if isinstance(found, RowRun):
                yield found
            else:
                form, key, values = found
                yield RowRun(Op(form.op), form.table, form.names, form.keys, [values], key)

    def _decode(self, message: Message) -> Sequence[FormedRow | RowRun]:
        """The rows and statements of an entry, or Poison if its payload has none."""
        try:
            if self._mapping is NO_MAPPING:
                found = decode_formed_rows(message.payload, self._reader)
                if found is not None:
                    return found
            changes = decode_row_changes(message.payload)
        except Malformed as error:
            raise Poison(f"entry {message.index} cannot be understood: {error}", message.index) from None
        mapped = [one for change in changes if (one := self._mapping.apply(change)) is not None]
        return [
            RowRun(Op.DDL, "", (), (), [], change.key, change.sql)
            if change.op == Op.DDL
            else formed(change, self._reader)
            for change in mapped
        ]


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


def converted(rows: list[tuple[Any, ...]], convert: Mapping[type, Callable[[Any], Any]]) -> list[tuple[Any, ...]]:
    """The rows with the values of some types converted. Columns that have none of them cost next to nothing."""
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    changed = False
    for nth, column in enumerate(columns):
        kinds = set(map(type, column))
        if not kinds & convert.keys():
            continue
        changed = True
        if len(kinds) == 1:
            columns[nth] = list(map(convert[kinds.pop()], column))
        else:
            columns[nth] = [convert[type(value)](value) if type(value) in convert else value for value in column]
    return list(zip(*columns, strict=True)) if changed else rows

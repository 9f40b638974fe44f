"""What a piece of the log does to the rows of a target in tables, folded by their keys.

Pieces are folded side by side, so none knows what the ones before it have left. What a piece leaves of a row is an
*effect*: columns with a base that they are laid over, or that it was deleted.

| Base | What the columns are laid over |
|---|---|
| ``BEFORE`` | what the pieces before have left of this row: a put or a patch changes the columns that it names |
| ``NOTHING`` | nothing: this piece has deleted the row before |
| ``MOVED`` | what the pieces before have left of another row, whose primary key this piece has changed to this one |
| ``GONE`` | the row was deleted; its columns are those of the key |

The key of an effect is made of the columns that name the row, sorted by their names and after the mapping, so that all
entries that mean one row have one key, however their producer has written it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from logplayer.errors import Malformed, UserError
from logplayer.target.stores.tables.mapping import TableMapping
from logplayer.target.stores.tables.runs import deleted_table, emptied_tables
from logplayer.wire.fastpath import read_length, varint
from logplayer.wire.rows import Column, Op, RowChange, decode_row, decode_row_changes, encode_row, row_key

BEFORE, NOTHING, MOVED, GONE = b"+", b"=", b"<", b"-"


class RowEffect(NamedTuple):
    """What a piece leaves of one row."""

    table: str
    keys: tuple[str, ...]  # The columns that name it.
    columns: dict[str, Any]
    base: bytes = BEFORE
    source: bytes = b""  # With MOVED: the key that it had when the piece began.

    def encode(self) -> bytes:
        row = encode_row(Op.PUT, self.table, [Column(n, v, n in self.keys) for n, v in self.columns.items()])
        return self.base + varint(len(self.source)) + self.source + row.encoded


def decode_effect(data: bytes) -> RowEffect:
    """The inverse of :meth:`RowEffect.encode`."""
    length, at = read_length(data, 1, len(data))
    row = decode_row(data[at + length :])
    columns = {column.name: column.value for column in row.columns}
    keys = tuple(column.name for column in row.columns if column.key)
    return RowEffect(row.table, keys, columns, data[:1], data[at : at + length])


class TableFacts(NamedTuple):
    """What a piece says about tables, beside the effects on their rows."""

    statements: tuple[tuple[int, str], ...] = ()  # That change the schema, and their entries; quarantined ones too.
    emptied: tuple[tuple[str, int], ...] = ()  # Tables that lost all rows, and the last entry that did it.
    moves: bool = False  # Whether there are effects with MOVED.


class RowFold:
    """Folds the changes of one target, in the order of the log."""

    def __init__(self, mapping: TableMapping) -> None:
        self._mapping = mapping
        self._rows: dict[bytes, tuple[int, RowEffect]] = {}
        self._statements: list[tuple[int, str]] = []
        self._emptied: dict[str, int] = {}

    def take(self, index: int, payload: bytes) -> str:
        """Fold one entry. Why the target refuses it for good; empty if it does not."""
        try:
            for change in decode_row_changes(payload):
                self._change(index, change)
        except (Malformed, UserError) as error:
            return f"entry {index} cannot be understood: {error}"
        return ""

    def set_aside(self, index: int, payload: bytes) -> None:
        """Note what a quarantined entry would have done to the schema: an operator may have done it by hand."""
        try:
            changes = decode_row_changes(payload)
        except Malformed:
            return
        self._statements += [(index, change.sql) for change in changes if change.op == Op.DDL]

    def effects(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Each row's key, the last entry that wrote it, and what is left of it."""
        for key, (index, effect) in self._rows.items():
            yield key, index, effect.encode()

    def facts(self) -> TableFacts:
        moves = any(effect.base == MOVED for _, effect in self._rows.values())
        return TableFacts(tuple(self._statements), tuple(self._emptied.items()), moves)

    def _change(self, index: int, change: RowChange) -> None:
        if change.op == Op.DDL:
            self._statement(index, change.sql)
            return
        mapped = self._mapping.apply(change)
        if mapped is None:
            return
        named = {column.name: column.value for column in mapped.columns if column.key}
        written = {column.name: column.value for column in mapped.columns if not column.key}
        keys = tuple(sorted(named))
        old = audit_key(mapped.table, keys, named)
        known = self._rows.get(old)
        if mapped.op == Op.DELETE:
            self._rows[old] = index, RowEffect(mapped.table, keys, named, GONE)
            return
        effect = self._laid_over(known[1] if known else None, mapped.table, keys, named | written)
        if mapped.op == Op.PATCH and any(written.get(name, named[name]) != named[name] for name in keys):
            self._rows[old] = index, RowEffect(mapped.table, keys, named, GONE)
            old, source = audit_key(mapped.table, keys, named | written), old
            if effect.base == BEFORE:
                effect = effect._replace(base=MOVED, source=source)
        self._rows[old] = index, effect

    def _statement(self, index: int, sql: str) -> None:
        deleted = deleted_table(sql)  # A capture's: it names a table as rows do, others as the database does.
        if not deleted:
            self._statements.append((index, sql))
        for table in [self._mapping.name_here(deleted)] if deleted else emptied_tables(sql, self._mapping.schema):
            self._emptied[table] = index
            self._rows = {key: row for key, row in self._rows.items() if row[1].table != table}

    @staticmethod
    def _laid_over(known: RowEffect | None, table: str, keys: tuple[str, ...], columns: dict[str, Any]) -> RowEffect:
        if known is None:
            return RowEffect(table, keys, columns)
        if known.base == GONE:
            return RowEffect(table, keys, columns, NOTHING)
        return known._replace(keys=keys, columns=known.columns | columns)


def audit_key(table: str, keys: tuple[str, ...], columns: dict[str, Any]) -> bytes:
    """The key under which all changes of one row meet."""
    return row_key(table, [Column(name, columns[name], True) for name in keys])

"""Rows of the log against those of a store of tables, in one snapshot of its database: what SQL does of an audit.

What the log says is written into a temporary table whose columns have the types of the real one, by the same
conversions as a target writes with. So the database itself says how a value looks once it is stored: ``9.9`` in a
DECIMAL(10, 2), a timestamp without its microseconds. Then one query joins both by the key and returns only what
differs. Columns that no entry has written are the database's own business (defaults, generated ones) and not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from logplayer.core.fence import Position
from logplayer.target.stores.tables.base import TableStore, plain
from logplayer.target.stores.tables.runs import TableShape
from logplayer.wire.rows import Column, row_key

_COPY = "logplayer_audit"
_INDEX, _MASK = "logplayer_index", "logplayer_mask"


class ExpectedRow(NamedTuple):
    """What is left of a row: the columns that entries have written, and the last of these entries."""

    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    columns: Mapping[str, Any]


class RowDifference(NamedTuple):
    """A row that is not as the log says. ``index`` is 0 if no entry has left it."""

    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    key: bytes
    what: str


class TableComparison:
    """One snapshot of a store of tables.

    Example:
        >>> with TableComparison(store) as snapshot:  # doctest: +SKIP
        ...     snapshot.begin("orders", ("id",))
        ...     snapshot.add([ExpectedRow(7, {"id": 1, "total": 5})])
        ...     list(snapshot.differences())
    """

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._opened = store._snapshot()

    def __enter__(self) -> TableComparison:
        self._db = self._opened.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)

    def position(self) -> Position:
        """What the store has, as of this snapshot."""
        return self._store._position_in(self._db)

    def quarantined(self) -> set[int]:
        """The entries that are in quarantine."""
        return {index for index, _ in self._store.quarantine()}

    def begin(self, table: str, keys: Sequence[str]) -> TableShape | None:
        """Compare this table next, by these columns. None if the database has no such table."""
        shape = self._store._shape_in(self._db, table)
        if shape is None:
            return None
        self._table, self._keys, self._columns = table, list(keys), list(shape.types)
        self._store._run(self._db, f"DROP TABLE IF EXISTS {self._store._copy_name(_COPY)}")
        self._store._make_copy(self._db, _COPY, (_INDEX, _MASK), table, shape)
        return shape

    def add(self, rows: Iterable[ExpectedRow]) -> None:
        """Rows that the table must have; of their columns only those that it has."""
        groups: dict[tuple[str, ...], list[list[Any]]] = {}
        for row in rows:
            names = tuple(name for name in self._columns if name in row.columns)
            mask = "".join("1" if name in row.columns else "0" for name in self._columns)
            groups.setdefault(names, []).append([row.index, mask, *(row.columns[name] for name in names)])
        for names, values in groups.items():
            self._store._insert_into(self._db, _COPY, [_INDEX, _MASK, *names], values)

    def differences(self, extra_max: int) -> Iterator[RowDifference]:
        """What differs: rows with other values, missing ones, and at most ``extra_max`` that no entry has left."""
        quoted, same = self._store._quote, self._store._same
        keys = [quoted(name) for name in self._keys]
        mark = f"e.{quoted(_MASK)}"
        tests = [
            f"(substr({mark}, {nth}, 1) = '0' OR {same(f'e.{one}', f't.{one}')})"
            for nth, one in enumerate(map(quoted, self._columns), 1)
        ]
        shown = ", ".join([f"e.{quoted(_INDEX)}", f"t.{keys[0]} IS NULL", *(f"NOT {test}" for test in tests)])
        query = (
            f"SELECT {', '.join(f'e.{key}' for key in keys)}, {shown} FROM {self._from('LEFT JOIN')} "
            f"WHERE t.{keys[0]} IS NULL OR NOT ({' AND '.join(tests)})"
        )
        for row in self._store._run(self._db, query):
            values, (index, missing, *wrong) = row[: len(keys)], row[len(keys) :]
            names = [name for name, differs in zip(self._columns, wrong, strict=True) if differs]
            what = "is missing" if missing else f"has another value in {', '.join(names)}"
            yield RowDifference(index, self._key(values), what)
        yield from self._extra(keys, extra_max)

    def _extra(self, keys: list[str], most: int) -> Iterator[RowDifference]:
        table = self._store._table_name(self._table)
        [(there,)] = self._store._run(self._db, f"SELECT count(*) FROM {table}")
        [(matched,)] = self._store._run(self._db, f"SELECT count(*) FROM {self._from('JOIN')}")
        if there == matched:
            return  # As it should be; the next query is slow in databases without an index on the copy.
        copy = self._store._copy_name(_COPY)
        match = " AND ".join(f"e.{key} = t.{key}" for key in keys)
        query = (
            f"SELECT {', '.join(f't.{key}' for key in keys)} FROM {table} t "
            f"WHERE NOT EXISTS (SELECT 1 FROM {copy} e WHERE {match}) LIMIT {most}"
        )
        for row in self._store._run(self._db, query):
            yield RowDifference(0, self._key(row), "is there, and no entry wrote it")

    def _from(self, join: str) -> str:
        match = " AND ".join(f"e.{one} = t.{one}" for one in map(self._store._quote, self._keys))
        return f"{self._store._copy_name(_COPY)} e {join} {self._store._table_name(self._table)} t ON {match}"

    def _key(self, values: Sequence[Any]) -> bytes:
        columns = [Column(name, plain(value), True) for name, value in zip(self._keys, values, strict=True)]
        return row_key(self._table, columns)

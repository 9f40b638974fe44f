"""A target in the tables of a user's own schema: what all databases have in common.

A change is written twice at most. First in runs: rows of one table, one operation and one set of columns are one
statement. If the database refuses anything of that for good, all of it is rolled back and written again row by row,
in order. That finds the entry to blame, and it also decides: rows that pass one after the other are committed, since a
statement of many rows may be refused for its order within (a unique value that moves from one row to another).

A put writes the whole row whether it is there or not; columns that it does not name keep their value, or get their
default. A patch needs a row that is there. A delete does not: a foreign key may have deleted it already (ON DELETE
CASCADE). Nor does a patch that changes the key: ON UPDATE CASCADE may have moved the row, which then gets the rest.
Constraints and triggers of the schema stay on, and entries are applied whole and in the log's order, so what the source
allowed passes here."""

from __future__ import annotations

import abc
import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from logplayer.core.entry import Delivery
from logplayer.core.fence import Position
from logplayer.crashpoint import crashpoint
from logplayer.errors import Poison, TargetError
from logplayer.log.json_rows import value_to_json
from logplayer.target.protocol import Change, Store
from logplayer.target.stores.tables.exact import Limit
from logplayer.target.stores.tables.runs import (
    Decoder,
    RowRefused,
    RowRun,
    TableShape,
    check_shape,
    check_statement,
    check_values,
    deleted_table,
    known_table,
    moved,
)
from logplayer.wire.fastpath import RowForm
from logplayer.wire.rows import Column, Op, row_key
from logplayer.wire.values import Json


class TableStore(Store, abc.ABC):
    """The half of a store of tables that does not depend on the database."""

    _db: Any  # The connection that writes, inside a transaction.
    product = ""
    driver_error: type[Exception] = Exception  # What the database's driver raises.
    remedy = "repair the data or the schema, or quarantine the entry"

    def __init__(self, name: str, decoder: Decoder, *, read_only: bool = False) -> None:
        self._name = name
        self._decoder = decoder
        self._read_only = read_only
        self._shapes: dict[str, TableShape] = {}
        self._checked: dict[RowForm, TableShape] = {}  # The shape that a form of rows was found to fit.
        self._limits: dict[RowForm, list[tuple[int, Limit]]] = {}
        self._reader_lock = threading.Lock()

    # --- What a database brings ---

    @abc.abstractmethod
    def position(self) -> Position: ...

    @abc.abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """One transaction: committed at the end of the block, or rolled back if it raises."""

    @abc.abstractmethod
    def _locked_position(self) -> Position:
        """What is stored, inside the transaction, and nobody else can move it until the commit."""

    @abc.abstractmethod
    def _store(self, after: Position, aside: list[Delivery]) -> None:
        """Write the quarantined entries and the new position."""

    @abc.abstractmethod
    def _write(self, run: RowRun, shape: TableShape, *, careful: bool) -> int:
        """Write the rows of a run; how many rows a patch has found. ``careful``: there is one row."""

    @abc.abstractmethod
    def _run_statement(self, sql: str) -> None:
        """Change the schema inside the transaction, or raise RowRefused where that cannot be."""

    @abc.abstractmethod
    def _look_up(self, table: str) -> TableShape | None:
        """A table as the database has it now; None if it has none."""

    @abc.abstractmethod
    def _is_for_good(self, error: Exception) -> bool:
        """Whether the database would refuse the same again."""

    @abc.abstractmethod
    def _reason(self, error: Exception, run: RowRun | None) -> str:
        """Why it refused, with the name of the constraint."""

    @abc.abstractmethod
    def _read_tables(self, only: str = "") -> Iterator[tuple[str, TableShape]]:
        """The user's own tables that have a primary key, or only one of them."""

    @abc.abstractmethod
    def _read_rows(self, table: str, shape: TableShape) -> Iterator[tuple[Any, ...]]:
        """All rows of a table, with its columns in the order of the shape."""

    @abc.abstractmethod
    def quarantine(self) -> Iterator[tuple[int, bytes]]: ...

    @abc.abstractmethod
    def close(self) -> None: ...

    # --- What an audit needs of a database; see comparison.py ---

    @abc.abstractmethod
    def _snapshot(self) -> AbstractContextManager[Any]:
        """A connection of its own that sees the database as of one moment, and can make temporary tables."""

    @abc.abstractmethod
    def _position_in(self, db: Any) -> Position:
        """What is stored, as this connection sees it."""

    @abc.abstractmethod
    def _shape_in(self, db: Any, table: str) -> TableShape | None:
        """A table as this connection sees it; None if there is none."""

    @abc.abstractmethod
    def _run(self, db: Any, text: str) -> list[tuple[Any, ...]]:
        """The rows of a statement without parameters."""

    @abc.abstractmethod
    def _make_copy(self, db: Any, copy: str, more: tuple[str, str], table: str, shape: TableShape) -> None:
        """An empty temporary table with the columns of another, all nullable, and two more: an integer and a text."""

    @abc.abstractmethod
    def _insert_into(self, db: Any, copy: str, names: list[str], rows: list[list[Any]]) -> None:
        """Write rows of the log into the temporary table, converted as a target converts them."""

    @abc.abstractmethod
    def _quote(self, name: str) -> str:
        """The name of a column in a statement without parameters."""

    @abc.abstractmethod
    def _table_name(self, table: str) -> str:
        """The same for a table of the user's own."""

    @abc.abstractmethod
    def _same(self, one: str, other: str) -> str:
        """A condition: two columns hold the same, to the byte, or are both null."""

    def _copy_name(self, copy: str) -> str:
        return self._quote(copy)

    # --- What most have no need of ---

    def _settle(self) -> None:
        """After each entry of a careful write: check what the database would only check at the commit."""

    # --- What all have ---

    def apply(self, change: Change) -> Position:
        if self._read_only:
            raise TargetError("this store was opened for reading")
        try:
            return self._apply_runs(change)
        except Exception as error:
            if not isinstance(error, RowRefused) and not self._is_for_good(error):
                raise
            self._forget()  # The tables may have changed since they were looked up.
        return self._apply_row_by_row(change)

    def get(self, key: bytes) -> bytes | None:
        table = key.partition(b"/")[0].decode(errors="replace")
        return next((row for found, row in self._scan(table) if found == key), None)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        yield from self._scan("")

    def _scan(self, only: str) -> Iterator[tuple[bytes, bytes]]:
        for table, shape in self._read_tables(only):
            if only and table != only:
                continue
            names = list(shape.types)
            for row in self._read_rows(table, shape):
                named = dict(zip(names, map(plain, row), strict=True))
                key = row_key(table, [Column(name, named[name], True) for name in shape.primary])
                shown = {name: value_to_json(value) for name, value in named.items()}
                yield key, json.dumps(shown, ensure_ascii=False).encode()

    # --- Inside ---

    def _apply_runs(self, change: Change) -> Position:
        with self._transaction():
            after = change.check(self._locked_position())
            for run in self._decoder.runs(change.messages):
                self._write_run(run, careful=False)
            self._finish(change, after)
        crashpoint("store-committed")
        return after

    def _apply_row_by_row(self, change: Change) -> Position:
        with self._transaction():
            after = change.check(self._locked_position())
            for message in change.messages:
                if not message.quarantine:
                    self._write_entry(message)
            self._finish(change, after)
        crashpoint("store-committed")
        return after

    def _write_entry(self, message: Delivery) -> None:
        """Write the rows of one entry one by one; Poison if the database refuses one of them for good."""
        run: RowRun | None = None
        try:
            for run in self._decoder.rows(message):
                self._write_run(run, careful=True)
            run = None
            self._settle()
        except RowRefused as refused:
            raise Poison(f"{self.product} refuses entry {message.index}: {refused}", message.index) from None
        except Exception as error:
            if isinstance(error, Poison) or not self._is_for_good(error):
                raise
            row = f"row {run.key.decode(errors='replace')}: " if run is not None and run.form.table else ""
            reason = f"{row}{self._reason(error, run)}; {self.remedy}"
            raise Poison(f"{self.product} refuses entry {message.index}: {reason}", message.index) from None

    def _finish(self, change: Change, after: Position) -> None:
        crashpoint("store-rows-written")
        self._store(after, change.quarantined)
        crashpoint("store-position-written")

    def _write_run(self, run: RowRun, *, careful: bool) -> None:
        form = run.form
        if form.op == Op.DDL:
            self._write_statement(run.sql)
            return
        shape = self._checked.get(form)
        if shape is None:
            known = self._shapes.get(form.table) or self._look_up(form.table)
            shape = self._shapes[form.table] = self._checked[form] = check_shape(form, known, self._where())
            limits = [(nth, shape.limits[name]) for nth, name in enumerate(form.names) if name in shape.limits]
            self._limits[form] = limits
        check_values(run, self._limits[form])
        found = self._write(run, shape, careful=careful)
        if form.op == Op.PATCH and found < len(run.rows):
            at_new_key = moved(run) if careful else None
            if at_new_key is not None and self._write(at_new_key, shape, careful=True):
                return  # The parent's row was written before this one, and a cascade has moved it.
            raise RowRefused(
                f"table {form.table!r} has no row {run.key.decode(errors='replace')} to patch; put the row first, or "
                "quarantine the entry"
            )

    def _write_statement(self, text: str) -> None:
        table = deleted_table(text)
        if not table:
            check_statement(text)
            self._forget()
            self._run_statement(text)
        elif here := self._decoder.name_here(table):
            self._shapes[here] = known_table(here, self._shapes.get(here) or self._look_up(here), self._where())
            self._run(self._db, f"DELETE FROM {self._table_name(here)}")

    def _forget(self) -> None:
        """Look tables up again when they are written next."""
        self._shapes.clear()
        self._checked.clear()
        self._limits.clear()

    def _where(self) -> str:
        """Where tables are looked for, for messages."""
        return f"this {self.product} database"


_PLAIN = (bool, int, float, str, bytes, Decimal, date, time, UUID, Json, list)


def plain(value: Any) -> Any:
    """A value as a row of the log could have it: what has no type there is text."""
    if isinstance(value, timedelta) and timedelta(0) <= value < timedelta(days=1):
        return (datetime.min + value).time()
    return value if value is None or isinstance(value, _PLAIN) else str(value)

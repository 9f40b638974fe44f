"""A target in the tables of a user's own schema: what all databases have in common.

A change is written twice at most. First in runs: rows of one table, one operation and one set of columns are one
statement. If the database refuses anything of that for good, all of it is rolled back and written again row by row,
in order. That finds the entry to blame, and it also decides: rows that pass one after the other are committed, since a
statement of many rows may be refused for its order within (a unique value that moves from one row to another).

A put writes the whole row whether it is there or not; columns that it does not name keep their value, or get their
default. A patch needs a row that is there. A delete does not: a foreign key may have deleted it already (ON DELETE
CASCADE). Constraints and triggers of the schema stay on, and entries are applied whole and in the log's order, so what
the source allowed passes here.
"""

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

from logplayer.core.entry import Message
from logplayer.core.fence import Position
from logplayer.crashpoint import crashpoint
from logplayer.errors import Poison, TargetError
from logplayer.log.json_rows import value_to_json
from logplayer.target.protocol import Change
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping
from logplayer.target.stores.tables.runs import (
    Decoder,
    RowRefused,
    RowRun,
    TableShape,
    check_shape,
    check_statement,
)
from logplayer.wire.rows import Column, Op, row_key
from logplayer.wire.values import Json


class TableStore(abc.ABC):
    """The half of a store of tables that does not depend on the database."""

    product = ""
    remedy = "repair the data or the schema, or quarantine the entry"

    def __init__(self, name: str, mapping: TableMapping = NO_MAPPING, *, read_only: bool = False) -> None:
        self._name = name
        self._decoder = Decoder(mapping)
        self._read_only = read_only
        self._shapes: dict[str, TableShape] = {}
        self._checked: dict[object, TableShape] = {}  # By what a run writes: its shape, once it was found to fit.
        self._reader_lock = threading.Lock()

    # --- What a database brings ---

    @abc.abstractmethod
    def position(self) -> Position:
        """What is stored."""

    @abc.abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """One transaction: committed at the end of the block, or rolled back if it raises."""

    @abc.abstractmethod
    def _locked_position(self) -> Position:
        """What is stored, inside the transaction, and nobody else can move it until the commit."""

    @abc.abstractmethod
    def _store(self, after: Position, aside: list[Message]) -> None:
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
    def _read_tables(self) -> Iterator[tuple[str, TableShape]]:
        """The user's own tables that have a primary key."""

    @abc.abstractmethod
    def _read_rows(self, table: str, shape: TableShape) -> Iterator[tuple[Any, ...]]:
        """All rows of a table, with its columns in the order of the shape."""

    @abc.abstractmethod
    def quarantine(self) -> Iterator[tuple[int, bytes]]:
        """Every quarantined delivery: its index and its payload."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close it; call nothing after it."""

    def _settle(self) -> None:  # noqa: B027 - most databases have nothing to do.
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
        """The row with this key as JSON; None if there is none. It reads the whole table."""
        table = key.partition(b"/")[0].decode(errors="replace")
        return next((row for found, row in self._scan(table) if found == key), None)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Every row of every table with a primary key: its key, and its columns as JSON."""
        yield from self._scan("")

    def _scan(self, only: str) -> Iterator[tuple[bytes, bytes]]:
        for table, shape in self._read_tables():
            if only and table != only:
                continue
            names = list(shape.types)
            for row in self._read_rows(table, shape):
                named = dict(zip(names, map(_plain, row), strict=True))
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

    def _write_entry(self, message: Message) -> None:
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
            row = f"row {run.key.decode(errors='replace')}: " if run is not None and run.table else ""
            reason = f"{row}{self._reason(error, run)}; {self.remedy}"
            raise Poison(f"{self.product} refuses entry {message.index}: {reason}", message.index) from None

    def _finish(self, change: Change, after: Position) -> None:
        crashpoint("store-rows-written")
        self._store(after, change.quarantined)
        crashpoint("store-position-written")

    def _write_run(self, run: RowRun, *, careful: bool) -> None:
        if run.op == Op.DDL:
            check_statement(run.sql)
            self._forget()
            self._run_statement(run.sql)
            return
        form = run[:4]
        shape = self._checked.get(form)
        if shape is None:
            known = self._shapes.get(run.table) or self._look_up(run.table)
            shape = self._shapes[run.table] = self._checked[form] = check_shape(run, known, self._where())
        found = self._write(run, shape, careful=careful)
        if run.op == Op.PATCH and found < len(run.rows):
            raise RowRefused(
                f"table {run.table!r} has no row {run.key.decode(errors='replace')} to patch; put the row first, or "
                "quarantine the entry"
            )

    def _forget(self) -> None:
        """Look tables up again when they are written next."""
        self._shapes.clear()
        self._checked.clear()

    def _where(self) -> str:
        """Where tables are looked for, for messages."""
        return f"this {self.product} database"


_PLAIN = (bool, int, float, str, bytes, Decimal, date, time, UUID, Json, list)


def _plain(value: Any) -> Any:
    """A value as a row of the log could have it: what has no type there is text."""
    if isinstance(value, timedelta) and timedelta(0) <= value < timedelta(days=1):
        return (datetime.min + value).time()
    return value if value is None or isinstance(value, _PLAIN) else str(value)

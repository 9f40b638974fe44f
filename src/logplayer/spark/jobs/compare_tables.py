"""A store of tables against what the log left for it: pieces laid over one another, then compared by the database.

Only tables that the log has written are compared, and of their rows only columns that it has written. A table or a
column that is not there is a difference, unless the log itself has changed the schema: then it is a note.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logplayer.spark.jobs import expected_state
from logplayer.spark.jobs.row_fold import BEFORE, GONE, MOVED, RowEffect, TableFacts, decode_effect
from logplayer.spark.jobs.verdict import DIFFERENCES_MAX, AuditVerdict, Difference
from logplayer.target.stores.tables.comparison import ExpectedRow, TableComparison
from logplayer.target.stores.tables.runs import TableShape

ROWS_AT_ONCE = 2_000
EXTRA_MAX = 4 * DIFFERENCES_MAX
Stored = tuple[int, int, bytes]  # The order of its piece, the entry, what is left.


class LeftRow(NamedTuple):
    """What the whole log leaves of one row."""

    key: bytes
    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    effect: RowEffect

    @property
    def is_there(self) -> bool:
        return self.effect.base != GONE


class RowMerge:
    """Lays the effects of pieces over one another, in the order of the log."""

    def __init__(self, parts: Sequence[expected_state.Folded]) -> None:
        self._parts = sorted(parts, key=lambda part: part.first)
        facts = [part.tables or TableFacts() for part in self._parts]
        self.statements = [one for fact in facts for one in fact.statements]
        self._emptied = {table: index for fact in facts for table, index in fact.emptied}  # The last one counts.
        self._sources: dict[bytes, list[Stored]] = {}
        if any(fact.moves for fact in facts):
            self._load_sources()

    def rows(self) -> Iterator[LeftRow]:
        """Each row once, sorted by key."""
        for key, stored in self._by_key():
            yield LeftRow(key, stored[-1][1], self._composed(stored))

    def _by_key(self) -> Iterator[tuple[bytes, list[Stored]]]:
        streams = [expected_state.read_file(part.file, nth) for nth, part in enumerate(self._parts) if part.file]
        merged = heapq.merge(*streams, key=lambda row: row[:2])
        for key, rows in itertools.groupby(merged, key=lambda row: row[0]):
            yield key, [row[1:] for row in rows]

    def _composed(self, stored: Sequence[Stored]) -> RowEffect:
        effect = RowEffect("", (), {}, GONE)
        for order, index, data in stored:
            new = decode_effect(data)
            under = effect
            if index < self._emptied.get(new.table, 0):
                new = new._replace(base=GONE)
            if new.base == MOVED:
                under = self._composed([one for one in self._sources.get(new.source, ()) if one[0] < order])
            if new.base in (BEFORE, MOVED) and under.base != GONE:
                new = new._replace(columns=under.columns | new.columns)
            effect = new
        return effect

    def _load_sources(self) -> None:
        """Keep what rows had whose primary key was changed later; there are few such."""
        wanted = {decode_effect(data).source for _, rows in self._by_key() for _, _, data in rows if data[:1] == MOVED}
        self._sources = {key: rows for key, rows in self._by_key() if key in wanted}


def compare_tables(snapshot: TableComparison, parts: Sequence[expected_state.Folded], verdict: AuditVerdict) -> None:
    """Find the rows that are not as the log says."""
    merge = RowMerge(parts)
    if merge.statements:
        entries = ", ".join(str(index) for index, _ in merge.statements[:DIFFERENCES_MAX])
        verdict.notes.append(f"the log changes the schema of this target: entries {entries}")
    for table, rows in itertools.groupby(merge.rows(), key=lambda row: row.effect.table):
        _Table(snapshot, merge, verdict, table).compare(rows)


class _Table:
    """One table of the log."""

    def __init__(self, snapshot: TableComparison, merge: RowMerge, verdict: AuditVerdict, table: str) -> None:
        self._snapshot, self._merge, self._verdict, self._table = snapshot, merge, verdict, table
        self._keys: tuple[str, ...] = ()
        self._shape: TableShape | None = None
        self._absent: set[str] = set()

    def compare(self, rows: Iterator[LeftRow]) -> None:
        deleted: dict[bytes, int] = {}
        while chunk := list(itertools.islice(rows, ROWS_AT_ONCE)):
            deleted |= {row.key: row.index for row in chunk if not row.is_there}
            if self._shape is None and not self._begin(chunk[0]):
                return
            self._add([row for row in chunk if row.is_there])
        for index, key, what in self._snapshot.differences(EXTRA_MAX):
            when = deleted.get(key, 0) if not index else 0
            found = Difference(when, key, "was deleted and is there") if when else Difference(index, key, what)
            self._verdict.add([found])
        for name in sorted(self._absent):
            self._say_absent(f"table {self._table!r} has no column {name!r}")

    def _begin(self, row: LeftRow) -> bool:
        self._keys = row.effect.keys
        self._shape = self._snapshot.begin(self._table, self._keys)
        if self._shape is not None and set(self._keys) <= set(self._shape.types):
            return True
        self._say_absent(f"there is no table {self._table!r} with {', '.join(self._keys)}", row.index)
        return False

    def _add(self, rows: list[LeftRow]) -> None:
        assert self._shape is not None
        self._verdict.keys += len(rows)
        for row in rows:
            if row.effect.keys != self._keys:
                what = f"is named by {', '.join(row.effect.keys)}, and other rows by {', '.join(self._keys)}"
                self._verdict.add([Difference(row.index, row.key, what)])
            self._absent |= row.effect.columns.keys() - self._shape.types.keys()
        self._snapshot.add(ExpectedRow(row.index, row.effect.columns) for row in rows if row.effect.keys == self._keys)

    def _say_absent(self, what: str, index: int = 0) -> None:
        if self._merge.statements:
            self._verdict.notes.append(f"{what}, and what the log had for it was not compared")
        else:
            self._verdict.add([Difference(index, self._table.encode(), f"cannot be compared: {what}")])

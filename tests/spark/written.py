"""Judges what was written to SQLite stores, by code that shares nothing with the product.

Triggers in each store note every row that is written and every one that is deleted, in order; the one who appends
remembers what it appended, in order. So an entry that was applied twice in place is seen, where content and index look
right, and so is one that was applied by an index that is right in the end and went back in between. In each store, what
was written must follow the order of the log also across keys. Which store owns a key is not asked: always the same one.

A delete of a key that is not there changes nothing and is not noted; so one that is repeated at once is not seen.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

Row = tuple[bytes, bytes | None]  # A key and its value; None: the key was deleted.

NOTES = """
CREATE TABLE IF NOT EXISTS written (nth INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB, value BLOB);
CREATE TRIGGER IF NOT EXISTS noted AFTER INSERT ON data BEGIN
  INSERT INTO written (key, value) VALUES (new.key, new.value); END;
CREATE TRIGGER IF NOT EXISTS noted_again AFTER UPDATE ON data BEGIN
  INSERT INTO written (key, value) VALUES (new.key, new.value); END;
CREATE TRIGGER IF NOT EXISTS noted_gone AFTER DELETE ON data BEGIN
  INSERT INTO written (key, value) VALUES (old.key, NULL); END;
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many rows are not as they were appended; ``first`` describes one of them."""

    lost: int = 0
    doubled: int = 0  # Also rows that nobody appended.
    reordered: int = 0  # Rows that a store wrote after one that was appended later, whatever their keys are.
    misplaced: int = 0  # Keys that were written to several stores.
    first: str = ""

    @property
    def right(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.misplaced)


class Load:
    """Entries for several shards, and what they hold; the value of a put has the number of its entry."""

    def __init__(self) -> None:
        self.count = 0
        self.appended: list[Row] = []

    def entry(self) -> list[Row]:
        """Two puts, and a third one, or in every fourth entry a delete of a key that may be there."""
        self.count += 1
        keys = [b"k%d" % ((self.count * 7 + n) % 97) for n in range(3)]
        rows: list[Row] = [(key, b"v%d-%d" % (self.count, n)) for n, key in enumerate(keys)]
        if self.count % 4 == 0:
            rows[2] = (keys[2], None)
        self.appended += rows
        return rows


def note_writes(store: Path) -> None:
    """From now on, the store notes what is written to it."""
    with closing(sqlite3.connect(store)) as db:
        db.executescript(NOTES)


def judge(stores: Mapping[str, Path], appended: Sequence[Row]) -> Verdict:
    """Compare what the stores noted with what was appended, in order; the values of a key must all differ."""
    wanted = list(_changes(appended))
    written = {name: _written(path) for name, path in stores.items()}
    owed = Counter(wanted)
    owed.subtract(row for rows in written.values() for row in rows)
    missing, extra = +owed, -owed
    reordered = [(name, *swap) for name, rows in written.items() for swap in _swaps(rows, wanted)]
    places: dict[bytes, set[str]] = {}
    for name, rows in written.items():
        for key, _ in rows:
            places.setdefault(key, set()).add(name)
    several = {key: sorted(names) for key, names in places.items() if len(names) > 1}
    wrong = [
        *(f"{row} was not written" for row in missing),
        *(f"{row} was written too often" for row in extra),
        *(f"{name} wrote {late} after {early}" for name, early, late in reordered),
        *(f"{key!r} was written to {names}" for key, names in several.items()),
    ]
    return Verdict(missing.total(), extra.total(), len(reordered), len(several), wrong[0] if wrong else "")


def _written(path: Path) -> list[Row]:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT key, value FROM written ORDER BY nth").fetchall()
    return [(bytes(key), None if value is None else bytes(value)) for key, value in rows]


def _changes(appended: Iterable[Row]) -> Iterator[Row]:
    """Without the deletes of keys that are not there."""
    there: set[bytes] = set()
    for key, value in appended:
        if value is not None:
            there.add(key)
        elif key in there:
            there.remove(key)
        else:
            continue
        yield key, value


def _swaps(rows: Sequence[Row], wanted: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Each row that stands after one that was appended later, with that one before it."""
    places: dict[Row, list[int]] = {}
    for at in reversed(range(len(wanted))):
        places.setdefault(wanted[at], []).append(at)
    last = -1
    before: Row = (b"", None)
    for row in rows:
        if not places.get(row):
            continue  # It is one too many: that is counted elsewhere.
        at = places[row].pop()
        if at < last:
            yield before, row
        else:
            last, before = at, row

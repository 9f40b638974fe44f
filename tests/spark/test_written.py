"""The judge of the campaign on Spark sees what it is there to see; the rows come from the real store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from logplayer.core.entry import Delivery, Session
from logplayer.core.fence import Batch
from logplayer.target.protocol import Change
from logplayer.target.stores.sqlite import SqliteTarget
from tests.spark.soak_faults import over_bounds
from tests.spark.spark_support import transaction
from tests.spark.written import Load, Row, Verdict, judge, note_writes

ROWS: list[Row] = [(b"k", b"1"), (b"k", b"2"), (b"l", b"3"), (b"k", None), (b"k", b"5"), (b"m", b"6")]


def deliver(path: Path, rows: Sequence[Row], twice: bool = False) -> None:
    """Through the store; ``twice``: what it writes, it writes again in the same transaction, as a mutant would."""
    store = SqliteTarget(path, "a")
    note_writes(path)
    write = store._write
    if twice:
        store._write = lambda *run: (write(*run), write(*run))[0]  # type: ignore[method-assign]
    store.apply(Change(Session(1, 1), log_id="log"))
    for index, row in enumerate(rows, 1):
        entry = Delivery(index, transaction((*row, "")))
        store.apply(Change(Session(1, 1), batch=Batch(index - 1, index, (entry,))))
    store.close()


def test_what_was_written_once_and_in_order_is_right(tmp_path: Path) -> None:
    deliver(tmp_path / "a.db", ROWS)
    assert judge({"a": tmp_path / "a.db"}, ROWS) == Verdict()


def test_an_entry_that_is_applied_twice_in_place_is_seen(tmp_path: Path) -> None:
    """Content, index and digest are right; only the notes show it. A delete that is repeated at once shows nowhere."""
    deliver(tmp_path / "once.db", ROWS)
    deliver(tmp_path / "a.db", ROWS, twice=True)
    once, store = (SqliteTarget(tmp_path / name, "a", read_only=True) for name in ("once.db", "a.db"))
    assert (store.position(), dict(store.scan())) == (once.position(), dict(once.scan()))
    store.close()
    once.close()
    verdict = judge({"a": tmp_path / "a.db"}, ROWS)
    assert (verdict.lost, verdict.doubled, verdict.reordered, verdict.right) == (0, 5, 0, False)


def swapped(first: int, second: int) -> list[Row]:
    rows = list(ROWS)
    rows[first], rows[second] = rows[second], rows[first]
    return rows


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        (ROWS[1:], "lost"),
        ([row for row in ROWS if row[1] is not None], "lost"),
        ([*ROWS, (b"n", b"7")], "doubled"),
        ([*ROWS, (b"m", None)], "doubled"),
        (swapped(0, 1), "reordered"),
        (swapped(1, 2), "reordered"),
        (swapped(2, 3), "reordered"),
        (swapped(4, 5), "reordered"),
    ],
)
def test_what_is_lost_invented_or_out_of_order_is_seen(rows: list[Row], wrong: str, tmp_path: Path) -> None:
    """The rows of two keys that are swapped leave the same content, and the same rows of each key."""
    deliver(tmp_path / "a.db", rows)
    verdict = judge({"a": tmp_path / "a.db"}, ROWS)
    assert [name for name in ("lost", "doubled", "reordered") if getattr(verdict, name)] == [wrong]
    assert verdict.first


def test_a_key_in_two_stores_is_seen(tmp_path: Path) -> None:
    deliver(tmp_path / "a.db", ROWS[:2])
    deliver(tmp_path / "b.db", [(b"other", b"0"), *ROWS[2:3], (b"k", b"4"), *ROWS[3:]])
    appended = [*ROWS[:2], (b"other", b"0"), *ROWS[2:3], (b"k", b"4"), *ROWS[3:]]
    verdict = judge({"a": tmp_path / "a.db", "b": tmp_path / "b.db"}, appended)
    assert (verdict.misplaced, verdict.lost, verdict.doubled, verdict.reordered) == (1, 0, 0, 0)


def test_the_load_has_deletes_that_change_something() -> None:
    load = Load()
    entries = [load.entry() for _ in range(200)]
    assert load.appended == [row for entry in entries for row in entry]
    there: set[bytes] = set()
    gone = 0
    for key, value in load.appended:
        gone += value is None and key in there
        (there.discard if value is None else there.add)(key)
    assert gone > 20


def test_a_recovery_over_its_bound_is_named() -> None:
    """So that a campaign with --bounds can fail."""
    found = {"worker": {"median": 2.1, "worst": 9.0}, "executor": {"median": 5.0, "worst": 9.0}}
    assert over_bounds(found) == ["worker: a median of 2.1 s, at most 2.0 s is promised"]

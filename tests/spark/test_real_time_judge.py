"""The judge of queries in real time sees what it is there to see; the rows come from the real store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logplayer.core.entry import Delivery, Session
from logplayer.core.fence import Batch
from logplayer.target.protocol import Change
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.wire.entries import encode_mutation
from tests.spark.real_time_judge import deliveries, differences, made
from tests.spark.spark_support import FileWal, transaction
from tests.spark.written import Row, note_writes

ENTRIES: list[list[Row]] = [[(b"n1", b"1,2"), (b"drop", b"x")], [(b"n2", b"3")], [(b"n1", b"4,5"), (b"n3", b"6")]]


def deliver(path: Path, sent: list[tuple[int, list[Row]]], last: int, twice: bool) -> None:
    store = SqliteTarget(path, "a")
    note_writes(path)
    write = store._write
    if twice:
        store._write = lambda *run: (write(*run), write(*run))[0]  # type: ignore[method-assign]
    store.apply(Change(Session(1, 1), log_id="log"))
    at = 0
    for index, rows in sent:
        payload = b"".join(encode_mutation(*row).encoded for row in rows)
        store.apply(Change(Session(1, 1), batch=Batch(at, index, (Delivery(index, payload),))))
        at = index
    if at < last:
        store.apply(Change(Session(1, 1), batch=Batch(at, last, ())))
    store.close()


def swap_rows(sent: list[tuple[int, list[Row]]]) -> list[tuple[int, list[Row]]]:
    """Two rows of different keys, within an entry: content and index are right in the end."""
    return [(index, rows[::-1] if nth == 2 else rows) for nth, (index, rows) in enumerate(sent)]


def lose_one(sent: list[tuple[int, list[Row]]]) -> list[tuple[int, list[Row]]]:
    return [sent[0], *sent[2:]]


@pytest.mark.parametrize(
    ("change", "twice", "said"),
    [
        (None, False, ""),
        (None, True, "doubled=6"),
        (swap_rows, False, "reordered="),
        (lose_one, False, "lost=1"),
    ],
)
def test_what_is_wrong_is_seen(
    wal: FileWal, tmp_path: Path, change: Callable[..., list[tuple[int, list[Row]]]] | None, twice: bool, said: str
) -> None:
    wal.append([transaction(*((*row, "") for row in rows)) for rows in ENTRIES])
    must = deliveries(wal.records(), "a", [(0, ["a"])], wal.last(), made)
    sent = [(delivery.at, delivery.rows) for delivery in must]
    assert [len(rows) for _, rows in sent] == [2, 1, 3]
    deliver(tmp_path / "a.db", change(sent) if change else sent, wal.last(), twice)
    found = differences(wal.records(), {"a": tmp_path / "a.db"}, ["a"])
    assert bool(found) == bool(said)
    assert said in " ".join(found)


def test_an_order_that_content_and_digest_do_not_show(wal: FileWal, tmp_path: Path) -> None:
    """The digest is a sum: it is the same whatever the order of the entries was."""
    wal.append([transaction((*row, "")) for row in [(b"n1", b"1"), (b"n2", b"2")]])
    path = tmp_path / "a.db"
    deliver(path, [(1, [(b"k/n1/0", b"1")]), (2, [(b"k/n2/0", b"2")])], 2, False)
    assert differences(wal.records(), {"a": path}, ["a"]) == []
    store = SqliteTarget(path, "a")
    store._db.execute("UPDATE written SET nth = 3 - nth + 10 WHERE nth IN (1, 2)")
    store.close()
    [line] = differences(wal.records(), {"a": path}, ["a"])
    assert "reordered=1" in line


def test_keys_are_hashed_by_the_map_of_their_entry(wal: FileWal) -> None:
    wal.append([transaction((b"n%d" % nth, b"v", "")) for nth in range(20)])
    before = sum(1 for _ in deliveries(wal.records(), "c", [(0, ["a", "b"])], 20, made))
    after = [one.at for one in deliveries(wal.records(), "c", [(0, ["a", "b"]), (10, ["a", "b", "c"])], 20, made)]
    assert before == 0
    assert after
    assert min(after) > 10

"""The demo's judge must be able to say no: a shard that lost, doubled, swapped or changed something is caught."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from logplayer.core.entry import Delivery, Entry, HashMap, Session
from logplayer.core.fence import Batch
from logplayer.core.routing import Router
from logplayer.demo.bank import Bank
from logplayer.demo.journal import ShardVerdict, install, judge
from logplayer.demo.run import DemoVerdict
from logplayer.log.mutations import transaction
from logplayer.target.protocol import Change
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.wire.entries import route_transaction

ENTRIES = 20


def bank_entries() -> list[Entry]:
    bank = Bank(accounts=6, size=0)
    new = [*bank.open_accounts(), *(bank.transfer() for _ in range(ENTRIES - 1))]
    return [Entry(index, transaction(item)) for index, item in enumerate(new, 1)]


@pytest.fixture
def shard(tmp_path: Path) -> tuple[Path, list[Entry], Router]:
    """A shard that was served right: it owns every account."""
    entries, router = bank_entries(), Router(HashMap(("a",)))
    path = tmp_path / "a.db"
    store = SqliteTarget(path, "a")
    install(path)
    store.apply(Change(Session(1, 1), log_id="log"))
    messages = tuple(Delivery(entry.index, router.split(entry, route_transaction)["a"]) for entry in entries)
    store.apply(Change(Session(1, 1), batch=Batch(0, ENTRIES, messages)))
    store.close()
    return path, entries, router


def holds(verdict: ShardVerdict, total: int = 600) -> bool:
    return DemoVerdict(
        appended=ENTRIES,
        delivered=verdict.delivered,
        lost=verdict.lost,
        doubled=verdict.doubled,
        out_of_order=verdict.out_of_order,
        digests_match=verdict.digest_matches,
        total_before=total,
        total_after=verdict.total,
        faults=0,
        delay_ms={},
        calm_delay_ms={},
        shards=[verdict],
    ).holds


def test_a_right_shard_is_right(shard: tuple[Path, list[Entry], Router]) -> None:
    path, entries, router = shard
    verdict = judge("a", path, entries, router)
    assert (verdict.lost, verdict.doubled, verdict.out_of_order) == (0, 0, 0)
    assert verdict.delivered == verdict.expected == 6 + 2 * (ENTRIES - 1)
    assert holds(verdict)


def swap(db: sqlite3.Connection) -> None:
    db.execute("UPDATE witness SET seen = -1 WHERE seen = 9")
    db.execute("UPDATE witness SET seen = 9 WHERE seen = 10")
    db.execute("UPDATE witness SET seen = 10 WHERE seen = -1")


TAMPERINGS: dict[str, tuple[Callable[[sqlite3.Connection], object], tuple[int, int, int]]] = {
    "lost": (lambda db: db.execute("DELETE FROM witness WHERE seen = 10"), (1, 0, 0)),
    "doubled": (
        lambda db: db.execute("INSERT INTO witness (key, value) SELECT key, value FROM witness WHERE seen = 10"),
        (0, 1, 0),
    ),
    "swapped": (swap, (0, 0, 1)),
    "changed": (
        lambda db: db.execute("UPDATE witness SET value = CAST(value || ' ' AS BLOB) WHERE seen = 10"),
        (1, 1, 0),
    ),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_tampered_journal_is_caught(name: str, shard: tuple[Path, list[Entry], Router]) -> None:
    path, entries, router = shard
    tamper, found = TAMPERINGS[name]
    with sqlite3.connect(path) as db:
        tamper(db)
    db.close()
    verdict = judge("a", path, entries, router)
    assert (verdict.lost, verdict.doubled, verdict.out_of_order) == found
    assert not holds(verdict)


def test_a_changed_digest_is_caught(shard: tuple[Path, list[Entry], Router]) -> None:
    path, entries, router = shard
    with sqlite3.connect(path) as db:
        db.execute("UPDATE position SET digest = zeroblob(16)")
    db.close()
    verdict = judge("a", path, entries, router)
    assert not verdict.digest_matches
    assert not holds(verdict)


def test_a_changed_balance_is_caught(shard: tuple[Path, list[Entry], Router]) -> None:
    path, entries, router = shard
    with sqlite3.connect(path) as db:
        db.execute(
            """UPDATE data SET value = CAST('{"balance": 1000000}' AS BLOB) WHERE key = (SELECT min(key) FROM data)"""
        )
    db.close()
    assert not holds(judge("a", path, entries, router)), "also the witness saw a change that is not in the log"

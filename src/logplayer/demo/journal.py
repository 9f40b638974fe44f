"""An independent witness: a trigger in each shard's own database writes down every change that the store makes.

It is in the same transaction as the change, and LogPlayer knows nothing of it. What it holds at the end is
compared with the log: something lost, doubled or out of order cannot hide.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from logplayer.core import digest as digests
from logplayer.core.entry import Entry
from logplayer.core.routing import Router
from logplayer.demo.bank import balance
from logplayer.wire.entries import decode_transaction, route_transaction

_WITNESS = """
CREATE TABLE IF NOT EXISTS witness (seen INTEGER PRIMARY KEY, key BLOB, value BLOB);
CREATE TRIGGER IF NOT EXISTS witness_insert AFTER INSERT ON data
  BEGIN INSERT INTO witness (key, value) VALUES (new.key, new.value); END;
CREATE TRIGGER IF NOT EXISTS witness_update AFTER UPDATE ON data
  BEGIN INSERT INTO witness (key, value) VALUES (new.key, new.value); END;
"""


def install(path: Path) -> None:
    """Put the witness into a shard's database, while its target serves it."""
    with sqlite3.connect(path, timeout=30) as db:
        db.executescript(_WITNESS)
    db.close()


@dataclass(slots=True)
class ShardVerdict:
    """One shard against the log."""

    shard: str
    expected: int = 0
    delivered: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    digest_matches: bool = False
    total: int = 0


def judge(shard: str, path: Path, entries: Sequence[Entry], router: Router) -> ShardVerdict:
    """Compare what the witness saw, the rows and the digest with what the log says."""
    expected: list[tuple[bytes, bytes]] = []
    digest = 0
    for entry in entries:
        payload = router.split(entry, route_transaction).get(shard)
        if payload is not None:
            digest += digests.entry_digest(entry.index, payload)
            expected += [(key, value or b"") for key, value in decode_transaction(payload)]
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        seen = [(bytes(key), bytes(value)) for key, value in db.execute("SELECT key, value FROM witness ORDER BY seen")]
        rows = db.execute("SELECT value FROM data").fetchall()
        [(stored,)] = db.execute("SELECT digest FROM position").fetchall()
    db.close()
    due, got = Counter(expected), Counter(seen)
    verdict = ShardVerdict(shard, expected=len(expected), delivered=len(seen))
    verdict.lost = sum((due - got).values())
    verdict.doubled = sum((got - due).values())
    verdict.out_of_order = _out_of_order(expected, seen)
    verdict.digest_matches = digests.from_bytes(bytes(stored)) == digest % 2**128
    verdict.total = sum(balance(value) for (value,) in rows)
    return verdict


def _out_of_order(expected: list[tuple[bytes, bytes]], seen: list[tuple[bytes, bytes]]) -> int:
    """How many of the changes that were due came after one that was due later. Lost and doubled ones do not count."""
    places: dict[tuple[bytes, bytes], deque[int]] = {}
    for place, change in enumerate(expected):
        places.setdefault(change, deque()).append(place)
    late, furthest = 0, -1
    for change in seen:
        due = places.get(change)
        if due:
            place = due.popleft()
            late += place < furthest
            furthest = max(furthest, place)
    return late

"""What a target in tables costs beside a plain program that writes the same rows: in turns, in one run.

    python -m bench.parts.tables_bench [--json] [--scale 1.0] [--stores sqlite-tables,postgres-tables,mysql-tables]
        [--bounds]

The plain program has its rows as Python values and writes them with the driver's best batched upsert: ``executemany``
in SQLite and PyMySQL, ``INSERT ... SELECT FROM unnest`` in psycopg. The target gets encoded entries of ten rows each:
it decodes them, checks its position, writes the rows, its position, session, digest and chain value. Both commit the
same number of rows at a time, each into a table of its own of the same form: half of the rows are new, half are there
already with other values. With one table for both, the second would find its rows there as they are, and SQLite and
InnoDB write nothing then.

The target is its store, called in this process: what its server, the network and a player add is not in it.

With ``--bounds`` the exit code is 1 if the target does not reach 0.7 of the plain program's rows per second: a promise
for a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql

import logplayer as lp
from logplayer.core.entry import Delivery, Session
from logplayer.core.fence import Batch
from logplayer.target.protocol import Change
from logplayer.target.stores.open import open_store
from tests.servers import mariadb_server, postgres_server

ROWS_PER_ENTRY = 10
COMMITS = (100, 1000)  # Rows at a time.
ROUNDS = 7
BOUND = 0.7
NAMES = ("id", "customer", "total", "note", "paid", "at")
START = datetime(2026, 1, 1)
TABLES = ("orders", "plain_orders")
Row = tuple[Any, ...]
Write = Callable[[list[Row]], None]


def make_rows(first: int, count: int, turn: int = 0) -> list[Row]:
    """Rows of six columns, none of which is empty; in each turn they have other values."""
    return [
        (nth, nth % 997, nth * 0.25, f"order number {nth}, {turn}", nth % 3 == 0, START + timedelta(seconds=nth))
        for nth in range(first, first + count)
    ]


def encode(rows: list[Row], index: int) -> list[Delivery]:
    """The same rows as deliveries of ten rows each."""
    table = lp.table("orders")
    encoded = [table.put(**dict(zip(NAMES, row, strict=True))).encoded for row in rows]
    pieces = range(0, len(encoded), ROWS_PER_ENTRY)
    return [
        Delivery(index + nth + 1, b"".join(encoded[at : at + ROWS_PER_ENTRY]), False, b"chain!!!")
        for nth, at in enumerate(pieces)
    ]


class PlayedTarget:
    """Feeds a store with batches as its server would, without that server."""

    def __init__(self, kind: str, place: dict[str, Any]) -> None:
        self.store = open_store(kind, "bench", **place)
        self.store.apply(Change(Session(1, 1), log_id="log"))
        self.index, self.chain = 0, b""

    def prepare(self, chunks: list[list[Row]]) -> list[Change]:
        changes = []
        for rows in chunks:
            messages = encode(rows, self.index)
            to = self.index + len(messages)
            batch = Batch(self.index, to, tuple(messages), self.chain, b"chain!!!")
            changes.append(Change(Session(1, 1), batch=batch))
            self.index, self.chain = to, b"chain!!!"
        return changes

    def play(self, changes: list[Change]) -> None:
        for change in changes:
            self.store.apply(change)


@contextlib.contextmanager
def sqlite_place() -> Iterator[tuple[dict[str, str], Write]]:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/shop.db"
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        for table in TABLES:
            db.execute(
                f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, total REAL NOT NULL,"
                " note TEXT NOT NULL, paid INTEGER NOT NULL, at TEXT NOT NULL)"
            )
        sql = (
            "INSERT INTO plain_orders VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (id) DO UPDATE SET customer = excluded.customer,"
            " total = excluded.total, note = excluded.note, paid = excluded.paid, at = excluded.at"
        )

        def write(rows: list[Row]) -> None:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(sql, [(*row[:5], row[5].isoformat(" ")) for row in rows])
            db.execute("COMMIT")

        yield {"path": path}, write
        db.close()


@contextlib.contextmanager
def postgres_place() -> Iterator[tuple[dict[str, str], Write]]:
    with postgres_server() as url, psycopg.connect(url, autocommit=True) as db:
        for table in TABLES:
            db.execute(
                f"CREATE TABLE {table} (id bigint PRIMARY KEY, customer bigint NOT NULL, total float8 NOT NULL,"
                " note text NOT NULL, paid boolean NOT NULL, at timestamp NOT NULL)"
            )
        sql = (
            "INSERT INTO plain_orders SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::float8[], %s::text[],"
            " %s::boolean[], %s::timestamp[]) ON CONFLICT (id) DO UPDATE SET customer = excluded.customer,"
            " total = excluded.total, note = excluded.note, paid = excluded.paid, at = excluded.at"
        )

        def write(rows: list[Row]) -> None:
            with db.transaction():
                db.execute(sql, [list(column) for column in zip(*rows, strict=True)])

        yield {"url": url}, write


@contextlib.contextmanager
def mysql_place() -> Iterator[tuple[dict[str, str], Write]]:
    with mariadb_server() as url:
        parts = urlsplit(url)
        db = pymysql.connect(unix_socket=parts.query.partition("=")[2], user="root", database=parts.path.strip("/"))
        with db.cursor() as cursor:
            for table in TABLES:
                cursor.execute(
                    f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, customer BIGINT NOT NULL, total DOUBLE NOT NULL,"
                    " note TEXT NOT NULL, paid BOOLEAN NOT NULL, at DATETIME NOT NULL) ENGINE=InnoDB"
                )
        sql = (
            "INSERT INTO plain_orders VALUES (%s, %s, %s, %s, %s, %s)"
            " ON DUPLICATE KEY UPDATE customer = VALUES(customer),"
            " total = VALUES(total), note = VALUES(note), paid = VALUES(paid), at = VALUES(at)"
        )

        def write(rows: list[Row]) -> None:
            db.begin()
            with db.cursor() as cursor:
                cursor.executemany(sql, rows)
            db.commit()

        yield {"url": url}, write
        db.close()


PLACES = {"sqlite-tables": sqlite_place, "postgres-tables": postgres_place, "mysql-tables": mysql_place}


def measure(kind: str, per_commit: int, commits: int) -> dict[str, Any]:
    """Rows per second of both, each the median of its turns."""
    found: dict[str, list[float]] = {"plain": [], "ours": []}
    with PLACES[kind]() as (place, write):
        target = PlayedTarget(kind, place)
        for turn in range(ROUNDS + 1):
            first = turn * per_commit * commits // 2  # Half of them were there in the turn before.
            chunks = [make_rows(first + nth * per_commit, per_commit, turn) for nth in range(commits)]
            changes = target.prepare(chunks)
            runs: dict[str, Callable[[], object]] = {
                "plain": lambda chunks=chunks: [write(rows) for rows in chunks],  # type: ignore[misc]
                "ours": lambda changes=changes: target.play(changes),  # type: ignore[misc]
            }
            # What the first leaves to the second, in caches and on disks, is fair if they take turns.
            for name in ("plain", "ours") if turn % 2 else ("ours", "plain"):
                started = time.perf_counter()
                runs[name]()
                if turn:  # The first pair warms up.
                    found[name].append(per_commit * commits / (time.perf_counter() - started))
        target.store.close()
    plain, ours = (statistics.median(found[name]) for name in ("plain", "ours"))
    ratio = statistics.median(mine / other for mine, other in zip(found["ours"], found["plain"], strict=True))
    return {
        "store": kind,
        "rows_per_commit": per_commit,
        "plain_rows_s": round(plain),
        "ours_rows_s": round(ours),
        "ratio": round(ratio, 2),
        "bound": BOUND,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--stores", default=",".join(PLACES))
    parser.add_argument("--bounds", action="store_true", help=f"fail below a ratio of {BOUND}")
    options = parser.parse_args()
    results = []
    for kind in options.stores.split(","):
        for per_commit in COMMITS:
            commits = max(2, int(20_000 * options.scale / per_commit))
            results.append(measure(kind, per_commit, commits))
            if not options.json:
                print(
                    "{store:16} {rows_per_commit:5} rows/commit  plain {plain_rows_s:8,}/s  ours {ours_rows_s:8,}/s"
                    "  ratio {ratio:.2f}".format(**results[-1]),
                    flush=True,
                )
    if options.json:
        print(json.dumps(results))
    sys.exit(options.bounds and any(one["ratio"] < BOUND for one in results))


if __name__ == "__main__":
    main()

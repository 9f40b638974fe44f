"""How long a row takes from one PostgreSQL to another: through LogPlayer, and by PostgreSQL's own logical replication.

    python -m bench.parts.capture_bench [--json] [--rate 1000] [--seconds 20] [--rounds 2]

One source, two replicas, all with their normal durability. The way through LogPlayer is capture, log server, player and
a target of ``postgres-tables``, each a process of its own; the other way is a subscription. They are measured in turns,
with the same load: while one is measured, the other one is stopped, and each catches up before its turn begins.

A client inserts rows at a steady rate, five in a transaction. The delay of a row is from the source's commit to the
replica's, as both servers have written it into their own logs (``pg_walinspect``): one machine, one clock. (What
``track_commit_timestamp`` keeps would not do: a subscriber notes the source's time there.) Rows that wait for their
turn are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from tests.campaign.databases import PostgresServer
from tests.campaign.world import Child, free_port

ROWS = 5  # In a transaction.
SCHEMA = (
    "CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint NOT NULL REFERENCES customers, "
    "total numeric NOT NULL, note text NOT NULL, at timestamptz NOT NULL)",
)
INSERT = """
INSERT INTO orders SELECT i, 1 + mod(i, 100), i / 4.0, repeat('x', 100), now()
FROM generate_series(%s::bigint, %s::bigint) i
"""
COMMITS = """
SELECT xid::text, description FROM pg_get_wal_records_info_till_end_of_wal(%s::pg_lsn)
WHERE resource_manager = 'Transaction' AND record_type = 'COMMIT'
"""
STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
PATIENCE = 300.0


class Ways:
    """The servers, and both ways between them."""

    def __init__(self, directory: Path) -> None:
        directory.chmod(0o755)
        kept = "wal_keep_size=1GB"
        self.source = PostgresServer(directory / "source", "wal_level=logical", kept)
        self.replicas = {name: PostgresServer(directory / name, kept) for name in ("logplayer", "postgres")}
        for server in (self.source, *self.replicas.values()):
            with psycopg.connect(server.url("postgres"), autocommit=True) as db:
                for statement in (*SCHEMA, "CREATE EXTENSION pg_walinspect"):
                    db.execute(statement.encode())
        with psycopg.connect(self.source.url("postgres"), autocommit=True) as db:
            db.execute("INSERT INTO customers SELECT i, 'customer ' || i FROM generate_series(1, 100) i")
            db.execute("CREATE PUBLICATION native FOR TABLE customers, orders")
        log, target = free_port(), free_port()
        at = f"grpc://127.0.0.1:{log}"
        url = self.replicas["logplayer"].url("postgres")
        serve = ("--store", "postgres-tables", "--url", url, "--id", "copy", "--listen", f"127.0.0.1:{target}")
        play = ("--in-process", "--log", at, "--target", f"copy=grpc://127.0.0.1:{target}", "--http", "127.0.0.1:0")
        capture = ("--url", self.source.url("postgres"), "--tables", "customers,orders", "--log", at)
        self._children = [
            Child("log", directory, "log", "serve", "--log", f"file://{directory}/wal", "--listen", f"127.0.0.1:{log}"),
            Child("target", directory, "target", "serve", *serve),
            Child("play", directory, "play", *play),
            Child("capture", directory, "capture", "postgres", *capture),
        ]
        self._subscribed = False

    async def begin(self, way: str) -> None:
        """Start one way, and wait until its replica has everything."""
        if way == "logplayer":
            for child in self._children:
                await child.start()
        elif self._subscribed:
            self._subscriber("ALTER SUBSCRIPTION native ENABLE")
        else:
            to = self.source.url("postgres").replace("'", "''")
            self._subscriber(f"CREATE SUBSCRIPTION native CONNECTION '{to}' PUBLICATION native")
            self._subscribed = True
        await self.caught_up(way)

    async def end(self, way: str) -> None:
        if way == "postgres":
            self._subscriber("ALTER SUBSCRIPTION native DISABLE")
        for child in self._children if way == "logplayer" else ():
            await child.kill()

    def _subscriber(self, statement: str) -> None:
        with psycopg.connect(self.replicas["postgres"].url("postgres"), autocommit=True) as db:
            db.execute(statement.encode())

    async def caught_up(self, way: str) -> None:
        query = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM customers)"
        expected = self.source.rows("postgres", query)
        end = time.monotonic() + PATIENCE
        while await asyncio.to_thread(self.replicas[way].rows, "postgres", query) != expected:
            assert time.monotonic() < end, f"{way} does not catch up"
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        await self.end("logplayer")
        for server in (*self.replicas.values(), self.source):
            await asyncio.to_thread(server.crash)  # Its data is thrown away.


FLUSH_TRIES = 600


def load(url: str, first: int, rate: int, seconds: float) -> int:
    """Insert rows from ``first`` on at a steady rate; returns the number after the last. Late turns are made up for."""
    began, done = time.monotonic(), 0
    with psycopg.connect(url, autocommit=True) as db:
        while time.monotonic() - began < seconds:
            due = began + done * ROWS / rate
            if due > time.monotonic():
                time.sleep(due - time.monotonic())
            db.execute(INSERT, (first + done * ROWS, first + done * ROWS + ROWS - 1))
            done += 1
    return first + done * ROWS


def now_at(server: PostgresServer) -> str:
    """How far its log goes."""
    return str(server.rows("postgres", "SELECT pg_current_wal_lsn()::text")[0][0][0])


def stamps(server: PostgresServer, since: str, first: int, last: int) -> dict[int, datetime]:
    """When the row with each number in [first, last] was committed there."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as db:
        rows = db.execute("SELECT id, xmin::text FROM orders WHERE id BETWEEN %s AND %s", (first, last)).fetchall()
        for _ in range(FLUSH_TRIES):
            times = {xid: STAMP.search(text) for xid, text in db.execute(COMMITS, (since,))}
            if all(xid in times for _, xid in rows):
                break
            time.sleep(0.1)  # A commit that does not wait for its sync is seen before it is in the server's log.
    found = {number: times[xid] for number, xid in rows}
    return {number: datetime.fromisoformat(stamp[0]) for number, stamp in found.items() if stamp is not None}


def delays(at: dict[int, datetime], there: dict[int, datetime]) -> list[float]:
    """Milliseconds from commit to commit, of each row."""
    assert at.keys() == there.keys(), "the replica has other rows than the source"
    return [(there[row] - at[row]).total_seconds() * 1000 for row in at]


def summary(found: list[float], seconds: float) -> dict[str, Any]:
    ordered = sorted(found)
    named = {f"p{share * 100:g}_ms": ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.99)}
    shown = {name: round(value, 2) for name, value in named.items()}
    return {"rows": len(ordered), "rows_per_second": round(len(ordered) / seconds), **shown}


async def measure(directory: Path, rate: int, seconds: float, rounds: int) -> list[dict[str, Any]]:
    ways, found, first = Ways(directory), [], 1
    try:
        for number in range(1, rounds + 1):
            for way in ways.replicas:
                await ways.begin(way)
                url = ways.source.url("postgres")
                servers, start = (ways.source, ways.replicas[way]), first
                since = [now_at(server) for server in servers]
                first = await asyncio.to_thread(load, url, first, rate, seconds)
                await ways.caught_up(way)
                times = [stamps(one, lsn, start, first - 1) for one, lsn in zip(servers, since, strict=True)]
                found.append({"way": way, "round": number, **summary(delays(*times), seconds)})
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
                await ways.end(way)
    finally:
        await ways.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rate", type=int, default=1000, help="row changes per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of one turn")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lp-capture-bench-") as directory:
        found = asyncio.run(measure(Path(directory), options.rate, options.seconds, options.rounds))
    if options.json:
        print(json.dumps({"rate": options.rate, "turns": found}))
        return
    for one in found:
        rate, p50, p99 = one["rows_per_second"], one["p50_ms"], one["p99_ms"]
        print(f"round {one['round']}  {one['way']:10} {rate:6} rows/s  p50 {p50:8.2f} ms  p99 {p99:8.2f} ms")


if __name__ == "__main__":
    main()

"""What Spark costs and brings: delay of its ways to deliver, and the speed of bulk work, each beside its rival.

    python -m bench.parts.spark_bench [--json] [--only delay,read,archive,backfill] [--count 400] [--rate 50] [--rows N]

*Delay* (``spark_delay``) is from just before the append until every target has applied it, over the same log server
and the same targets in the same run; the ways take turns, so that noise of the machine meets all. ``in-process``
is the same player in a plain Python process, ``resident`` the endless Spark task, ``lease`` the hot lease,
``micro-batch`` a streaming query from the log into the targets by the sink. ``resident_to_in_process_p50`` is the ratio
of the medians of ``resident`` and ``in-process``; at most 1.2 is wanted:

    python -m bench.parts.spark_bench --only delay --ways in-process,resident --count 1000 --rate 100

``real-time``, in ``--ways`` only, is a query in Spark's real-time mode, with a filter and a projection between log and
targets; ``real_time_to_resident_p50`` is at most 3, if it holds what is wanted. ``kafka-real-time`` (``spark_kafka``)
is Spark's own query in that mode, with the same SQL, from a Kafka topic into another. ``real-time-5s`` has batches of
five seconds, which shows what the end of a batch costs:

    tools/jvm; tools/rivals fetch
    python -m bench.parts.spark_bench --only delay --ways resident,real-time,kafka-real-time --count 1000 --rate 100
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from typing import Any

from logplayer.spark.session import make_session  # First: the JVM starts before any gRPC channel.

# isort: split
import uvloop

from bench.parts.spark_delay import USUAL, measure_delay
from logplayer.core.entry import HashMap
from logplayer.log.open import LogPlace, open_log
from logplayer.log.protocol import NewEntry
from logplayer.spark import event_loop
from logplayer.spark.jobs.archive_job import archive_log
from logplayer.spark.jobs.backfill import Fill, backfill
from logplayer.wire.entries import encode_mutation
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

# --- Bulk ---------------------------------------------------------------------------------------------------------


def fill_log(path: str, entries: int, size: int) -> int:
    """A log of transactions of one put of ``size`` bytes; returns its bytes."""

    async def fill() -> int:
        opened = await open_log(f"file://{path}")
        value = os.urandom(size)
        total = 0
        for at in range(0, entries, 500):
            keys = (b"%012x" % random.getrandbits(48) for _ in range(min(500, entries - at)))
            payloads = [encode_mutation(key, value).encoded for key in keys]
            total += sum(map(len, payloads))
            await opened.append([NewEntry("bench", at + n + 1, payload) for n, payload in enumerate(payloads)])
        await opened.close()
        return total

    return uvloop.run(fill())


def rate_of(amount: float, work: Callable[[], Any], rounds: int) -> float:
    """The best of some rounds, in amount per second."""
    best = 0.0
    for _ in range(rounds):
        start = time.monotonic()
        work()
        best = max(best, amount / (time.monotonic() - start))
    return round(best, 1)


def measure_read(spark: Any, folder: str, rounds: int) -> dict[str, Any]:
    size = fill_log(f"{folder}/read", 40_000, 10_000)
    reader = spark.read.format("logplayer").option("log", f"file://{folder}/read")

    def raw() -> Any:
        return reader.option("raw", "true").load().selectExpr("sum(length(payload))").collect()

    def rows() -> Any:
        return reader.option("raw", "false").load().selectExpr("sum(length(value))").collect()

    raw()
    return {
        "megabytes": size // 10**6,
        "raw_mb_s": rate_of(size / 1e6, raw, rounds),
        "rows_mb_s": rate_of(size / 1e6, rows, rounds),
    }


def measure_archive(spark: Any, folder: str) -> dict[str, Any]:
    size = fill_log(f"{folder}/archived", 20_000, 10_000)
    run = rate_of(size / 1e6, lambda: archive_log(spark, f"file://{folder}/archived", f"{folder}/a", 2_000), 1)
    return {"megabytes": size // 10**6, "mb_s": run}


def measure_backfill(spark: Any, folder: str, rounds: int, entries: int) -> dict[str, Any]:
    fill_log(f"{folder}/fill", entries, 100)
    log = f"file://{folder}/fill"
    counter = iter(range(10**6))

    def plain() -> None:
        """The same rows, by executemany in one process, from memory, in the log's order, in one transaction."""
        db = sqlite3.connect(f"{folder}/plain-{next(counter)}.db", isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE data (key BLOB PRIMARY KEY, value BLOB NOT NULL)")
        db.execute("BEGIN")
        db.executemany("REPLACE INTO data VALUES (?, ?)", held)
        db.execute("COMMIT")
        db.close()

    def program() -> None:
        """A plain program that does the whole job in one process: read the log, decode, executemany."""
        held[:] = _rows_of(log, entries)
        plain()

    def ours(targets: int, tasks: int) -> Callable[[], Any]:
        def run() -> None:
            made = next(counter)
            names = [f"t{n}" for n in range(targets)]
            fills = [Fill(name, path=f"{folder}/{made}-{name}.db") for name in names]
            backfill(spark, log, fills, new_map=HashMap(tuple(names)), register=False, tasks=tasks)

        return run

    held = _rows_of(log, entries)
    return {
        "rows": entries,
        "executemany_from_memory_rows_s": rate_of(entries, plain, rounds),
        "plain_program_rows_s": rate_of(entries, program, rounds),
        "one_task_rows_s": rate_of(entries, ours(1, 1), rounds),
        "two_tasks_rows_s": rate_of(entries, ours(2, 2), rounds),
    }


def _rows_of(log: str, entries: int) -> list[tuple[bytes, bytes]]:
    records = (record for batch in event_loop.read_range(LogPlace(log), 1, entries) for record in batch)
    return [(m.key, m.value) for record in records for m in pb.Transaction.FromString(record.payload).mutations]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="delay,read,archive,backfill")
    parser.add_argument("--ways", default=",".join(USUAL))
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=400_000, help="of the backfill")
    chosen = parser.parse_args()
    ways = chosen.ways.split(",")
    settings = {}
    if "kafka-real-time" in ways:
        from bench.parts.spark_kafka import connector

        settings["spark.jars"] = connector()
    spark = make_session("spark_bench", "local[2]", settings, quiet=True)
    spark.range(10).rdd.map(str).count()
    results: dict[str, Any] = {"load_average": os.getloadavg()}
    with tempfile.TemporaryDirectory(prefix="spark-bench-") as folder:
        wanted = chosen.only.split(",")
        if "read" in wanted:
            results["read"] = measure_read(spark, folder, chosen.rounds)
        if "archive" in wanted:
            results["archive"] = measure_archive(spark, folder)
        if "backfill" in wanted:
            results["backfill"] = measure_backfill(spark, folder, chosen.rounds, chosen.rows)
        if "delay" in wanted:
            results["delay"] = measure_delay(spark, ways, chosen.count, chosen.rate, chosen.rounds)
    spark.stop()
    if chosen.json:
        print(json.dumps(results))
        return
    for name, found in results.items():
        print(f"{name}: {json.dumps(found)}")


if __name__ == "__main__":
    main()

"""What Spark costs and brings: delay of its three ways to deliver, and the speed of bulk work, each beside its rival.

    python bench/parts/spark_bench.py [--json] [--only delay,read,archive,backfill] [--count 400] [--rate 50] [--rows N]

*Delay* is from just before the append to the arrival of the batch at the target, over the same log server and the same
targets in the same run; the ways take turns, so that noise of the machine meets all of them. ``in-process`` is the same
player in a plain Python process, ``resident`` the endless Spark task, ``lease`` the hot lease, ``micro-batch`` a
streaming query from the log into the targets by the sink. The ratio of the medians of ``resident`` and ``in-process``
is in ``resident_to_in_process_p50``; at most 1.2 is wanted:

    python bench/parts/spark_bench.py --only delay --ways in-process,resident --count 1000 --rate 100

``real-time``, in ``--ways`` only, is a query in Spark's real-time mode, with a filter and a projection between log and
targets; ``real_time_to_resident_p50`` is at most 3, if it holds what is wanted:

    tools/jvm && python bench/parts/spark_bench.py --only delay --ways resident,real-time --count 1000 --rate 100
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing as mp
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from logplayer.spark.session import make_session  # First: the JVM starts before any gRPC channel.

# isort: split
import uvloop

import logplayer as lp
from logplayer.config import Config
from logplayer.core.entry import HashMap
from logplayer.log.open import LogPlace, open_log
from logplayer.log.protocol import NewEntry
from logplayer.player.shell import Shell
from logplayer.spark import event_loop
from logplayer.spark.jobs.archive_job import archive_log
from logplayer.spark.jobs.backfill import Fill, backfill
from logplayer.spark.resident.driver import Resident
from logplayer.target import stream as target_stream
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.wire.entries import encode_mutation
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

NAMES = ("a", "b", "c", "d")
MAP = HashMap(NAMES)
now = time.monotonic_ns


# --- Processes: targets, an in-process player, a log server ------------------------------------------------------


def run_targets(pipe: Connection) -> None:
    uvloop.run(_targets(pipe))


async def _targets(pipe: Connection) -> None:
    """New targets for each question "new"; "take" answers with (index, ns) of every arrival."""
    arrived: list[tuple[int, int]] = []
    original = target_stream.Stream._batch

    def note(self: Any, batch: Any, length: int) -> None:
        at = now()
        arrived.extend((message.index, at) for message in batch.messages)
        original(self, batch, length)

    target_stream.Stream._batch = note  # type: ignore[method-assign]
    running = asyncio.get_running_loop()
    servers: list[TargetServer] = []
    while (asked := await running.run_in_executor(None, pipe.recv)) != "stop":
        if asked == "new":
            for server in servers:
                await server.stop()
            servers = [TargetServer({name: MemoryTarget(inline=True)}) for name in NAMES]
            pipe.send({name: (await s.start(grpc="127.0.0.1:0"))[0] for name, s in zip(NAMES, servers, strict=True)})
            arrived.clear()
        else:
            pipe.send(list(arrived))
            arrived.clear()


def run_player(log: str, targets: dict[str, str], pipe: Connection) -> None:
    async def play() -> None:
        opened = await open_log(log)
        shell = Shell(opened, Config(targets=targets, map=MAP, group="in-process"))
        running = asyncio.get_running_loop()
        running.run_in_executor(None, pipe.recv).add_done_callback(lambda _: shell.request_stop())
        await shell.run()
        await opened.close()

    uvloop.run(play())


@contextmanager
def log_server(folder: str) -> Iterator[str]:
    command = [sys.executable, "-m", "logplayer.cli", "log", "serve", "--log", f"file://{folder}", "--json"]
    process = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.terminate()
        process.wait()


# --- Delay --------------------------------------------------------------------------------------------------------


def append_steadily(log: str, count: int, rate: float) -> dict[int, int]:
    """Transactions of four mutations at a steady rate; when each index was about to be appended."""

    async def append() -> dict[int, int]:
        opened = await open_log(log)
        producer, sent = f"bench-{random.getrandbits(40):x}", {}
        start = time.monotonic()
        for n in range(count):
            await asyncio.sleep(max(0.0, start + n / rate - time.monotonic()))
            keys = [b"%06d/%d" % (n, k) for k in range(4)]
            payload = b"".join(encode_mutation(key, bytes(250)).encoded for key in keys)
            at = now()
            [index] = await opened.append([NewEntry(producer, n + 1, payload)])
            sent[index] = at
        await opened.close()
        return sent

    return uvloop.run(append())


def append_in_process(log: str, count: int, rate: float) -> dict[int, int]:
    """In a process of its own, so that the driver's work is not in its way."""
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.apply(append_steadily, (log, count, rate))


Way = Callable[[Any, str, dict[str, str], str], Any]


@contextmanager
def in_process(spark: Any, log: str, targets: dict[str, str], folder: str) -> Iterator[None]:
    ours, theirs = mp.Pipe()
    process = mp.get_context("spawn").Process(target=run_player, args=(log, targets, theirs))
    process.start()
    yield
    ours.send("stop")
    process.join()


@contextmanager
def resident(spark: Any, log: str, targets: dict[str, str], folder: str) -> Iterator[None]:
    player = Resident(spark, Config(log, targets, MAP, group="resident"))
    player.start()
    yield
    player.stop()


@contextmanager
def query(spark: Any, reader: dict[str, str], writer: dict[str, str], folder: str, sink: str) -> Iterator[None]:
    stream = spark.readStream.format("logplayer").options(**reader).load()
    started = stream.writeStream.format(sink).options(**writer, checkpointLocation=f"{folder}/checkpoint").start()
    yield
    started.stop()


def lease(spark: Any, log: str, targets: dict[str, str], folder: str) -> Any:
    where = ",".join(f"{name}={address}" for name, address in targets.items())
    reader = {"log": log, "mode": "play", "addresses": where, "leaseSeconds": "5", "map": "hash:" + ",".join(NAMES)}
    return query(spark, reader, {}, folder, "noop")


def micro_batch(spark: Any, log: str, targets: dict[str, str], folder: str) -> Any:
    where = ",".join(f"{name}={address}" for name, address in targets.items())
    reader = {"log": log, "map": "hash:" + ",".join(NAMES), "tasks": "1", "startingIndex": "latest"}
    return query(spark, reader, {"to": "targets", "addresses": where}, folder, "logplayer")


@contextmanager
def real_time(spark: Any, log: str, targets: dict[str, str], folder: str) -> Iterator[None]:
    """Through a filter and a projection, as nothing else here."""

    def changed(rows: Any) -> Any:
        kept = rows.where("length(value) > 0 and cast(key as string) not like 'tmp/%'")
        return kept.selectExpr("log_index", "target", "concat('row/', cast(key as string)) key", "value", "op")

    started = lp.spark.realtime(spark, log=log, targets=targets, map=MAP, transform=changed).start()
    yield
    started.stop()


WAYS: dict[str, Way] = {
    "in-process": in_process,
    "resident": resident,
    "lease": lease,
    "micro-batch": micro_batch,
    "real-time": real_time,
}
USUAL = [name for name in WAYS if name != "real-time"]  # It needs the connector: see tools/jvm.


def measure_delay(spark: Any, ways: list[str], count: int, rate: float, rounds: int) -> dict[str, Any]:
    pipe, theirs = mp.Pipe()
    targets_process = mp.get_context("spawn").Process(target=run_targets, args=(theirs,))
    targets_process.start()
    delays: dict[str, list[float]] = {name: [] for name in ways}
    rounds_p99: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name in ways:
            way = WAYS[name]
            with tempfile.TemporaryDirectory() as folder, log_server(f"{folder}/wal") as log:
                pipe.send("new")
                targets = pipe.recv()
                append_in_process(log, 1, rate)
                with way(spark, log, targets, folder):
                    warm = set(append_in_process(log, max(50, int(rate * 3)), rate))
                    if name == "micro-batch":
                        time.sleep(10)  # Its first batches start processes; they are not what is measured.
                    # Fewer for the slow one: its batches swallow what comes meanwhile anyway.
                    sent = append_in_process(log, count if name != "micro-batch" else count // 4, rate)
                    time.sleep(3 if name == "micro-batch" else 0.5)
                    pipe.send("take")
                    first: dict[int, int] = {}
                    for index, at in pipe.recv():
                        first[index] = max(first.get(index, 0), at)  # The last of its targets.
                    found = [(first[i] - at) / 1e6 for i, at in sent.items() if i in first and i not in warm]
                    delays[name] += found
                    rounds_p99[name].append(figures(found).get("p99_ms", 0.0))
    pipe.send("stop")
    targets_process.join()
    summary: dict[str, Any] = {
        name: {**figures(values), "p99_ms_of_rounds": rounds_p99[name]} for name, values in delays.items()
    }
    return {**summary, **ratio(summary)}


def ratio(found: dict[str, Any]) -> dict[str, float]:
    """How many times as long one way takes as another, by the medians; empty for those of which one is missing."""
    ratios = {}
    for way, other in (("resident", "in-process"), ("real-time", "resident")):
        ours, plain = (found.get(name, {}).get("p50_ms") for name in (way, other))
        if ours and plain:
            ratios[f"{way}_to_{other}_p50".replace("-", "_")] = round(ours / plain, 3)
    return ratios


def figures(values: list[float]) -> dict[str, float]:
    values = sorted(values)
    if not values:
        return {"count": 0}
    return {
        "count": len(values),
        "mean_ms": round(statistics.fmean(values), 2),
        "p50_ms": round(values[len(values) // 2], 2),
        "p99_ms": round(values[int(len(values) * 0.99)], 2),
    }


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
    spark = make_session("spark_bench", "local[2]", quiet=True)
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
            results["delay"] = measure_delay(spark, chosen.ways.split(","), chosen.count, chosen.rate, chosen.rounds)
    spark.stop()
    if chosen.json:
        print(json.dumps(results))
        return
    for name, found in results.items():
        print(f"{name}: {json.dumps(found)}")


if __name__ == "__main__":
    main()

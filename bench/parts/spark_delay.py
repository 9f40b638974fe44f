"""From just before the append until every target has applied it: the ways of Spark, and the player without it.

All ways get the same transactions: four rows, and a fifth whose key says that a filter may drop it. A way takes its
turn with a log, a log server and targets of its own; a row counts when the target's store has applied it, and a
transaction when all of its targets have. What has not arrived is counted, never left out in silence.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing as mp
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import uvloop

import logplayer as lp
from logplayer.config import Config
from logplayer.core.entry import HashMap
from logplayer.core.routing import owner_of
from logplayer.log.open import open_log
from logplayer.log.protocol import NewEntry
from logplayer.player.shell import Shell
from logplayer.spark.resident.driver import Resident
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.wire.entries import encode_mutation

NAMES = ("a", "b", "c", "d")
MAP = HashMap(NAMES)
owner = owner_of(MAP)
ROWS, VALUE_BYTES = 4, 250
DROPPED = b"tmp/%06d"  # The key of the row that a filter drops.
ARRIVAL_SECONDS_MAX = 60.0
now = time.monotonic_ns


class Sent(NamedTuple):
    """A transaction, just before it is appended."""

    at: int
    targets: int  # So many get some of it,
    targets_of_kept: int  # and so many if a filter drops the one row.


# --- Processes: targets, an in-process player, a log server ------------------------------------------------------


class NotingTarget(MemoryTarget):
    """Notes when it has applied what."""

    def __init__(self, applied: list[tuple[int, int]]) -> None:
        super().__init__(inline=True)
        self._applied = applied

    def apply(self, change: lp.Change) -> lp.Position:
        after = super().apply(change)
        at = now()
        self._applied.extend((message.index, at) for message in change.messages)
        return after


def run_targets(pipe: Connection) -> None:
    uvloop.run(_targets(pipe))


async def _targets(pipe: Connection) -> None:
    """New targets for each question "new"; "look" answers with (index, ns) of everything that they have applied."""
    applied: list[tuple[int, int]] = []
    running = asyncio.get_running_loop()
    servers: list[TargetServer] = []
    while (asked := await running.run_in_executor(None, pipe.recv)) != "stop":
        if asked == "new":
            for server in servers:
                await server.stop()
            applied.clear()
            servers = [TargetServer({name: NotingTarget(applied)}) for name in NAMES]
            pipe.send({name: (await s.start(grpc="127.0.0.1:0"))[0] for name, s in zip(NAMES, servers, strict=True)})
        else:
            pipe.send(list(applied))
    for server in servers:
        await server.stop()


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


def append_steadily(log: str, count: int, rate: float) -> dict[int, Sent]:
    """Transactions at a steady rate, by their index."""

    async def append() -> dict[int, Sent]:
        opened = await open_log(log)
        producer, sent = f"bench-{random.getrandbits(40):x}", {}
        start = time.monotonic()
        for n in range(count):
            await asyncio.sleep(max(0.0, start + n / rate - time.monotonic()))
            kept = [b"%06d/%d" % (n, k) for k in range(ROWS)]
            dropped = DROPPED % n
            payload = b"".join(encode_mutation(key, bytes(VALUE_BYTES)).encoded for key in (*kept, dropped))
            owners = {owner(key) for key in kept}
            made = Sent(now(), len(owners | {owner(dropped)}), len(owners))
            [index] = await opened.append([NewEntry(producer, n + 1, payload)])
            sent[index] = made
        await opened.close()
        return sent

    return uvloop.run(append())


def append_in_process(log: str, count: int, rate: float) -> dict[int, Sent]:
    """In a process of its own, so that the driver's work is not in its way."""
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.apply(append_steadily, (log, count, rate))


# --- Ways ---------------------------------------------------------------------------------------------------------

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
def real_time(spark: Any, log: str, targets: dict[str, str], folder: str, batch_seconds: int = 300) -> Iterator[None]:
    """Through a filter and a projection, as nothing else here."""

    def changed(rows: Any) -> Any:
        kept = rows.where("length(value) > 0 and cast(key as string) not like 'tmp/%'")
        return kept.selectExpr("log_index", "target", "concat('row/', cast(key as string)) key", "value", "op")

    started = lp.spark.realtime(
        spark, log=log, targets=targets, map=MAP, transform=changed, batch_seconds=batch_seconds
    ).start()
    yield
    started.stop()


def real_time_short(spark: Any, log: str, targets: dict[str, str], folder: str) -> Any:
    """The same with batches of five seconds: what the end of a batch costs."""
    return real_time(spark, log, targets, folder, batch_seconds=5)


WAYS: dict[str, Way] = {
    "in-process": in_process,
    "resident": resident,
    "lease": lease,
    "micro-batch": micro_batch,
    "real-time": real_time,
    "real-time-5s": real_time_short,
}
USUAL = ("in-process", "resident", "lease", "micro-batch")  # The others need the connector: see tools/jvm.


# --- Measuring ----------------------------------------------------------------------------------------------------


class Delays:
    """What one way took, over its turns."""

    def __init__(self) -> None:
        self.found: list[float] = []
        self.turns: list[list[float]] = []
        self.missing = 0

    def add(self, found: list[float], missing: int) -> None:
        self.found += found
        self.turns.append(found)
        self.missing += missing

    def summary(self) -> dict[str, Any]:
        of_turns = [figures(turn) for turn in self.turns]
        parts = {f"{key}_of_rounds": [one.get(key, 0.0) for one in of_turns] for key in ("p50_ms", "p99_ms")}
        return {**figures(self.found), **parts, "missing": self.missing}


class Ours:
    """The targets of all of our ways, and a turn of one."""

    def __init__(self) -> None:
        self._pipe, theirs = mp.Pipe()
        self._process = mp.get_context("spawn").Process(target=run_targets, args=(theirs,))
        self._process.start()

    def stop(self) -> None:
        self._pipe.send("stop")
        self._process.join()

    def turn(self, spark: Any, name: str, count: int, rate: float) -> tuple[list[float], int]:
        """Milliseconds of each transaction that arrived, and how many rows for a target did not."""
        filters = name.startswith("real-time")
        with tempfile.TemporaryDirectory() as folder, log_server(f"{folder}/wal") as log:
            self._pipe.send("new")
            targets = self._pipe.recv()
            append_in_process(log, 1, rate)
            with WAYS[name](spark, log, targets, folder):
                warm = append_in_process(log, max(50, int(rate * 3)), rate)
                self._arrived(warm, filters)  # First batches and connections are not what is measured.
                sent = append_in_process(log, count, rate)
                arrived, missing = self._arrived(sent, filters)
        return [(max(arrived[index]) - one.at) / 1e6 for index, one in sent.items() if arrived[index]], missing

    def _arrived(self, sent: dict[int, Sent], filters: bool) -> tuple[dict[int, list[int]], int]:
        """When each transaction arrived at which targets; those that miss a target have no times."""
        wanted = {index: one.targets_of_kept if filters else one.targets for index, one in sent.items()}
        deadline = time.monotonic() + ARRIVAL_SECONDS_MAX
        while True:
            arrived: dict[int, list[int]] = defaultdict(list)
            self._pipe.send("look")
            for index, at in self._pipe.recv():
                arrived[index].append(at)
            missing = sum(max(0, count - len(arrived[index])) for index, count in wanted.items())
            if not missing or time.monotonic() > deadline:
                whole = {index: arrived[index] if len(arrived[index]) >= wanted[index] else [] for index in wanted}
                return whole, missing
            time.sleep(0.2)


def measure_delay(spark: Any, ways: list[str], count: int, rate: float, rounds: int) -> dict[str, Any]:
    """The ways in turns; ``kafka-real-time`` brings brokers of its own, which rest while it is not its turn."""
    delays: dict[str, Delays] = {name: Delays() for name in ways}
    ours, kafka = Ours(), None
    if "kafka-real-time" in ways:
        from bench.parts.spark_kafka import KafkaRealTime

        kafka = KafkaRealTime()
    try:
        for nth in range(rounds):
            for name in ways if nth % 2 == 0 else reversed(ways):
                if name == "kafka-real-time":
                    assert kafka is not None
                    delays[name].add(*kafka.turn(spark, count, rate))
                else:  # Fewer for the slow one: its batches swallow what comes meanwhile anyway.
                    delays[name].add(*ours.turn(spark, name, count if name != "micro-batch" else count // 4, rate))
    finally:
        ours.stop()
        if kafka is not None:
            kafka.stop()
    summary: dict[str, Any] = {name: values.summary() for name, values in delays.items()}
    return {**summary, **ratio(summary)}


def ratio(found: dict[str, Any]) -> dict[str, float]:
    """How many times as long one way takes as another, by the medians; empty for those of which one is missing."""
    ratios = {}
    for way, other in (("resident", "in-process"), ("real-time", "resident"), ("kafka-real-time", "real-time")):
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
        "max_ms": round(values[-1], 2),
    }

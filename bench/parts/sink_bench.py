"""Rows per second from a streaming DataFrame into four targets, three ways in turns; and the time of the first batch.

    python bench/parts/sink_bench.py [--json] [--rows 50000] [--batches 4] [--rounds 3]

``collect`` is how the sink worked before: all rows of a batch are read into lists in ``commit``, sorted there, and
sent. ``sink`` is ``format("logplayer")``: tasks stage the rows of each target in order, ``commit`` merges and sends.
``once`` is ``lp.spark.once`` in a ``foreachBatch``: the same, but Spark tasks send, one for each target. Input is
Parquet files, one for each micro-batch; the targets are SQLite files, each behind a server in a process of its own. The
rate is of the batches after the first, by the time that Spark says they took; the first batch is from the start of the
query to the first ack.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from logplayer.spark.session import make_session  # First: the JVM starts before any gRPC channel.

# isort: split
import pyarrow as pa
import uvloop
from pyspark.sql import DataFrame
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

import logplayer as lp
from logplayer.core.entry import Message
from logplayer.spark.arrow import column
from logplayer.spark.one_line import one_line
from logplayer.spark.sinks.deliver import Destination, play
from logplayer.spark.sinks.log import partition_id
from logplayer.spark.sinks.rows import encode_row
from logplayer.spark.sinks.targets import TargetWriter, first_target_state
from logplayer.spark.source.table import LogPlayerSource
from logplayer.target.protocol import Target
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.target.stores.sqlite import SqliteTarget

NAMES = ("a", "b", "c", "d")
ROWS = pa.schema([("target", pa.string()), ("log_index", pa.int64()), ("payload", pa.binary())])


class CollectingWriter(TargetWriter):
    """The sink as it was: rows as dictionaries in the tasks, all rows as tuples in ``commit``."""

    @one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.staging.write(partition_id(), map(self._encoded, iterator), ROWS)

    @staticmethod
    def _encoded(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.to_pylist()
        plain = [{key: value for key, value in row.items() if key != "target"} for row in rows]
        columns = [
            column([row["target"] for row in rows], pa.string()),
            column([row["log_index"] for row in rows], pa.int64()),
            column([encode_row(row) for row in plain], pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ROWS)

    @one_line
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        intent = self.staging.intend(batchId, messages, first_target_state(self.options, self.staging))
        rows = [
            row
            for batch in self.staging.rows(intent)
            for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
        ]
        rows.sort(key=lambda row: row[1])
        entries: dict[str, list[Message]] = {}
        for target, index, payload in rows:
            entries.setdefault(target, []).append(Message(index, payload))
        highest = rows[-1][1]
        state = intent.state
        with ThreadPoolExecutor(16) as threads:
            work = [
                threads.submit(
                    play,
                    Destination(name, address, state["log_id"], state["epoch"]),
                    partial(_held, entries.get(name, [])),
                    highest,
                )
                for name, address in self.options.addresses
            ]
            for done in work:
                done.result()
        self.staging.finish(intent, {**state, "high": highest})


def _held(entries: list[Message], _: int) -> list[Message]:
    return entries


class CollectingSource(LogPlayerSource):
    @classmethod
    def name(cls) -> str:
        return "logplayer_collecting"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return CollectingWriter(self._options, schema)


# --- Processes ---


def run_target(name: str, folder: str, in_memory: bool, pipe: Connection) -> None:
    """One target; it says when its first batch is applied."""

    async def serve() -> None:
        import asyncio

        store: Target = MemoryTarget() if in_memory else SqliteTarget(Path(folder) / f"{name}.db", name)
        server = TargetServer({name: store})
        pipe.send((await server.start(grpc="127.0.0.1:0"))[0])
        while not server.position(name).index:
            await asyncio.sleep(0.005)
        pipe.send(time.monotonic())
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        pipe.send(server.position(name).index)
        await server.stop()

    uvloop.run(serve())


def write_input(spark: Any, folder: Path, rows: int, batches: int) -> None:
    """A Parquet file for each micro-batch: indexes rise, targets take turns, 100 bytes a value."""
    targets = ", ".join(f"'{name}'" for name in NAMES)
    for nth in range(batches):
        table = spark.range(nth * rows, (nth + 1) * rows, 1, 1).selectExpr(
            f"element_at(array({targets}), int(id % {len(NAMES)}) + 1) target",
            "id + 1 log_index",
            "concat('key-', id % 20000) key",
            "repeat('v', 100) value",
            "'put' op",
        )
        table.write.parquet(str(folder / f"{nth:04}"))


# --- One round of one way ---


def measure(spark: Any, way: str, source: Path, rows: int, batches: int, in_memory: bool) -> dict[str, float]:
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="lp-sink-bench-") as name:
        folder = Path(name)
        pipes = []
        for target in NAMES:
            ours, theirs = context.Pipe()
            context.Process(target=run_target, args=(target, name, in_memory, theirs), daemon=True).start()
            pipes.append(ours)
        addresses = ",".join(f"{target}={pipe.recv()}" for target, pipe in zip(NAMES, pipes, strict=True))
        schema = "target STRING, log_index LONG, key STRING, value STRING, op STRING"
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source / "*"))
        given = {"to": "targets", "addresses": addresses, "staging": str(folder / "staging")}

        def each(batch: DataFrame, batch_id: int) -> None:
            lp.spark.once(batch, batch_id, **given)

        writer = stream.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        if way == "once":
            writer = writer.foreachBatch(each)
        else:
            writer = writer.format({"collect": "logplayer_collecting", "sink": "logplayer"}[way]).options(**given)
        begin = time.monotonic()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        first = min(pipe.recv() for pipe in pipes) - begin
        for pipe in pipes:
            pipe.send("stop")
        taken = [p.durationMs["triggerExecution"] for p in query.recentProgress if p.numInputRows]
        assert len(taken) == batches, taken
        assert {pipe.recv() for pipe in pipes} == {rows * batches}
    return {"rows_per_second": rows * (batches - 1) / sum(taken[1:]) * 1000, "first_batch_seconds": first}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", default="collect,sink,once")
    parser.add_argument("--in-memory", action="store_true", help="targets that keep nothing: the sink's own speed")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    spark = make_session("sink-bench", "local[2]", quiet=True)
    spark.dataSource.register(CollectingSource)
    ways = given.ways.split(",")
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="lp-sink-input-") as name:
        write_input(spark, Path(name), given.rows, given.batches)
        for nth in range(given.rounds):
            for way in ways if nth % 2 == 0 else reversed(ways):
                found[way].append(measure(spark, way, Path(name), given.rows, given.batches, given.in_memory))
                if not given.json:
                    print(nth, way, {key: round(value, 1) for key, value in found[way][-1].items()}, flush=True)
    spark.stop()
    middle = {
        way: {key: round(statistics.median(one[key] for one in rounds), 2) for key in rounds[0]}
        for way, rounds in found.items()
    }
    print(json.dumps(middle if given.json else {"medians": middle}))


if __name__ == "__main__":
    main()

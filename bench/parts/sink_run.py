"""One run of ``sink_bench``: a new Spark session, four new targets, one way to fill them.

    python bench/parts/sink_run.py --way sink --input FOLDER --rows 50000 --batches 4

It is a process of its own, so that the first batch finds nothing running, and it uses only what older versions have,
too: ``sink_bench --old`` runs it with the Python of an older checkout. The result is one line of JSON on stdout.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import multiprocessing as mp
import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from logplayer.spark.session import make_session  # First: the JVM starts before any gRPC channel.

NAMES = ("a", "b", "c", "d")
SCHEMA = "target STRING, log_index LONG, key STRING, value STRING, op STRING"


def imported(name: str, *modules: str) -> Any:
    """A class from the first of these modules that there is: they had other names in older versions."""
    for module in modules[:-1]:
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError:
            continue
    return getattr(importlib.import_module(modules[-1]), name)


def run_target(name: str, folder: str, in_memory: bool, pipe: Connection) -> None:
    """One target; it says when its first batch is applied."""
    if in_memory:
        store = imported("MemoryTarget", "logplayer.target.stores.memory", "logplayer.target.memory")()
    else:
        sqlite = imported("SqliteTarget", "logplayer.target.stores.sqlite", "logplayer.target.sqlite")
        store = sqlite(Path(folder) / f"{name}.db", name)

    async def serve() -> None:
        server = imported("TargetServer", "logplayer.target.server")({name: store})
        pipe.send((await server.start(grpc="127.0.0.1:0"))[0])
        while not server.position(name).index:
            await asyncio.sleep(0.005)
        pipe.send(time.monotonic())
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        pipe.send(server.position(name).index)
        await server.stop()

    import uvloop

    uvloop.run(serve())


def started_kinds() -> list[str]:
    """What the Python processes that Spark has started below this one are for: the modules that they run."""
    parents, words = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                words[int(entry.name)] = (entry / "cmdline").read_text().split("\0")[:-1]
            except (FileNotFoundError, ProcessLookupError):
                continue  # It has ended meanwhile.

    def is_ours(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    ours = [words[pid] for pid in parents if is_ours(pid)]
    return sorted({said[-1].rpartition(".")[2] for said in ours if "pyspark.daemon" in said})


def fill(spark: Any, given: argparse.Namespace, folder: Path, pipes: list[Connection]) -> dict[str, Any]:
    """Run the query; the time to the first ack, and the rate of the batches after the first."""
    addresses = ",".join(f"{target}={pipe.recv()}" for target, pipe in zip(NAMES, pipes, strict=True))
    begin = time.monotonic()
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{given.input}/*")
    options = {"to": "targets", "addresses": addresses, "staging": str(folder / "staging")}
    writer = stream.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if given.way == "once":
        from logplayer.spark import once

        writer = writer.foreachBatch(lambda batch, batch_id: once(batch, batch_id, **options) and None)
    else:
        writer = writer.format("logplayer_collecting" if given.way == "collect" else "logplayer").options(**options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    first = min(pipe.recv() for pipe in pipes) - begin
    kinds = started_kinds()
    for pipe in pipes:
        pipe.send("stop")
    spent = [progress.durationMs for progress in query.recentProgress if progress.numInputRows]
    assert len(spent) == given.batches, spent
    assert {pipe.recv() for pipe in pipes} == {given.rows * given.batches}
    seconds = sum(one["triggerExecution"] for one in spent[1:]) / 1000
    rate = given.rows * (given.batches - 1) / seconds
    return {"rows_per_second": rate, "first_batch_seconds": first, "kinds": kinds, "last_batch_ms": spent[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=["sink", "once", "collect"], default="sink")
    parser.add_argument("--input", required=True)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--in-memory", action="store_true")
    given = parser.parse_args()
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="lp-sink-bench-") as name:
        pipes = []
        for target in NAMES:
            ours, theirs = context.Pipe()
            context.Process(target=run_target, args=(target, name, given.in_memory, theirs), daemon=True).start()
            pipes.append(ours)
        spark = make_session("sink-bench", "local[2]", quiet=True)
        if given.way == "collect":
            from bench.parts.collecting_sink import CollectingSource

            spark.dataSource.register(CollectingSource)
        spark.range(1).count()  # The JVM has planned and run something: only Python's processes are new.
        print(json.dumps(fill(spark, given, Path(name), pipes)), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()

"""Rows per second from a streaming DataFrame into four targets, several ways in turns; and the time of the first batch.

    python bench/parts/sink_bench.py [--json] [--rows 50000] [--batches 4] [--rounds 3] [--old PYTHON]

``sink`` is ``format("logplayer")``: tasks stage the rows of each target in order, ``commit`` merges and sends. ``once``
is ``lp.spark.once`` in a ``foreachBatch``: the same, but Spark tasks send, one for each target. ``old`` is the sink of
another checkout, whose Python ``--old`` names. ``collect`` is how the sink worked before, in this checkout: all rows of
a batch are read into lists in ``commit``, sorted there, and sent.

Every run is a process with a Spark session of its own (``sink_run``). Input is Parquet files, one for each micro-batch;
the targets are SQLite files, each with a server in a process of its own. The rate is of the batches after the first,
by the time that Spark says they took; the first batch is from the start of the query, in a session that has run no
Python yet, to the first ack. ``kinds`` are the kinds of Python process that Spark has started by then.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NAMES = ("a", "b", "c", "d")
RUN_SECONDS_MAX = 600


def write_input(folder: Path, rows: int, batches: int) -> None:
    """A Parquet file for each micro-batch: indexes rise, targets take turns, 100 bytes a value."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for nth in range(batches):
        ids = range(nth * rows, (nth + 1) * rows)
        columns = {
            "target": [NAMES[n % len(NAMES)] for n in ids],
            "log_index": [n + 1 for n in ids],
            "key": [f"key-{n % 20000}" for n in ids],
            "value": ["v" * 100] * rows,
            "op": ["put"] * rows,
        }
        (folder / f"{nth:04}").mkdir()
        pq.write_table(pa.table(columns), folder / f"{nth:04}" / "part.parquet")


def run(way: str, given: argparse.Namespace, source: Path) -> dict[str, Any]:
    """One run in a process of its own; what it found."""
    python = given.old if way == "old" else sys.executable
    words = [python, str(Path(__file__).with_name("sink_run.py")), "--way", "sink" if way == "old" else way]
    words += ["--input", str(source), "--rows", str(given.rows), "--batches", str(given.batches)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if way == "collect":
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        words + ["--in-memory"] * given.in_memory,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def medians(found: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Of each way, and its ratios to the first way."""
    keys = ("rows_per_second", "first_batch_seconds")
    middle: dict[str, dict[str, Any]] = {
        way: {key: round(statistics.median(one[key] for one in runs), 2) for key in keys} for way, runs in found.items()
    }
    first = next(iter(middle.values()))
    for way, values in middle.items():
        values |= {f"{key}_ratio": round(values[key] / first[key], 2) for key in keys}
        values["kinds"] = found[way][-1]["kinds"]
    return middle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", help="default: old,sink,once, or, without --old, collect,sink,once")
    parser.add_argument("--old", help="the Python of another checkout")
    parser.add_argument("--in-memory", action="store_true", help="targets that keep nothing: the sink's own speed")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    ways = (given.ways or ("old,sink,once" if given.old else "collect,sink,once")).split(",")
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="lp-sink-input-") as name:
        write_input(Path(name), given.rows, given.batches)
        for nth in range(given.rounds):
            for way in ways if nth % 2 == 0 else reversed(ways):
                found[way].append(run(way, given, Path(name)))
                if not given.json:
                    print(nth, way, found[way][-1], flush=True)
    middle = medians(found)
    print(json.dumps(middle if given.json else {"medians": middle}))


if __name__ == "__main__":
    main()

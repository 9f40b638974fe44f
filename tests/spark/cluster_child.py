"""A resident application on local-cluster, with an executor killed: run as a process of its own by the test.

    python -m tests.spark.cluster_child FOLDER

Prints one line of JSON: how often each group started, and whether every shard is as the log says.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from logplayer.spark.session import make_session


def executors(application: str) -> list[int]:
    """The process ids of this application's executors."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and application.encode() in words:
                found.append(int(folder.name))
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def executor_of(pid: int, application: str) -> int:
    """The executor that a Python worker belongs to."""
    while pid > 1 and pid not in executors(application):
        pid = parent(pid)
    return pid


def main(folder: Path) -> None:
    settings = {"spark.executor.memory": "512m", "spark.executor.cores": "2"}
    settings["spark.executor.extraJavaOptions"] = os.environ.get("SPARK_SUBMIT_OPTS", "")
    spark = make_session("cluster", "local-cluster[2,2,512]", settings)
    from logplayer.spark.resident.driver import Resident
    from tests.spark.spark_support import FileWal, Shards, until
    from tests.spark.test_resident import NAMES, check, config, pid_of, puts

    application = spark.sparkContext.applicationId
    wal, shards = FileWal(folder / "wal"), Shards(folder, NAMES)
    resident = Resident(spark, config(wal.serve(), shards.addresses, groups=2))
    resident.start()
    shards.wait(puts(wal, 100), 120)
    until(lambda: len(resident.overview.workers()) == 2)
    before = resident.overview.workers()
    # A Python worker's daemon is a child of its executor: kill the executor that plays group 0.
    ancestor, other = (executor_of(pid_of(before[group]), application) for group in (0, 1))
    slots = resident.status()["slots"]
    killed = time.monotonic()
    os.kill(ancestor, signal.SIGKILL)
    shards.wait(puts(wal, 100, 100), 120)
    seconds = time.monotonic() - killed
    until(lambda: resident.overview.workers()[0] != before[0])
    ended = resident.stop()
    spark.stop()
    shards.stop()
    check(wal, shards)
    wal.close()
    print(
        json.dumps(
            {
                "kind": ended.kind.value,
                "starts": resident.overview.starts,
                "seconds": round(seconds, 1),
                "spread": ancestor != other,
                "slots": slots,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))

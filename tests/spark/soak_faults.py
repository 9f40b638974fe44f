"""The fault campaign on Spark: players are killed, cancelled, restarted and superseded while the log grows.

    python -m tests.spark.soak_faults [--faults 100] [--master local[4]] [--seed 1]
    python -m tests.spark.soak_faults --master standalone [--faults 100] [--kinds worker,executor,daemon,driver]
        [--seconds 600] [--set spark.executor.cores=1]

Faults: a Python worker is killed (worker), Spark cancels the job (task), the application restarts (restart),
a second application starts beside the first (second), an executor is killed (executor, on local-cluster only), and
delivery changes over to a streaming query of leases and back, with a worker killed (lease). At the end every shard must
be as the log says: by the audit, by a check that reads log and stores in the plainest way, and by what triggers in the
stores noted of every write (tests/spark/written.py), which must have the order of the log across keys too.

On ``standalone`` a cluster is started in network namespaces (tests/spark/standalone.py): Python workers, executors,
Worker daemons, and drivers that have a standby are killed. A line of JSON has the seconds to recovery by kind, and what
tests/spark/written.py found. With ``--bounds`` the exit code is 1 if a median is over its bound, a promise on a machine
that has nothing else to do. Ctrl-C and SIGTERM end everything that was started.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from logplayer.spark.jobs.audit import audit
from logplayer.spark.resident.driver import Resident
from logplayer.spark.session import make_session
from logplayer.testing.orphans import end_with_this_process
from tests.namespaces import inside
from tests.spark.cluster_child import executors
from tests.spark.spark_support import FileWal, Shards, transaction, until
from tests.spark.standalone import prepare
from tests.spark.test_lease import takeovers
from tests.spark.test_resident import MAP, NAMES, check, config, pid_of
from tests.spark.written import Load, judge, note_writes

BOUNDS = {"worker": 2.0, "executor": 5.0, "driver": 3.0}
"""The median of the seconds to recovery from a kill of this kind."""


class Campaign:
    """One application under faults, and a producer that never stops."""

    def __init__(self, spark: Any, folder: Path, seed: int) -> None:
        self.spark = spark
        self.folder = folder
        self.rng = random.Random(seed)
        self.wal = FileWal(folder / "wal")
        self.shards = Shards(folder, NAMES)
        for path in self.shards.paths.values():
            note_writes(path)
        self.address = self.wal.serve()
        self.resident = self._start()
        self.done: dict[str, int] = {}
        self._stop = threading.Event()
        self._load = Load()
        self._producer = threading.Thread(target=self._produce, daemon=True)
        self._producer.start()

    def _start(self) -> Resident:
        resident = Resident(self.spark, config(self.address, self.shards.addresses, groups=2))
        resident.start()
        return resident

    def _produce(self) -> None:
        while not self._stop.wait(0.05):
            entries = [self._load.entry() for _ in range(10)]
            self.wal.append([transaction(*((key, value, "") for key, value in rows)) for rows in entries])

    def fault(self, kind: str) -> None:
        """Do it, then demand progress: what is appended after the fault arrives everywhere."""
        getattr(self, f"_{kind}")()
        self.done[kind] = self.done.get(kind, 0) + 1
        self.shards.wait(self.wal.last() + 20, 180)

    def _reached(self, index: int) -> bool:
        return all(self.shards.index(name) >= index for name in NAMES)

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # It has just been replaced.

    def _worker(self) -> None:
        until(lambda: self.resident.overview.workers())
        self._kill(pid_of(self.rng.choice(list(self.resident.overview.workers().values()))))

    def _executor(self) -> None:
        alive = executors(self.spark.sparkContext.applicationId)
        if alive:
            self._kill(self.rng.choice(alive))

    def _task(self) -> None:
        jobs = list(self.resident.jobs.values())
        if jobs:
            self.spark.sparkContext.cancelJobGroup(self.rng.choice(jobs))

    def _restart(self) -> None:
        self.resident.stop()
        self.resident = self._start()

    def _second(self) -> None:
        rival = self._start()
        until(lambda: self.resident.wait(0.1), 180)
        self.resident.stop()
        self.resident = rival

    def _lease(self) -> None:
        self.resident.stop()
        options = {"mode": "play", "groups": "2", "leaseSeconds": "2", "map": "hash:" + ",".join(MAP.targets)}
        stream = self.spark.readStream.format("logplayer").options(
            **options, log=self.address, addresses=self.shards.option
        )
        checkpoint = str(self.folder / "checkpoint")
        for _ in range(2):  # The second one is the query's restart.
            query = stream.load().writeStream.format("noop").option("checkpointLocation", checkpoint).start()
            for _ in range(2):
                wanted = self.wal.last() + 20
                until(lambda: not query.isActive or self._reached(wanted), 180)  # noqa: B023
                if not query.isActive:
                    # On a machine that is busy beyond measure Spark gives up on a Python process that starts slowly.
                    print(f"     the query failed by itself: {str(query.exception())[:160]}", flush=True)
                    break
                self._kill(int(takeovers(self.wal)[-1].rpartition(":")[2]))
            query.stop()
        self.resident = self._start()

    def end(self) -> None:
        """Heal, wait for everything, and compare."""
        self._stop.set()
        self._producer.join()
        self.shards.wait(self.wal.last(), 180)
        self.resident.stop()
        stores = {name: f"sqlite:{path}" for name, path in self.shards.paths.items()}
        verdicts = audit(self.spark, self.address, stores=stores, first_map=MAP)
        assert all(verdict.right and verdict.content_checked for verdict in verdicts), verdicts
        self.shards.stop()
        written = judge(self.shards.paths, self._load.appended)
        assert written.right, written
        check(self.wal, self.shards)


def standalone(chosen: argparse.Namespace) -> dict[str, Any]:
    """The campaign on a standalone cluster. Raises if a kill was not recovered from, or anything is not as it must."""
    kinds = chosen.kinds.split(",")
    faults = [kinds[nth % len(kinds)] for nth in range(chosen.faults)]
    random.Random(chosen.seed).shuffle(faults)
    with tempfile.TemporaryDirectory(prefix="spark-soak-") as folder:
        prepare(Path(folder))
        options = ["--seconds", str(chosen.seconds), "--seed", str(chosen.seed)]
        command = [sys.executable, "-m", "tests.spark.standalone_child", folder, *options, *chosen.set, *faults]
        child = subprocess.Popen(inside(command), stdout=subprocess.PIPE, text=True)
        try:
            said, _ = child.communicate()
        finally:
            if child.poll() is None:
                child.terminate()  # It ends what it has started, and its namespaces go with their last process.
                child.wait()
    if child.returncode:
        raise SystemExit(f"the campaign failed with exit code {child.returncode}: see the lines above")
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    figures = {
        kind: {"count": len(seconds), "median": round(statistics.median(seconds), 2), "worst": max(seconds)}
        for kind, seconds in sorted(found["seconds"].items())
    }
    counted = {kind: one["count"] for kind, one in figures.items()}
    verdict = {name: found["verdict"][name] for name in ("lost", "doubled", "reordered", "misplaced")}
    return {"faults": counted, "entries": found["entries"], **verdict, "seconds_to_recovery": figures}


def over_bounds(figures: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What took longer than is promised."""
    return [
        f"{kind}: a median of {figures[kind]['median']} s, at most {bound} s is promised"
        for kind, bound in BOUNDS.items()
        if kind in figures and figures[kind]["median"] > bound
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--master", default="local[4]")
    parser.add_argument("--seed", type=int, default=1)
    alone = parser.add_argument_group("on standalone")
    alone.add_argument("--kinds", default="worker,executor,daemon,driver")
    alone.add_argument("--seconds", type=float, default=float("inf"), help="begin no fault after this time")
    alone.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    alone.add_argument("--bounds", action="store_true", help="fail if it takes longer than is promised")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    end_with_this_process()
    print(f"seed {chosen.seed}, {chosen.faults} faults on {chosen.master}", flush=True)
    if chosen.master == "standalone":
        found = standalone(chosen)
        print(json.dumps(found))
        if chosen.bounds and (over := over_bounds(found["seconds_to_recovery"])):
            sys.exit("; ".join(over))
        return
    cluster = chosen.master.startswith("local-cluster")
    settings = {"spark.executor.memory": "512m", "spark.deploy.maxExecutorRetries": "-1"} if cluster else {}
    spark = make_session("soak", chosen.master, settings)
    spark.sparkContext.setLogLevel("OFF")
    kinds = ["executor", "worker", "task"] if cluster else ["worker"] * 5 + ["task", "restart", "second", "lease"]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="spark-soak-") as folder:
        campaign = Campaign(spark, Path(folder), chosen.seed)
        for nth in range(chosen.faults):
            kind = campaign.rng.choice(kinds)
            campaign.fault(kind)
            print(f"{nth + 1:4} {kind:8} {time.monotonic() - started:7.1f} s, log at {campaign.wal.last()}", flush=True)
        campaign.end()
        entries = campaign.wal.last()
        campaign.wal.close()
    spark.stop()
    print(json.dumps({"faults": campaign.done, "entries": entries, "lost": 0, "doubled": 0, "reordered": 0}))


if __name__ == "__main__":
    main()

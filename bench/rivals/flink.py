"""Flink with a transactional sink: a log topic on Kafka, a Flink job as the player, shards as partitions on Kafka.

It is the two-level design with Flink in the player's place. Flink commits a Kafka transaction when a checkpoint is
complete, so what it wrote is shown only then: the interval between checkpoints is part of every delay. The one used
here is the best of those that were tried; the state is tiny, and checkpoints go to the disk. The job is Java
(``FlinkPlayer.java``), compiled once: a Python function inside Flink would be another process and another delay.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.actor import ActorFailed
from bench.contest import Sample, Workload
from bench.rivals import jars
from bench.rivals.kafka_base import KafkaContest, KafkaTargets
from bench.rivals.kafka_two_level import WalApplication
from bench.rivals.parts import Store, by_number, expected, samples, wait_applied
from logplayer.errors import UserError
from logplayer.java import find_java

CHECKPOINT_MS = 100
HEAP_MB = 512
START_SECONDS = 120.0
SOURCE = Path(__file__).parent / "FlinkPlayer.java"
# What Flink's own start scripts add for this Java.
OPENS = tuple(
    f"--add-opens=java.base/java.{part}=ALL-UNNAMED" for part in ("lang", "util", "net", "nio", "util.concurrent")
)


class FlinkTargets(KafkaTargets):
    """The same targets; a record's key also says when Flink had it from the log."""

    def __init__(self) -> None:
        super().__init__()
        self._taken: array[int] = array("q")

    def _apply(self, store: Store, message: Any) -> None:
        number, taken = int.from_bytes(message.key()[:8], "big"), int.from_bytes(message.key()[8:], "big")
        store.apply(number, message.value())
        self._taken.extend((number, taken))

    def dispatched(self) -> array[int]:
        """Number and time of everything that came."""
        taken, self._taken = self._taken, array("q")
        return taken


class Flink(KafkaContest):
    """Exactly once, by transactions that commit with a checkpoint."""

    name = "flink"
    guarantee = "exactly once"
    checkpoint_ms = CHECKPOINT_MS
    targets_class = FlinkTargets

    def _open(self) -> None:
        self._classes = compile_job()
        self.application = self._actor(WalApplication)

    def run(self, workload: Workload) -> list[Sample]:
        wal, shards = self._topic(1, "wal"), self._topic(workload.targets, "shards")
        where = self.brokers.bootstrap
        self.targets.ask("serve", where, shards, workload.targets, "read_committed")
        with self._job(wal, shards, workload.targets) as job:
            self.application.ask("begin", where, wal, workload)
            asked, durable = self.application.ask("finish", seconds=workload.count / workload.rate + 120)
            try:
                wait_applied(self.targets, expected(workload))
            except ActorFailed as error:
                raise ActorFailed(f"{error}; Flink: {'ended' if job.poll() is not None else 'runs'}") from None
            dispatched = by_number(self.targets.ask("dispatched"))
            applied = self.targets.ask("take")
        self.targets.ask("close")
        self._drop(wal, shards)
        return samples(workload, applied, by_number(asked), by_number(durable), dispatched)

    @contextlib.contextmanager
    def _job(self, wal: str, shards: str, targets: int) -> Iterator[subprocess.Popen[str]]:
        """A local cluster with the job, in a process of its own."""
        with tempfile.TemporaryDirectory(prefix="lp-flink-") as folder:
            options = (f"-Xmx{HEAP_MB}m", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *OPENS)
            where = f"{self._classes}:{jars.class_path('flink')}"
            given = (
                self.brokers.bootstrap,
                wal,
                shards,
                str(targets),
                str(self.checkpoint_ms),
                f"{folder}/checkpoints",
            )
            command = [str(find_java(jars.JAVA_MIN).path), *options, "-cp", where, "FlinkPlayer", *given]
            with open(f"{folder}/flink.log", "w") as log:
                job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)
            try:
                assert job.stdout is not None
                if job.stdout.readline().strip() != "ready":
                    said = Path(f"{folder}/flink.log").read_text().strip()
                    raise ActorFailed(f"Flink did not start: {said[-800:]}")
                yield job
            finally:
                job.kill()
                job.wait()


def compile_job() -> Path:
    """The job's classes, compiled again when its source changed."""
    class_path = jars.class_path("flink")
    classes = jars.home() / "flink" / "classes"
    stamp = classes / SOURCE.name
    if stamp.exists() and stamp.read_bytes() == SOURCE.read_bytes():
        return classes
    beside = find_java(jars.JAVA_MIN).home / "bin" / "javac"
    compiler = str(beside) if beside.exists() else shutil.which("javac")
    if compiler is None:
        raise UserError("Flink's job is compiled here, and no javac was found; install a JDK of version 17 or newer")
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    command = [compiler, "-nowarn", "-cp", class_path, "-d", str(classes), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"Flink's job does not compile: {done.stderr.strip()[:500]}")
    shutil.copy(SOURCE, stamp)
    return classes

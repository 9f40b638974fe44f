"""Spark Structured Streaming with ``foreachBatch``, from the same log as ours to the same targets.

The source is this product's own (``format("logplayer")``), whose ``latestOffset`` waits for news instead of having the
engine come back later. One task reads a micro-batch, the driver gets its rows, cuts them by target, sends them and
waits for the answers. What helps is switched on: checkpoint files without a rename dance, no adaptive planning, no
metrics. Writing the progress asynchronously, which helps most, Spark refuses for ``foreachBatch``.

At least once, as ``foreachBatch`` is: a driver that dies after the targets answered sends the batch again.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from array import array
from typing import Any

from bench.actor import Actor, ActorFailed, usage
from bench.contest import Sample, Workload
from bench.logs import make_host
from bench.producer import Producer, number_of
from bench.rivals.parts import by_number, cut, expected, samples, wait_applied
from bench.rivals.wire import Deliverer
from bench.targets import Targets
from logplayer.errors import UserError
from logplayer.log.open import open_log
from logplayer.log.protocol import NewEntry

SESSION_SECONDS = 120.0
SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
READER = {"raw": "true", "tasks": "1", "startingIndex": "earliest", "pollMs": "200"}


class SparkDriver:
    """An actor: the Spark application."""

    def __init__(self) -> None:
        self._session: Any = None
        self._query: Any = None
        self._deliverer: Deliverer | None = None
        self._checkpoint: tempfile.TemporaryDirectory[str] | None = None
        self._stamps: array[int] = array("q")
        self._seen = threading.Event()

    def start(self) -> None:
        """The session; it takes some seconds."""
        try:
            from logplayer.spark.session import make_session

            self._session = make_session("micro-batch", "local[2]", SETTINGS, quiet=True)
        except ImportError:
            raise UserError("Spark is not installed; install it with: pip install 'logplayer[spark]'") from None

    def follow(self, log: str, port: int, targets: int) -> None:
        """Deliver the log from its first entry on; returns when the first batch is through."""
        self.close_now()
        self._seen.clear()
        self._stamps = array("q")
        deliverer = self._deliverer = Deliverer(port, targets)
        self._checkpoint = tempfile.TemporaryDirectory(prefix="lp-bench-")

        def apply(rows: Any, _batch: int) -> None:
            at = time.monotonic_ns()
            parts = []
            for (payload,) in rows.select("payload").collect():
                if payload:
                    number = number_of(payload)
                    self._stamps.extend((number, at))
                    parts += [(number, target, part) for target, part in cut(bytes(payload), targets).items()]
            deliverer.deliver(parts)
            self._seen.set()

        stream = self._session.readStream.format("logplayer").options(log=log, **READER).load()
        stream = stream.where("kind = 'data'")
        writer = stream.writeStream.foreachBatch(apply)
        self._query = writer.option("checkpointLocation", self._checkpoint.name).start()
        while not self._seen.wait(0.1):
            self._check()

    def dispatched(self) -> array[int]:
        """Number and time of everything that a micro-batch held."""
        self._check()
        return self._stamps

    def _check(self) -> None:
        if self._query is not None and self._query.exception() is not None:
            raise ActorFailed(f"the query failed: {str(self._query.exception())[:500]}")

    def usage(self) -> dict[str, float]:
        return usage()

    def close_now(self) -> None:
        """End the query; the session stays."""
        if self._query is not None:
            self._query.stop()
        if self._deliverer is not None:
            self._deliverer.close()
        if self._checkpoint is not None:
            self._checkpoint.cleanup()
        self._query = self._deliverer = self._checkpoint = None

    def finish(self) -> None:
        self.close_now()
        if self._session is not None:
            self._session.stop()
        self._session = None

    async def close(self) -> None:
        self.finish()


class SparkMicroBatch:
    """See the module."""

    name = "spark_micro_batch"
    guarantee = "at least once"

    def __init__(self, log: str = "nats") -> None:
        self.host = make_host(log)
        self._actors: list[Actor] = []

    def open(self) -> None:
        self.driver, self.producer, self.targets = Actor(SparkDriver), Actor(Producer), Actor(Targets)
        self._actors = [self.driver, self.producer, self.targets]
        self.driver.ask("start", seconds=SESSION_SECONDS)
        self.host.open()

    def run(self, workload: Workload) -> list[Sample]:
        log = self.host.fresh()
        try:
            port = self.targets.ask("serve_bare", "tcp")
            asyncio.run(_prime(log))
            self.producer.ask("open", log)
            self.driver.ask("follow", log, port, workload.targets, seconds=SESSION_SECONDS)
            sent = self.producer.ask("steady", workload, seconds=workload.count / workload.rate + 180)
            wait_applied(self.targets, expected(workload))
            dispatched = by_number(self.driver.ask("dispatched"))
            asked, committed = {}, {}
            numbers = iter(sent)
            for number, _, asked_ns, committed_ns in zip(numbers, numbers, numbers, numbers, strict=True):
                asked[number], committed[number] = asked_ns, committed_ns
            return samples(workload, self.targets.ask("take"), asked, committed, dispatched, once=False)
        finally:
            self.driver.ask("close_now")
            self.producer.ask("close")
            self.targets.ask("close")
            self.host.drop(log)

    def close(self) -> None:
        for actor in self._actors:
            actor.stop()
        if self._actors:
            self.host.close()
        self._actors = []


async def _prime(address: str) -> None:
    """An empty entry: its batch starts the processes that Spark's first one needs."""
    log = await open_log(address)
    await log.append([NewEntry("primer", 1, b"")])
    await log.close()

"""Delivery as a stream: ``readStream.format("logplayer").option("mode", "play")``.

A micro-batch is a lease: for its length one task per group keeps the group's player, and the rows are receipts:
the index that each target has. The player runs on the background loop of the Python worker, and outlives the task: the
next lease finds it running and delivery does not pause in between. A coordinator decides which task gets which group,
in the query's own process: a worker that already plays a group keeps it.

A player whose lease is not renewed drains and ends, and so does one whose coordinator is gone, as the query is then.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from logplayer.admin.http_client import ask
from logplayer.errors import ConfigError, LogPlayerError, Unavailable, UserError
from logplayer.log import control_chain as chain
from logplayer.log.open import open_log, parse
from logplayer.player.ended import Ended
from logplayer.spark import event_loop
from logplayer.spark.arrow import columns
from logplayer.spark.options import SparkOptions, require_log
from logplayer.spark.resident.driver_port import listen
from logplayer.spark.resident.groups import GroupPlan, GroupPlayer, GroupTask, deal, worker_name
from logplayer.spark.resident.heartbeat import whole_number
from logplayer.wire.security import NONE, Security

RECEIPTS = (
    "group STRING, target STRING, state STRING, log_index LONG, lag_entries LONG, lag_seconds DOUBLE, "
    "epoch LONG, error STRING, at TIMESTAMP"
)
SCHEMA = pa.schema(
    [
        ("group", pa.string()),
        ("target", pa.string()),
        ("state", pa.string()),
        ("log_index", pa.int64()),
        ("lag_entries", pa.int64()),
        ("lag_seconds", pa.float64()),
        ("epoch", pa.int64()),
        ("error", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
RECEIPT_SECONDS = 1.0
GRACE_SECONDS = 60.0  # How long a player goes on without a new lease while the query lives: a batch may take its time.
ALONE_SECONDS = 5.0  # ... and once the query is gone.
SETTLE_SECONDS = 0.5


class LeasePartition(InputPartition):
    """One group's seat in one lease. Which group, the coordinator says."""

    def __init__(self, lease: int, task: GroupTask) -> None:
        super().__init__(lease)
        self.lease = lease
        self.task = task


class LeaseReader(DataSourceStreamReader):
    """Offsets count leases: there is always a next one."""

    def __init__(self, options: SparkOptions) -> None:
        self.options = options
        if parse(require_log(options).address).scheme == "file":
            raise ConfigError("mode=play appends to the log from many tasks: serve it with `logplayer log serve` first")
        if options.config.trims and options.groups > 1:
            raise ConfigError(
                f"mode=play with trims = true needs one group, and has {options.groups}: a group trims by the targets "
                "that it plays to. Set option groups to 1, or trims = false"
            )
        self._coordinator: Coordinator | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_coordinator": None}

    def initialOffset(self) -> dict[str, int]:
        return {"lease": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"lease": int(start["lease"]) + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if self._coordinator is None:
            self._coordinator = Coordinator(self.options.config.security, self.options.driver_host)
        plan = self._plan()
        coordinator = self._coordinator
        lease = coordinator.begin(plan, self.options.lease_seconds)
        task = GroupTask(
            number=0,
            plan=plan,
            config=replace(self.options.config, group=self.options.config.group or "lease"),
            log=require_log(self.options),
            driver=coordinator.address,
            token=coordinator.token,
            job=coordinator.job,
            alone_seconds=ALONE_SECONDS,
        )
        seats = range(plan.groups)
        return [LeasePartition(lease, replace(task, number=n)) for n in seats]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, LeasePartition):
            yield from hold_lease(partition)

    def stop(self) -> None:
        if self._coordinator is not None:
            self._coordinator.stop()

    def _plan(self) -> GroupPlan:
        async def ask_log() -> GroupPlan:
            log = await open_log(*require_log(self.options), readonly=True)
            try:
                head = await chain.load(log)
            finally:
                await log.close()
            members = set(self.options.config.targets)
            if head.state is not None:
                members = set(head.control(self.options.config.map).members)
            if not members:
                raise UserError('there are no targets: set option("addresses", "NAME=grpc://HOST:PORT,...")')
            return deal(members, min(self.options.groups, len(members)))

        return event_loop.run(ask_log())


class Coordinator:
    """In the query's process: gives each task of a lease a group, and hears the players' heartbeats.

    Its state is the background loop's: questions arrive there, and what Spark's threads want is done there.
    """

    def __init__(self, security: Security = NONE, host: str = "127.0.0.1") -> None:
        self.token = secrets.token_hex(16)
        self.job = uuid.uuid4().hex
        self._server, self.address = event_loop.run(listen(self._answer, host, security, self.token))
        self._lease = 0
        self._groups = 0
        self._given: dict[int, int] = {}  # seat -> group, in this lease
        self._holders: dict[int, str] = {}  # group -> the worker that was last heard to play it
        self._began = self._ends = 0.0
        self._stopped = False

    def begin(self, plan: GroupPlan, seconds: float) -> int:
        """A new lease; what was given in the last one is free again."""
        return event_loop.run(self._begin(plan, seconds))

    def stop(self) -> None:
        event_loop.run(self._stop())

    async def _begin(self, plan: GroupPlan, seconds: float) -> int:
        self._lease += 1
        self._groups = plan.groups
        self._given = {}
        self._began = time.monotonic()
        self._ends = self._began + seconds
        return self._lease

    async def _stop(self) -> None:
        self._stopped = True
        await self._server.stop()

    def _answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        worker = str(question.get("worker", ""))
        if question.get("do") == "beat":
            self._holders[whole_number(question, "group")] = worker
            return {"stop": self._stopped or question.get("job") != self.job}
        if question.get("do") != "lease":
            raise UserError(f"unknown question {question.get('do')!r}")
        if whole_number(question, "lease") != self._lease:
            raise UserError("that lease is over")
        playing = whole_number(question, "playing") if question.get("playing") is not None else None
        group = self._give(whole_number(question, "seat"), worker, playing)
        # A task that is tried again gets what is left of the lease: the others wait for it.
        return {"group": group, "left": max(1.0, self._ends - time.monotonic())}

    def _give(self, seat: int, worker: str, playing: int | None) -> int | None:
        """The group for a seat: the one its worker plays, else one that nobody plays; None: ask again in a moment.

        A seat keeps its group through the lease: the first worker may have died, and another tries again.
        """
        if seat in self._given:
            return self._given[seat]
        free = [group for group in range(self._groups) if group not in self._given.values()]
        if playing in free:
            chosen: int | None = playing
        else:
            unheld = [group for group in free if self._holders.get(group, worker) == worker]
            waited = time.monotonic() - self._began > SETTLE_SECONDS
            chosen = unheld[0] if unheld else free[0] if free and waited else None
        if chosen is not None:
            self._given[seat] = chosen
            self._holders[chosen] = worker
        return chosen


class Hosted:
    """The player that this worker process runs between and during leases."""

    def __init__(self, task: GroupTask) -> None:
        self.task = task
        self.player = GroupPlayer(task)
        self.deadline = time.monotonic() + GRACE_SECONDS
        self.running: Future[Ended] = event_loop.submit(self._run())

    def end(self) -> None:
        """Drain, and wait for it. What does not end in time is fenced by the next one."""
        self.deadline = 0.0
        with contextlib.suppress(TimeoutError, LogPlayerError):
            self.running.result(self.task.config.drain_ms_max / 1000 + 5)

    async def _run(self) -> Ended:
        playing = asyncio.ensure_future(self.player.run())
        while not playing.done():
            await asyncio.wait({playing}, timeout=0.2)
            if time.monotonic() > self.deadline:
                self.player.stop()  # Nobody renewed the lease.
        return playing.result()


_hosted: Hosted | None = None


def hold_lease(partition: LeasePartition) -> Iterator[pa.RecordBatch]:
    """In a task: keep the group's player for the length of the lease, and return its targets' indexes."""
    group, left = _ask_for_group(partition)
    hosted = _host(replace(partition.task, number=group))
    end = time.monotonic() + left
    hosted.deadline = end + GRACE_SECONDS
    while True:
        rest = end - time.monotonic()
        try:
            hosted.running.result(max(0.0, min(RECEIPT_SECONDS, rest)))
            return  # It ended: stopped, or a newer player has taken over. The next lease looks again.
        except TimeoutError:
            pass
        status = hosted.player.status()
        if status is not None:
            yield receipts(status)
        if rest <= 0:
            return


def _host(task: GroupTask) -> Hosted:
    global _hosted
    if _hosted is not None and not _hosted.running.done():
        if _hosted.task == task:
            return _hosted
        _hosted.end()  # Another group, other targets, or a query that is gone.
    _hosted = Hosted(task)
    return _hosted


def _ask_for_group(partition: LeasePartition) -> tuple[int, float]:
    """The group, and how many seconds are left of the lease."""
    task = partition.task
    playing = None
    if _hosted is not None and not _hosted.running.done() and _hosted.task.job == task.job:
        playing = _hosted.task.number
    question = {
        "lease": partition.lease,
        "seat": task.number,
        "worker": worker_name(),
        "playing": playing,
    }
    while True:
        try:
            answer = event_loop.run(ask(task.driver, "/lease", question, task.heartbeat_security))
        except Unavailable as error:
            raise Unavailable(
                f"this task cannot reach the query's driver at {task.driver} ({error}); on a cluster set option "
                "driverHost to the host under which executors reach the driver"
            ) from None
        if answer["group"] is not None:
            return int(answer["group"]), float(answer["left"])
        time.sleep(0.05)


def receipts(status: Mapping[str, Any]) -> pa.RecordBatch:
    """One row for each target of a player."""
    now = int(time.time() * 1e6)
    rows = [
        (
            status["group"],
            target["target"],
            target["state"],
            target["index"],
            target["lag_entries"],
            target["lag_seconds"],
            status["epoch"],
            target["error"],
            now,
        )
        for target in status["targets"]
    ]
    found: list[Any] = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    return pa.RecordBatch.from_arrays(columns(found, SCHEMA), schema=SCHEMA)

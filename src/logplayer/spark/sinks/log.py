"""DataFrames into the log, exactly once. See ``staging`` for how; the log's idempotent append does the rest.

A row is a transaction: ``payload`` (encoded), or ``key`` and ``value`` with ``op`` and ``target`` if they are there, or
``mutations``, an array of such structs. The driver appends, in the order of the partitions and their rows: a log has
one writer anyway, and so a replay that sorts its rows into other partitions does no harm.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from logplayer.errors import ConfigError, UserError
from logplayer.log.open import LogPlace
from logplayer.log.protocol import NewEntry
from logplayer.spark import event_loop
from logplayer.spark.one_line import one_line
from logplayer.spark.options import SparkOptions, require_log
from logplayer.spark.shipped import Shipped
from logplayer.spark.sinks.rows import PAYLOADS, check_columns, payload_batch
from logplayer.spark.sinks.staging import Intent, Staged, Staging

GROUP_COUNT = 500
GROUP_BYTES = 4 << 20
IN_FLIGHT = 4  # Groups on their way: the log keeps the order of calls that share a producer.


class LogStreamWriter(Shipped, DataSourceStreamArrowWriter):
    """``writeStream.format("logplayer").option("log", ADDRESS)``."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        require_log(options)
        check_columns(schema)
        self.options = options
        self.staging = Staging(options.staging)

    @one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.staging.write(partition_id(), map(payload_batch, iterator), PAYLOADS)

    @one_line
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        intent = self.staging.intend(batchId, messages, first_log_state(self.options))
        append_intent(require_log(self.options), self.staging, intent)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.staging.discard(messages)


class LogBatchWriter(Shipped, DataSourceArrowWriter):
    """``write.format("logplayer").mode("append")``: all rows of a job that succeeds, once.

    A job that fails appends nothing, unless the driver dies while it appends: then a part is in, and running the job
    again appends all of it once more. Use a stream with ``availableNow`` where that matters.
    """

    def __init__(self, options: SparkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise UserError('a log is only appended to: use mode("append")')
        if options.to != "log":
            raise ConfigError('a batch write goes into the log; for targets use lp.spark.once(..., to="targets")')
        require_log(options)
        check_columns(schema)
        self.options = options
        self.producer = f"{options.producer}-{uuid.uuid4().hex[:12]}"
        self.staging = Staging(options.staging)

    @one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.staging.write(partition_id(), map(payload_batch, iterator), PAYLOADS)

    @one_line
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = sorted((m for m in messages if isinstance(m, Staged)), key=lambda m: m.partition)
        state = {"producer": self.producer, "sequence": 0}
        files = tuple(file for m in staged for file in m.files)
        intent = Intent(0, files, sum(m.rows for m in staged), state)
        append_all(require_log(self.options), self.staging, intent)
        self.staging.discard(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.staging.discard(messages)


def first_log_state(options: SparkOptions) -> dict[str, Any]:
    """The producer is this staging directory's own: sequences that start again with a new checkpoint must not be taken
    for those of the old one."""
    return {"producer": f"{options.producer}-{uuid.uuid4().hex[:12]}", "sequence": 0}


def append_intent(log: LogPlace, staging: Staging, intent: Intent) -> None:
    """Carry the intent out; doing so again changes nothing, whether the last time got through or not."""
    append_all(log, staging, intent)
    staging.finish(intent, {**intent.state, "sequence": intent.state["sequence"] + intent.rows})


def append_all(place: LogPlace, staging: Staging, intent: Intent) -> None:
    """Append every row; (producer, sequence) follows from the intent alone."""
    if not intent.rows:
        return
    with event_loop.opened(place, readonly=False) as log:
        waiting: deque[Future[Any]] = deque()
        try:
            for group in _groups(staging, intent):
                waiting.append(event_loop.submit(log.append(group)))
                if len(waiting) >= IN_FLIGHT:
                    waiting.popleft().result()
            while waiting:
                waiting.popleft().result()
        finally:
            for rest in waiting:
                rest.cancel()


def _groups(staging: Staging, intent: Intent) -> Iterator[list[NewEntry]]:
    producer, sequence = intent.state["producer"], intent.state["sequence"]
    group: list[NewEntry] = []
    size = 0
    for batch in staging.rows(intent):
        for payload in batch.column(0).to_pylist():
            sequence += 1
            if group and (len(group) >= GROUP_COUNT or size + len(payload) > GROUP_BYTES):
                yield group
                group, size = [], 0
            group.append(NewEntry(producer, sequence, payload))
            size += len(payload)
    if group:
        yield group


def partition_id() -> int:
    """Which partition of the batch this task writes."""
    context = TaskContext.get()
    return context.partitionId() if context else 0

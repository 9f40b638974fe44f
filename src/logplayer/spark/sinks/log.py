"""DataFrames into the log, exactly once. See ``staging`` for how; the log's idempotent append does the rest.

A row is a transaction: ``payload`` (encoded), or ``key`` and ``value`` with ``op`` and ``target`` if they are there, or
``mutations``, an array of such structs. The driver appends, in the order of the partitions and their rows: a log has
one writer anyway, and so a replay that sorts its rows into other partitions does no harm.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, StructType

from logplayer.errors import ConfigError, UserError
from logplayer.log.open import LogPlace
from logplayer.log.protocol import ENTRY_BYTES_MAX, NewEntry
from logplayer.spark import event_loop
from logplayer.spark.arrow import column
from logplayer.spark.sinks.staging import Intent, Staged, Staging
from logplayer.spark.source.options import SparkOptions, require_log
from logplayer.wire.entries import encode_mutation

GROUP_COUNT = 500
GROUP_BYTES = 4 << 20
PAYLOADS = pa.schema([("payload", pa.binary())])


class LogStreamWriter(DataSourceStreamArrowWriter):
    """``writeStream.format("logplayer").option("log", ADDRESS)``."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        require_log(options)
        check_columns(schema)
        self.options = options
        self.staging = Staging(options.staging)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.staging.write(partition_id(), map(payload_batch, iterator), PAYLOADS)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # The producer is this staging directory's own: sequences that start again with a new checkpoint must not be
        # taken for those of the old one.
        first_state = {"producer": f"{self.options.producer}-{uuid.uuid4().hex[:12]}", "sequence": 0}
        intent = self.staging.intend(batchId, messages, first_state)
        append_intent(require_log(self.options), self.staging, intent)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.staging.discard(messages)


class LogBatchWriter(DataSourceArrowWriter):
    """``write.format("logplayer").mode("append")``: all rows of a job that succeeds, once.

    A job that fails appends nothing, unless the driver dies while it appends: then a part is in, and running the job
    again appends all of it once more. Use a stream with ``availableNow`` where that matters.
    """

    def __init__(self, options: SparkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise UserError('a log is only appended to: use mode("append")')
        require_log(options)
        check_columns(schema)
        self.options = options
        self.producer = f"{options.producer}-{uuid.uuid4().hex[:12]}"
        self.staging = Staging(options.staging)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.staging.write(partition_id(), map(payload_batch, iterator), PAYLOADS)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = sorted((m for m in messages if isinstance(m, Staged)), key=lambda m: m.partition)
        state = {"producer": self.producer, "sequence": 0}
        intent = Intent(0, tuple(m.file for m in staged), sum(m.rows for m in staged), state)
        append_all(require_log(self.options), self.staging, intent)
        self.staging.discard(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.staging.discard(messages)


def append_intent(log: LogPlace, staging: Staging, intent: Intent) -> None:
    """Carry the intent out; doing so again changes nothing, whether the last time got through or not."""
    append_all(log, staging, intent)
    staging.finish(intent, {**intent.state, "sequence": intent.state["sequence"] + intent.rows})


def append_all(place: LogPlace, staging: Staging, intent: Intent) -> None:
    """Append every row; (producer, sequence) follows from the intent alone."""
    if not intent.rows:
        return
    with event_loop.opened(place, readonly=False) as log:
        for group in _groups(staging, intent):
            event_loop.run(log.append(group))


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


def check_columns(schema: StructType) -> None:
    """Refuse a DataFrame that holds no transactions, before anything is written."""
    names = set(schema.fieldNames())
    if "payload" in names or {"key", "value"} <= names:
        return
    if "mutations" in names and isinstance(schema["mutations"].dataType, ArrayType):
        return
    raise ConfigError(
        f"rows with the columns {', '.join(schema.fieldNames())} are not transactions: give payload, or key and value "
        "(and op, target), or mutations (an array of such structs)"
    )


def payload_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One encoded transaction for each row."""
    payloads = [encode_row(row) for row in batch.to_pylist()]
    return pa.RecordBatch.from_arrays([column(payloads, pa.binary())], schema=PAYLOADS)


def encode_row(row: dict[str, Any]) -> bytes:
    """The row as an encoded transaction."""
    if row.get("payload") is not None:
        payload = bytes(row["payload"])
    else:
        changes: Sequence[dict[str, Any]] = row["mutations"] if row.get("mutations") is not None else [row]
        payload = b"".join(_mutation(change) for change in changes)
    if len(payload) > ENTRY_BYTES_MAX:
        raise UserError(f"a row of {len(payload)} bytes is over the log's limit of {ENTRY_BYTES_MAX} for one entry")
    return payload


def _mutation(change: dict[str, Any]) -> bytes:
    key, value = _bytes(change.get("key")), change.get("value")
    op = change.get("op") or ("delete" if value is None else "put")
    if key is None or op not in ("put", "delete"):
        raise UserError(f"a row with key {change.get('key')!r} and op {op!r} is not a mutation; op is put or delete")
    return encode_mutation(key, None if op == "delete" else _bytes(value) or b"", change.get("target") or "").encoded


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else None if value is None else bytes(value)

"""A streaming DataFrame into targets, in order and exactly once, by the player's own protocol.

Rows have ``target``, ``log_index`` and either ``payload`` or ``key``, ``value`` and ``op``. Rows of one target with one
index are one entry. Indexes rise from batch to batch, as they do in a stream that was read from the log; a row that is
late is refused, because the target is already past it. The driver delivers: one session per target and batch.

Without ``option("log", ...)`` the query is a log of its own: no player of another log can write to these targets. With
it, the query takes over as a player of that log, and a player that takes over later fences the query.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from logplayer.core.entry import Message, Takeover
from logplayer.errors import ConfigError, UserError
from logplayer.log import control_chain as chain
from logplayer.spark import event_loop
from logplayer.spark.arrow import column
from logplayer.spark.sinks.deliver import Destination, play
from logplayer.spark.sinks.log import check_columns, encode_row, partition_id
from logplayer.spark.sinks.staging import Intent, Staging
from logplayer.spark.source.options import SparkOptions, require_log

ROWS = pa.schema([("target", pa.string()), ("log_index", pa.int64()), ("payload", pa.binary())])
SESSIONS_MAX = 16


class TargetWriter(DataSourceStreamArrowWriter):
    """``writeStream.format("logplayer").option("to", "targets").option("addresses", "a=grpc://...")``."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        if not options.addresses:
            raise ConfigError('delivering needs option("addresses", "NAME=grpc://HOST:PORT,...")')
        if not {"target", "log_index"} <= set(schema.fieldNames()):
            raise ConfigError(f"rows need target and log_index; these have {', '.join(schema.fieldNames())}")
        check_columns(schema)
        self.options = options
        self.staging = Staging(options.staging)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.staging.write(partition_id(), map(_encode, iterator), ROWS)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        intent = self.staging.intend(batchId, messages, self._first_state(messages, batchId))
        entries, highest = _entries(self.staging, intent, [name for name, _ in self.options.addresses])
        with ThreadPoolExecutor(SESSIONS_MAX) as threads:
            work = [
                threads.submit(_deliver, self._where(name, address, intent), entries.get(name, []), highest)
                for name, address in self.options.addresses
            ]
            for done in work:
                done.result()
        self.staging.finish(intent, {**intent.state, "high": highest})

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.staging.discard(messages)

    def _where(self, name: str, address: str, intent: Intent) -> Destination:
        return Destination(name, address, intent.state["log_id"], intent.state["epoch"], self.options.security)

    def _first_state(self, messages: list[Any], batch: int) -> dict[str, Any]:
        if self.staging.started():
            return {}
        if not self.options.log:
            return {"log_id": f"spark-{uuid.uuid4().hex[:12]}", "epoch": 1, "high": 0}
        with event_loop.opened(require_log(self.options), readonly=False) as log:
            log_id = event_loop.run(log.info()).log_id
            record = Takeover(self.options.producer, f"spark-{uuid.uuid4().hex[:12]}")
            epoch, _ = event_loop.run(chain.append(log, record, self.options.first_map))
        return {"log_id": log_id, "epoch": epoch, "high": 0}


def _encode(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = batch.to_pylist()
    for row in rows:
        if row["target"] is None or row["log_index"] is None:
            raise UserError(f"a row has no target or no log_index: {row}; filter such rows out before the sink")
    plain = [{key: value for key, value in row.items() if key != "target"} for row in rows]
    columns = [
        column([row["target"] for row in rows], pa.string()),
        column([row["log_index"] for row in rows], pa.int64()),
        column([encode_row(row) for row in plain], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS)


def _entries(staging: Staging, intent: Intent, known: list[str]) -> tuple[dict[str, list[Message]], int]:
    """The entries of each target in order of their index, and the highest index of the batch."""
    high = intent.state["high"]
    rows = [row for batch in staging.rows(intent) for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
    rows.sort(key=lambda row: row[1])  # Stable: what one entry holds stays in its order.
    entries: dict[str, list[Message]] = {}
    for target, index, payload in rows:
        if index <= high:
            raise UserError(
                f"a row for target {target} has log_index {index}, but everything up to {high} was delivered by an "
                "earlier batch: the rows of a later batch must have higher indexes"
            )
        if target not in known:
            raise UserError(f"a row is for target {target!r}, which has no address; addresses has {', '.join(known)}")
        held = entries.setdefault(target, [])
        if held and held[-1].index == index:
            held[-1] = Message(index, held[-1].payload + payload)
        else:
            held.append(Message(index, payload))
    return entries, rows[-1][1] if rows else high


def _deliver(where: Destination, entries: list[Message], highest: int) -> None:
    if highest:
        play(where, lambda index: entries, highest)

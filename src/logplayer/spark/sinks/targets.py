"""A streaming DataFrame into targets, in order and exactly once, by the player's own protocol.

Rows have ``target``, ``log_index`` and either ``payload`` or ``key``, ``value`` and ``op``. Rows of one target with one
index are one entry. Indexes rise from batch to batch, as they do in a stream that was read from the log; a row that is
late is refused, because the target is already past it. Tasks stage the rows of each target in order (``parts``), one
intent decides (``staging``), and then each target gets its part: from ``commit`` in one process, or, with ``once``,
from tasks. docs/decisions/delivery-from-tasks.md tells why.

Without ``option("log", ...)`` the query is a log of its own: no player of another log can write to these targets. With
it, the query takes over as a player of that log, and a player that takes over later fences the query.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from logplayer.core.entry import Takeover
from logplayer.errors import ConfigError, LogPlayerError
from logplayer.log import control_chain as chain
from logplayer.spark import event_loop
from logplayer.spark.folders import Folder
from logplayer.spark.one_line import one_line
from logplayer.spark.shipped import Shipped
from logplayer.spark.sinks.deliver import Destination, play
from logplayer.spark.sinks.log import partition_id
from logplayer.spark.sinks.parts import Part, messages_of, require_deliverable, stage_parts
from logplayer.spark.sinks.rows import check_columns
from logplayer.spark.sinks.staging import Intent, Staging
from logplayer.spark.source.options import SparkOptions, require_log

SESSIONS_MAX = 16


class TargetWriter(Shipped, DataSourceStreamArrowWriter):
    """``writeStream.format("logplayer").option("to", "targets").option("addresses", "a=grpc://...")``."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        check_target_rows(options, schema)
        self.options = options
        self.staging = Staging(options.staging)

    @one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return stage_parts(self.staging.folder, partition_id(), iterator)

    @one_line
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        intent = self.staging.intend(batchId, messages, first_target_state(self.options, self.staging))
        highest = highest_of(self.options, self.staging, intent)
        deliver_to(destinations(self.options, intent), self.staging.folder, intent.parts, highest)
        self.staging.finish(intent, {**intent.state, "high": highest})

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.staging.discard(messages)


def check_target_rows(options: SparkOptions, schema: StructType) -> None:
    """Refuse what cannot be delivered, before anything is written."""
    if not options.addresses:
        raise ConfigError('delivering needs option("addresses", "NAME=grpc://HOST:PORT,...")')
    if not {"target", "log_index"} <= set(schema.fieldNames()):
        raise ConfigError(f"rows need target and log_index; these have {', '.join(schema.fieldNames())}")
    check_columns(schema)


def first_target_state(options: SparkOptions, staging: Staging) -> dict[str, Any]:
    """The identity that the query has for its targets, decided once."""
    if staging.started():
        return {}
    if not options.log:
        return {"log_id": f"spark-{uuid.uuid4().hex[:12]}", "epoch": 1, "high": 0}
    with event_loop.opened(require_log(options), readonly=False) as log:
        log_id = event_loop.run(log.info()).log_id
        record = Takeover(options.producer, f"spark-{uuid.uuid4().hex[:12]}")
        epoch, _ = event_loop.run(chain.append(log, record, options.first_map))
    return {"log_id": log_id, "epoch": epoch, "high": 0}


def highest_of(options: SparkOptions, staging: Staging, intent: Intent) -> int:
    """The batch's highest index, if all of it can be delivered."""
    if intent.files and not intent.parts:
        raise LogPlayerError(
            f"batch {intent.batch} in {staging.folder} was staged by an earlier version: finish it with that version"
        )
    return require_deliverable(intent.parts, intent.state["high"], [name for name, _ in options.addresses])


def destinations(options: SparkOptions, intent: Intent) -> list[Destination]:
    """All targets, those too that have no rows in this batch: they learn how far it goes."""
    log_id, epoch = intent.state["log_id"], intent.state["epoch"]
    return [Destination(name, address, log_id, epoch, options.security) for name, address in options.addresses]


def deliver_to(where: Sequence[Destination], folder: Folder, parts: Sequence[Part], highest: int) -> None:
    """Deliver a decided batch to some targets, side by side; doing so again changes nothing."""
    if not highest:
        return
    with ThreadPoolExecutor(min(SESSIONS_MAX, max(1, len(where)))) as threads:
        work = [threads.submit(_deliver, target, folder, parts, highest) for target in where]
        for done in work:
            done.result()


def _deliver(where: Destination, folder: Folder, parts: Sequence[Part], highest: int) -> None:
    play(where, lambda index: messages_of(folder, where.target, parts), highest)

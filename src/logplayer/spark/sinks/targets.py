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

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from logplayer.errors import ConfigError, LogPlayerError
from logplayer.spark.one_line import one_line
from logplayer.spark.options import SparkOptions
from logplayer.spark.shipped import Shipped
from logplayer.spark.sinks.log import partition_id
from logplayer.spark.sinks.parts import require_deliverable, stage_parts
from logplayer.spark.sinks.rows import check_columns
from logplayer.spark.sinks.staging import Intent, Staging


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
        # Only here: the process that plans the write and the tasks that stage rows reach no target.
        from logplayer.spark.sinks.delivery import deliver_to, destinations, first_target_state

        check = partial(highest_of, self.options, self.staging)
        intent = self.staging.intend(batchId, messages, first_target_state(self.options, self.staging), check)
        highest = highest_of(self.options, self.staging, intent)
        deliver_to(destinations(self.options, intent), self.staging.folder, intent.parts, highest)
        self.staging.finish(intent, {**intent.state, "high": highest})

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.staging.discard(messages)


def check_target_rows(options: SparkOptions, schema: StructType) -> None:
    """Refuse what cannot be delivered, before anything is written."""
    if not options.config.targets:
        raise ConfigError('delivering needs option("addresses", "NAME=grpc://HOST:PORT,...")')
    if not {"target", "log_index"} <= set(schema.fieldNames()):
        raise ConfigError(f"rows need target and log_index; these have {', '.join(schema.fieldNames())}")
    check_columns(schema)


def highest_of(options: SparkOptions, staging: Staging, intent: Intent) -> int:
    """The batch's highest index, if all of it can be delivered."""
    if intent.files and not intent.parts:
        raise LogPlayerError(
            f"batch {intent.batch} in {staging.folder} was staged by an earlier version: finish it with that version"
        )
    return require_deliverable(intent.parts, intent.state["high"], list(options.config.targets))

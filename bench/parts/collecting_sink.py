"""The sink for targets as it was before it had parts: ``sink_bench`` compares with it if no older checkout is named."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from logplayer.core.entry import Delivery
from logplayer.spark.arrow import column
from logplayer.spark.format import LogPlayerSource
from logplayer.spark.one_line import one_line
from logplayer.spark.sinks.deliver import Destination, play
from logplayer.spark.sinks.delivery import first_target_state
from logplayer.spark.sinks.log import partition_id
from logplayer.spark.sinks.rows import encode_row
from logplayer.spark.sinks.targets import TargetWriter

ROWS = pa.schema([("target", pa.string()), ("log_index", pa.int64()), ("payload", pa.binary())])


class CollectingWriter(TargetWriter):
    """The sink as it was: rows as dictionaries in the tasks, all rows as tuples in ``commit``."""

    @one_line
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self.staging.write(partition_id(), map(self._encoded, iterator), ROWS)

    @staticmethod
    def _encoded(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.to_pylist()
        plain = [{key: value for key, value in row.items() if key != "target"} for row in rows]
        columns = [
            column([row["target"] for row in rows], pa.string()),
            column([row["log_index"] for row in rows], pa.int64()),
            column([encode_row(row) for row in plain], pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ROWS)

    @one_line
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        intent = self.staging.intend(batchId, messages, first_target_state(self.options, self.staging))
        rows = [
            row
            for batch in self.staging.rows(intent)
            for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
        ]
        rows.sort(key=lambda row: row[1])
        entries: dict[str, list[Delivery]] = {}
        for target, index, payload in rows:
            entries.setdefault(target, []).append(Delivery(index, payload))
        highest = rows[-1][1]
        state = intent.state
        with ThreadPoolExecutor(16) as threads:
            work = [
                threads.submit(
                    play,
                    Destination(name, address, state["log_id"], state["epoch"]),
                    partial(_held, entries.get(name, [])),
                    highest,
                )
                for name, address in self.options.config.targets.items()
            ]
            for done in work:
                done.result()
        self.staging.finish(intent, {**state, "high": highest})


def _held(entries: list[Delivery], _: int) -> list[Delivery]:
    return entries


class CollectingSource(LogPlayerSource):
    @classmethod
    def name(cls) -> str:
        return "logplayer_collecting"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return CollectingWriter(self._options, schema)

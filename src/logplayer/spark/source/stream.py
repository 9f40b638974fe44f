"""The log as a stream: offsets are log indexes, so a micro-batch is a range of the log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from logplayer.errors import Trimmed
from logplayer.log.open import open_log
from logplayer.log.protocol import Info, Log
from logplayer.spark import event_loop
from logplayer.spark.jobs.routes import Routes, load_routes
from logplayer.spark.source.options import SparkOptions, require_log
from logplayer.spark.source.plan import plan
from logplayer.spark.source.table import LogPartition, open_archive_of, read_partition

LOOK_SECONDS = 0.005


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset ``{"log_index": n}`` means that everything up to and including n was read."""

    def __init__(self, options: SparkOptions) -> None:
        self.options = options
        self._log: Log | None = None
        self._cap: int | None = None  # availableNow: entries after this one are for the next run.
        self._routes = (0, Routes())  # (the newest control record that is in, decisions)

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_log": None, "_cap": None, "_routes": (0, Routes())}

    def initialOffset(self) -> dict[str, int]:
        info = self._info()
        if self.options.starting == "latest":
            return {"log_index": info.last}
        if self.options.starting != "earliest":
            return {"log_index": max(0, int(self.options.starting) - 1)}
        kept = open_archive_of(self.options, info.log_id)
        reaches = kept is not None and kept.through >= info.first - 1
        return {"log_index": (kept.begin if kept and reaches else info.first) - 1}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.entries_max) if self.options.entries_max else ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Waits a little for news: cheaper, and sooner there, than the engine's own next look."""
        at = int(start["log_index"])
        last = self._wait_for_news(at)
        if isinstance(limit, ReadMaxRows):
            last = min(last, at + limit.max_rows)
        return {"log_index": max(at, last)}

    def reportLatestOffset(self) -> dict[str, int]:
        return {"log_index": self._info().last}

    def prepareForTriggerAvailableNow(self) -> None:
        self._cap = self._info().last

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = int(start["log_index"]) + 1, int(end["log_index"])
        if first > last:
            return []
        info = self._info()
        kept = open_archive_of(self.options, info.log_id)
        try:
            pieces = plan(info, first, last, kept, self.options.task_bytes, self.options.tasks)
        except Trimmed as gone:
            if self.options.fail_on_data_loss:
                raise
            if gone.first > last:
                return []
            pieces = plan(info, gone.first, last, kept, self.options.task_bytes, self.options.tasks)
        routes = self._decisions(info)
        targets = self.options.targets or None
        return [LogPartition(piece, routes, targets) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self.options, partition)

    def stop(self) -> None:
        if self._log is not None:
            event_loop.run(self._log.close())
            self._log = None

    def _opened(self) -> Log:
        if self._log is None:
            self._log = event_loop.run(open_log(*require_log(self.options), readonly=True))
        return self._log

    def _info(self) -> Info:
        return event_loop.run(self._opened().info())

    def _wait_for_news(self, at: int) -> int:
        deadline = time.monotonic() + self.options.poll_ms / 1000
        while True:
            last = self._info().last
            if self._cap is not None:
                return min(last, self._cap)
            if last > at or time.monotonic() >= deadline:
                return last
            time.sleep(LOOK_SECONDS)

    def _decisions(self, info: Info) -> Routes:
        if self._routes[0] != info.control or not info.control:
            self._routes = (info.control, event_loop.run(load_routes(self._opened(), self.options.first_map)))
        return self._routes[1]

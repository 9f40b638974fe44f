"""The log as a stream: offsets are places in the log (``place``), so a micro-batch is a range of the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logplayer.errors import LogDiverged, Trimmed
from logplayer.log.open import open_log
from logplayer.log.protocol import Info, Log, Record
from logplayer.spark import event_loop
from logplayer.spark.one_line import one_line, one_line_items
from logplayer.spark.options import SparkOptions, require_log
from logplayer.spark.routes import Routes, load_routes
from logplayer.spark.shipped import Shipped
from logplayer.spark.source.place import LOOK_SECONDS, ReadUpTo, difference, place_at
from logplayer.spark.source.plan import mean_entry_bytes, plan, readable
from logplayer.spark.source.table import LogPartition, open_archive_of, read_partition
from logplayer.spark.source.times import first_since

logger = logging.getLogger(__name__)


class LogStreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset ``{"log_index": n, "log_id": ..., "chain": ...}``: everything up to n was read, of this history."""

    def __init__(self, options: SparkOptions) -> None:
        self.options = options
        self._log: Log | None = None
        self._cap: int | None = None  # availableNow: entries after this one are for the next run.
        self._routes = (0, Routes())  # (the newest control record that is in, decisions)
        self._since: float | None = None  # When entries were first seen that wait for minEntriesPerTrigger.

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}  # All that a task needs.

    @one_line
    def initialOffset(self) -> dict[str, Any]:
        info = self._info()
        index = self._first(info) - 1
        return (ReadUpTo(index, info.log_id, ahead=True) if index > info.last else self.place(index)).offset

    def _first(self, info: Info) -> int:
        """The first index that a new query reads."""
        if self.options.starting_at_us is not None:
            kept = open_archive_of(self.options, info.log_id)
            return first_since(self._opened(), info, kept, self.options.starting_at_us)
        if self.options.starting == "latest":
            return info.last + 1
        if self.options.starting != "earliest":
            return max(1, int(self.options.starting))
        kept = open_archive_of(self.options, info.log_id)
        reaches = kept is not None and kept.through >= info.first - 1
        return kept.begin if kept and reaches else info.first

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.entries_max:
            return ReadMaxRows(self.options.entries_max)
        return ReadMaxBytes(self.options.bytes_max) if self.options.bytes_max else ReadAllAvailable()

    @one_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Waits a little for news: cheaper, and sooner there, than the engine's own next look."""
        place = ReadUpTo.of(start)
        last = self._wait_for_news(place.index)
        most = self.entries_within(limit, place.index)
        end = max(place.index, last if most is None else min(last, place.index + most))
        found = start if end == place.index else self.place(end).offset
        agreed = self.agreed(place)  # Asked last: a log that is replaced now has not got what the end names.
        if agreed != place:
            return agreed.offset  # In a batch without entries; the next one goes on from there.
        return start if self.keep_waiting(last - place.index) else found

    def place(self, index: int) -> ReadUpTo:
        """The place at an index as the log has it now."""
        return event_loop.run(place_at(self._opened(), index))

    def agreed(self, place: ReadUpTo) -> ReadUpTo:
        """The place, if the log has what was read up to there; else where a query goes on that may lose entries."""
        why, info = event_loop.run(difference(self._opened(), place))
        if not why:
            return place
        where, here = self.options.config.log, min(place.index, info.last)
        what = f"the log at {where} was restored or replaced: {why}"
        if not self.options.fail_on_data_loss:
            logger.warning(
                "%s. failOnDataLoss is false: the stream goes on after %d; what this log has up to there is not read",
                what,
                here,
            )
            return self.place(here)
        raise LogDiverged(
            f"{what}. Bring back the log that was read; or give the query a new checkpoint; or set failOnDataLoss to "
            f"false: then it goes on after {here}",
            place.index,
        )

    def keep_waiting(self, count: int) -> bool:
        """Whether ``count`` entries are too few for a batch, and have not waited for too long."""
        if self._cap is not None or count <= 0 or count >= self.options.entries_min:
            self._since = None
            return False
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if (now - self._since) * 1000 < self.options.delay_ms_max:
            return True
        self._since = None
        return False

    def entries_within(self, limit: ReadLimit, at: int) -> int | None:
        """How many entries a batch after ``at`` may have, None for any number; bytes are those of the next entries."""
        if isinstance(limit, ReadAllAvailable):
            return None  # The trigger says so, whatever the options say.
        bounds = [self.options.entries_max] if self.options.entries_max else []
        if self.options.bytes_max:
            bounds.append(max(1, self.options.bytes_max // self._entry_bytes(at)))
        return min(bounds, default=None)

    def _entry_bytes(self, at: int) -> int:
        """What the next entries take on average: those of one short read."""
        info = self._info()
        if not info.first <= at + 1 <= info.last:
            return mean_entry_bytes(info)

        async def next_records(log: Log) -> list[Record]:
            async for records in log.read(at + 1, info.last):
                return list(records)
            return []

        sizes = [len(record.payload) for record in event_loop.run(next_records(self._opened()))]
        return max(1, sum(sizes) // max(1, len(sizes)))

    def reportLatestOffset(self) -> dict[str, int]:
        return {"log_index": self._info().last}

    @one_line
    def prepareForTriggerAvailableNow(self) -> None:
        self._cap = self._info().last

    @one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = ReadUpTo.of(start).index + 1, ReadUpTo.of(end).index
        if first <= last:
            last = self.agreed(ReadUpTo.of(end)).index  # A batch that runs again may find another log.
        if first > last:
            return []
        info = self._info()
        kept = open_archive_of(self.options, info.log_id)
        try:
            pieces = plan(info, first, last, kept, self.options.task_bytes, self.options.tasks)
        except Trimmed as gone:
            if self.options.fail_on_data_loss:
                raise
            logger.warning(
                "%s. failOnDataLoss is false: the stream leaves out what is gone of %d to %d", gone, first, last
            )
            pieces = [
                piece
                for low, high in readable(info, first, last, kept)
                for piece in plan(info, low, high, kept, self.options.task_bytes, self.options.tasks)
            ]
        routes = self._decisions(info)
        targets = self.options.targets or None
        return [LogPartition(piece, routes, targets) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return one_line_items(read_partition(self.options, partition))

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

    def newest(self) -> int:
        """The last entry that a batch may have now."""
        last = self._info().last
        return last if self._cap is None else min(last, self._cap)

    def _wait_for_news(self, at: int) -> int:
        deadline = time.monotonic() + self.options.poll_ms / 1000
        while True:
            last = self.newest()
            if self._cap is not None or last > at or time.monotonic() >= deadline:
                return last
            time.sleep(LOOK_SECONDS)

    def _decisions(self, info: Info) -> Routes:
        if self._routes[0] != info.control or not info.control:
            self._routes = (info.control, event_loop.run(load_routes(self._opened(), self.options.config.map)))
        return self._routes[1]

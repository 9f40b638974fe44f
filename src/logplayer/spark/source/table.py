"""The log as a table, and what one task reads of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from logplayer.log.protocol import Info, Log
from logplayer.spark import event_loop
from logplayer.spark.one_line import one_line, one_line_items
from logplayer.spark.options import SparkOptions, require_log
from logplayer.spark.routes import Routes, load_routes
from logplayer.spark.shipped import Shipped
from logplayer.spark.source import archive, batches
from logplayer.spark.source.plan import Piece, plan
from logplayer.spark.source.times import first_since


class LogPartition(InputPartition):
    """What one task reads, and all that it needs to know for it."""

    def __init__(self, piece: Piece, routes: Routes, targets: tuple[str, ...] | None) -> None:
        super().__init__(piece)
        self.piece = piece
        self.routes = routes
        self.targets = targets


def read_partition(options: SparkOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of one partition."""
    if not isinstance(partition, LogPartition):
        return  # Spark uses one empty partition in place of none.
    log = require_log(options)
    if options.raw:
        for raw in partition.piece.raw(log):
            yield batches.with_headers(raw) if options.headers else raw
        return
    for records in partition.piece.records(log):
        batch = batches.row_batch(records, partition.routes, partition.targets, options.headers)
        if batch.num_rows:
            yield batch


def open_archive_of(options: SparkOptions, log_id: str) -> archive.Archive | None:
    """The archive that the options name, if it is this log's."""
    return archive.open_archive(options.archive, log_id) if options.archive else None


def where(options: SparkOptions) -> tuple[Info, Routes]:
    """The log's indexes and what it has decided."""

    async def ask(log: Log) -> tuple[Info, Routes]:
        # In this order: maps are kept by position, so one that is newer than the info does no harm, and none is missed.
        info = await log.info()
        return info, await load_routes(log, options.config.map)

    with event_loop.opened(require_log(options)) as log:
        return event_loop.run(ask(log))


class PushedFilters:
    """Takes the place of a ``pushFilters`` method.

    Spark refuses a reader that overrides the method in a session whose configuration has pushdown switched off. This
    reader works in such a session too: Spark then filters by itself. So it must look as if nothing was overridden.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return [kept for kept in filters if not self._bounds.take(kept)]


class Bounds:
    """What the pushed filters leave of the log."""

    def __init__(self, targets: tuple[str, ...]) -> None:
        self.low = 1
        self.high: int | None = None
        self.targets: set[str] | None = set(targets) or None

    def take(self, pushed: Filter) -> bool:
        """Whether the filter is applied here in full; what is not, Spark applies."""
        attribute = getattr(pushed, "attribute", ())
        if isinstance(pushed, IsNotNull):
            return attribute == ("log_index",)
        value: Any = getattr(pushed, "value", None)
        if attribute == ("target",) and isinstance(pushed, (EqualTo, In)):
            wanted = {value} if isinstance(pushed, EqualTo) else set(value)
            self.targets = wanted if self.targets is None else self.targets & wanted
            return True
        return attribute == ("log_index",) and self._take_index(pushed, value)

    def _take_index(self, pushed: Filter, value: Any) -> bool:
        if isinstance(pushed, In):
            self._narrow(min(value, default=1), max(value, default=0))
            return False  # It narrows the range; which of its entries are wanted Spark knows.
        if isinstance(pushed, EqualTo):
            self._narrow(value, value)
        elif isinstance(pushed, GreaterThan):
            self._narrow(value + 1, None)
        elif isinstance(pushed, GreaterThanOrEqual):
            self._narrow(value, None)
        elif isinstance(pushed, LessThan):
            self._narrow(1, value - 1)
        elif isinstance(pushed, LessThanOrEqual):
            self._narrow(1, value)
        else:
            return False
        return True

    def _narrow(self, low: int, high: int | None) -> None:
        self.low = max(self.low, low)
        if high is not None:
            self.high = high if self.high is None else min(self.high, high)


class LogReader(Shipped, DataSourceReader):
    """The log as a table: what is in it when the query is planned."""

    def __init__(self, options: SparkOptions, bounds: Bounds | None = None) -> None:
        self.options = options
        self.bounds = bounds or Bounds(options.targets)
        self.pushFilters = PushedFilters(self.bounds)  # type: ignore[method-assign]

    @one_line
    def partitions(self) -> Sequence[InputPartition]:
        return self.pieces()

    def pieces(self) -> list[LogPartition]:
        """What each task reads."""
        options = self.options
        info, routes = where(options)
        kept = open_archive_of(options, info.log_id)
        first, last = self._range(info, kept)
        if first > last:
            return []
        pieces = plan(info, first, last, kept, options.task_bytes, options.tasks)
        targets = None if self.bounds.targets is None else tuple(sorted(self.bounds.targets))
        return [LogPartition(piece, routes, targets) for piece in pieces]

    def _range(self, info: Info, kept: archive.Archive | None) -> tuple[int, int]:
        """The first and the last index that the options and the filters leave."""
        options = self.options
        if options.starting == "latest":
            first = info.last + 1
        elif options.starting != "earliest":
            first = int(options.starting)
        else:
            first = min(info.first, kept.begin) if kept and kept.through >= info.first - 1 else info.first
        last = info.last if options.ending == "latest" else min(info.last, int(options.ending))
        if options.starting_at_us is not None or options.ending_at_us is not None:
            with event_loop.opened(require_log(options)) as log:
                if options.starting_at_us is not None:
                    first = first_since(log, info, kept, options.starting_at_us)
                if options.ending_at_us is not None:
                    last = first_since(log, info, kept, options.ending_at_us) - 1
        if self.bounds.high is not None:
            last = min(last, self.bounds.high)
        return max(first, self.bounds.low), last

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return one_line_items(read_partition(self.options, partition))

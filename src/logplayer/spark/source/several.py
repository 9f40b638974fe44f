"""Several logs in one query: ``option("logs", "eu=grpc://host:7100,us=grpc://host:7101")``.

A row says in its column ``log`` which one it is from. Each log keeps its own order and its own place in the offsets;
between two logs there is no order. A log that is added to a query starts where a new query would start; one that is
taken out fails the query unless ``failOnDataLoss`` is false, because what it got meanwhile would be left out unseen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from logplayer.errors import ConfigError
from logplayer.spark.arrow import column
from logplayer.spark.one_line import one_line, one_line_items
from logplayer.spark.options import SparkOptions
from logplayer.spark.shipped import Shipped
from logplayer.spark.source.place import LOOK_SECONDS, ReadUpTo
from logplayer.spark.source.stream import LogStreamReader
from logplayer.spark.source.table import Bounds, LogPartition, LogReader, PushedFilters, read_partition


class NamedPartition(InputPartition):
    """What one task reads of one of the logs."""

    def __init__(self, log: str, partition: LogPartition) -> None:
        super().__init__((log, partition.piece))
        self.log = log
        self.partition = partition


def options_by_log(options: SparkOptions) -> dict[str, SparkOptions]:
    """The options for each log by its name, as if it were the only one."""
    return {
        name: replace(options, config=replace(options.config, log=address), logs=()) for name, address in options.logs
    }


def read_named(options: SparkOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of one partition, with the name of their log."""
    if not isinstance(partition, NamedPartition):
        return  # Spark uses one empty partition in place of none.
    for batch in read_partition(options_by_log(options)[partition.log], partition.partition):
        names = column([partition.log] * batch.num_rows, pa.string())
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, names], schema=batch.schema.append(pa.field("log", pa.string()))
        )


class SeveralLogsReader(Shipped, DataSourceReader):
    """The logs as one table."""

    def __init__(self, options: SparkOptions) -> None:
        self.options = options
        self.bounds = Bounds(options.targets)
        self.pushFilters = PushedFilters(self.bounds)  # type: ignore[method-assign]

    @one_line
    def partitions(self) -> Sequence[InputPartition]:
        found: list[InputPartition] = []
        for name, options in options_by_log(self.options).items():
            found += [NamedPartition(name, part) for part in LogReader(options, self.bounds).pieces()]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return one_line_items(read_named(self.options, partition))


class SeveralLogsStream(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset has for each log by its name what the stream of this log alone would have."""

    def __init__(self, options: SparkOptions) -> None:
        self.options = options
        self._readers = {name: LogStreamReader(own) for name, own in options_by_log(options).items()}
        self._since: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}

    @one_line
    def initialOffset(self) -> dict[str, Any]:
        return {name: reader.initialOffset() for name, reader in self._readers.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        return next(iter(self._readers.values())).getDefaultReadLimit()

    @one_line
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._require_known(start)
        # A log that is new in this query is given its place here; what it has is for the next batch.
        added = {name: reader.initialOffset() for name, reader in self._readers.items() if name not in start}
        places = {name: ReadUpTo.of(start[name]) for name in self._readers if name in start}
        at = {name: place.index for name, place in places.items()}
        newest = self._wait_for_news(at)
        waiting = {name: max(0, newest[name] - at[name]) for name in at}
        shares = self._shares(at, waiting, limit)
        found = {name: self._readers[name].place(at[name] + share).offset for name, share in shares.items() if share}
        agreed = {name: self._readers[name].agreed(place) for name, place in places.items()}
        moved = {name: place.offset for name, place in agreed.items() if place != places[name]}
        if moved:
            return {**start, **moved, **added}
        if not added and self._keep_waiting(sum(waiting.values())):
            return start
        return {**start, **found, **added}

    def reportLatestOffset(self) -> dict[str, Any]:
        return {name: reader.reportLatestOffset() for name, reader in self._readers.items()}

    @one_line
    def prepareForTriggerAvailableNow(self) -> None:
        for reader in self._readers.values():
            reader.prepareForTriggerAvailableNow()

    @one_line
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        found: list[InputPartition] = []
        for name, last in end.items():
            reader = self._readers.get(name)
            if reader is not None:
                parts = reader.partitions(ReadUpTo.of(start.get(name, last)).offset, ReadUpTo.of(last).offset)
                found += [NamedPartition(name, part) for part in parts if isinstance(part, LogPartition)]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return one_line_items(read_named(self.options, partition))

    def stop(self) -> None:
        for reader in self._readers.values():
            reader.stop()

    def _require_known(self, start: dict[str, Any]) -> None:
        gone = sorted(set(start) - set(self._readers))
        if gone and self.options.fail_on_data_loss:
            raise ConfigError(
                f"this query has read {', '.join(gone)}, which option logs no longer names: what they got since then "
                "would be left out. Name them again, or set failOnDataLoss to false"
            )

    def _wait_for_news(self, at: dict[str, int]) -> dict[str, int]:
        deadline = time.monotonic() + self.options.poll_ms / 1000
        while True:
            newest = {name: self._readers[name].newest() for name in at}
            if any(newest[name] > at[name] for name in at) or time.monotonic() >= deadline:
                return newest
            time.sleep(LOOK_SECONDS)

    def _keep_waiting(self, waiting: int) -> bool:
        reader = next(iter(self._readers.values()))
        return reader.keep_waiting(waiting)

    def _shares(self, at: dict[str, int], waiting: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """How many entries of each log are in the batch: all, or equal shares; what one does not use others get."""
        most = {name: self._readers[name].entries_within(limit, at[name]) for name in waiting}
        if not most or not all(most.values()):
            return waiting  # The query may have no log yet that it has read from: all have other names now.
        left = min(count for count in most.values() if count is not None)
        shares: dict[str, int] = {}
        for nth, name in enumerate(sorted(waiting, key=lambda name: waiting[name])):
            shares[name] = min(waiting[name], max(1, left // (len(waiting) - nth)) if left else 0)
            left -= shares[name]
        return shares

"""``format("logplayer")``: the log as a table and as a stream, and DataFrames into the log or into targets.

Spark asks this class in several processes that it starts one after the other before the first row: one looks for
sources, one makes this one, one plans the write, one commits, and tasks read and write. Each imports this module, and
most need nothing of what does the work. So everything but the options is imported where it is used: Arrow, gRPC and the
rest take longer to load than Python takes to start, and the first batch would wait for them in every process.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from logplayer.errors import ConfigError
from logplayer.spark.one_line import one_line
from logplayer.spark.options import parse_options

ROWS = (
    "log_index LONG, producer STRING, sequence LONG, committed_at TIMESTAMP, "
    "target STRING, key BINARY, value BINARY, op STRING, table STRING, key_columns ARRAY<STRING>, columns STRING"
)
RAW = "log_index LONG, kind STRING, producer STRING, sequence LONG, committed_at TIMESTAMP, payload BINARY"
HEADERS = "headers ARRAY<STRUCT<name: STRING, value: BINARY>>"


class LogPlayerSource(DataSource):
    """Named ``logplayer``; docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        return "logplayer"

    @one_line
    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._options = parse_options(dict(options))

    def schema(self) -> str:
        if self._options.mode == "play":
            from logplayer.spark.resident.lease import RECEIPTS

            return RECEIPTS
        columns = RAW if self._options.raw else ROWS
        columns = f"{columns}, {HEADERS}" if self._options.headers else columns
        return f"{columns}, log STRING" if self._options.logs else columns

    @one_line
    def reader(self, schema: StructType) -> DataSourceReader:
        if self._options.mode == "play":
            raise ConfigError("mode=play delivers for ever: use readStream, or `logplayer play`")
        if self._options.logs:
            from logplayer.spark.source.several import SeveralLogsReader

            return SeveralLogsReader(self._options)
        from logplayer.spark.source.table import LogReader

        return LogReader(self._options)

    @one_line
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if self._options.mode == "play":
            from logplayer.spark.resident.lease import LeaseReader

            return LeaseReader(self._options)
        for name, given in (
            ("endingIndex", self._options.ending != "latest"),
            ("endingTimestamp", self._options.ending_at_us is not None),
        ):
            if given:
                raise ConfigError(f"a stream has no end: {name} is for spark.read. Leave it out, or use spark.read")
        if self._options.logs:
            from logplayer.spark.source.several import SeveralLogsStream

            return SeveralLogsStream(self._options)
        from logplayer.spark.source.stream import LogStreamReader

        return LogStreamReader(self._options)

    @one_line
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from logplayer.spark.sinks.log import LogBatchWriter

        return LogBatchWriter(self._options, schema, overwrite)

    @one_line
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if self._options.to == "targets":
            from logplayer.spark.sinks.targets import TargetWriter

            return TargetWriter(self._options, schema)
        from logplayer.spark.sinks.log import LogStreamWriter

        return LogStreamWriter(self._options, schema)

"""What users of Kafka's connector look for: each test is a row of the table in docs/spark.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import py4j
import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from logplayer.errors import ConfigError, Trimmed, UserError
from logplayer.spark import event_loop
from logplayer.spark.format import LogPlayerSource
from logplayer.spark.jobs.archive_job import archive_log
from logplayer.spark.options import parse_options
from logplayer.spark.shipped import ShippedFunction
from logplayer.spark.source.several import SeveralLogsStream
from logplayer.spark.source.stream import LogStreamReader
from logplayer.spark.source.table import LogReader
from logplayer.spark.source.times import search
from logplayer.wire.entries import encode_headers
from tests.spark.spark_support import FileWal, transaction
from tests.spark.test_jobs_without_spark import NO_SPARK, here

__all__ = ["here"]


def fill(wal: FileWal, count: int, start: int = 0, payload: int = 1) -> None:
    wal.append([transaction((b"k%d" % i, b"v" * payload, "ab"[i % 2])) for i in range(start, start + count)])


@pytest.fixture
def other(tmp_path: Path) -> Iterator[FileWal]:
    """A second log."""
    log = FileWal(tmp_path / "other")
    yield log
    log.close()


@pytest.fixture
def two_times(wal: FileWal) -> str:
    """20 entries, then the time that is returned, then 10 more."""
    fill(wal, 20)
    time.sleep(0.01)  # Commit times are the clock's: these two must differ by a millisecond.
    at = int(time.time() * 1000)
    time.sleep(0.01)
    fill(wal, 10, 20)
    return str(at)


def indexes(rows: Any) -> list[int]:
    return sorted(row.log_index for row in rows.select("log_index").collect())


def at(offset: dict[str, Any] | int) -> Any:
    """The index that an offset names, or the one of each of several logs."""
    if isinstance(offset, int):
        return offset  # As an earlier version kept it.
    return offset["log_index"] if "log_index" in offset else {name: at(own) for name, own in offset.items()}


def test_starting_and_ending_timestamp(spark: SparkSession, wal: FileWal, two_times: str) -> None:
    table = spark.read.format("logplayer").options(log=wal.address, raw="true")
    assert indexes(table.option("startingTimestamp", two_times).load()) == list(range(21, 31))
    table = spark.read.format("logplayer").options(log=wal.address, raw="true")
    assert indexes(table.option("endingTimestamp", two_times).load()) == list(range(1, 21))
    words = datetime.fromtimestamp(int(two_times) / 1000, UTC).isoformat()
    assert indexes(table.option("endingTimestamp", words).load()) == list(range(1, 21))


def test_a_stream_starts_at_a_timestamp(wal: FileWal, two_times: str) -> None:
    given = {"log": wal.address, "startingTimestamp": two_times}
    assert at(LogStreamReader(parse_options(given)).initialOffset()) == 20
    later = given | {"startingTimestamp": "9999999999999"}
    assert at(LogStreamReader(parse_options(later)).initialOffset()) == 30


def test_a_time_is_found_by_halving() -> None:
    times = [5, 5, 7, 7, 7, 9]
    for at in range(4, 11):
        expected = next((nth for nth, time in enumerate(times) if time >= at), len(times)) + 11
        assert search(11, 16, at, lambda index: times[index - 11]) == expected
    assert search(1, 0, 3, lambda index: 1 // 0) == 1


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"startingTimestamp": "yesterday"}, "write milliseconds since 1970"),
        ({"startingTimestamp": "1", "startingIndex": "1"}, "startingIndex and startingTimestamp both"),
        ({"maxTriggerDelay": "soon"}, "500ms, 30s"),
        ({"maxEntriesPerTriger": "3"}, "did you mean maxEntriesPerTrigger?"),
        ({"endingOffsets": "latest"}, "no option 'endingoffsets'"),
        ({"logs": "a=file:///x"}, "log and logs both"),
    ],
)
def test_what_is_wrong_with_an_option_is_said(options: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(what)):
        parse_options({"log": "file:///x", **options})


def test_limits_of_a_micro_batch(wal: FileWal) -> None:
    fill(wal, 100, payload=1000)
    reader = LogStreamReader(parse_options({"log": wal.address, "maxBytesPerTrigger": "10000"}))
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxBytes)
    end = reader.latestOffset({"log_index": 0}, limit)["log_index"]
    assert end == 9  # An entry has 1,010 bytes.
    both = {"log": wal.address, "maxBytesPerTrigger": "10000", "maxEntriesPerTrigger": "2"}
    reader = LogStreamReader(parse_options(both))
    assert at(reader.latestOffset({"log_index": 0}, reader.getDefaultReadLimit())) == 2
    assert at(reader.latestOffset({"log_index": 0}, ReadAllAvailable())) == 100


def test_few_entries_wait_for_more_but_not_for_ever(wal: FileWal) -> None:
    fill(wal, 5)
    given = {"log": wal.address, "minEntriesPerTrigger": "10", "maxTriggerDelay": "1h", "pollMs": "0"}
    reader = LogStreamReader(parse_options(given))
    assert reader.latestOffset({"log_index": 0}, ReadAllAvailable()) == {"log_index": 0}
    fill(wal, 5, 5)
    assert at(reader.latestOffset({"log_index": 0}, ReadAllAvailable())) == 10
    at_once = LogStreamReader(parse_options(given | {"maxTriggerDelay": "0s"}))
    assert at(at_once.latestOffset({"log_index": 9}, ReadAllAvailable())) == 10
    ending = LogStreamReader(parse_options(given))  # A run that ends with what is there waits for nothing.
    ending.prepareForTriggerAvailableNow()
    assert at(ending.latestOffset({"log_index": 9}, ReadAllAvailable())) == 10


def test_entries_that_were_trimmed_before_a_stream_read_them(wal: FileWal) -> None:
    fill(wal, 30)
    assert event_loop.run(wal.log.trim(10)) == 10
    for lost in ("true", "false"):
        reader = LogStreamReader(parse_options({"log": wal.address, "failOnDataLoss": lost}))
        if lost == "true":
            with pytest.raises(Trimmed):
                reader.partitions({"log_index": 5}, {"log_index": 30})
        else:
            parts = reader.partitions({"log_index": 5}, {"log_index": 30})
            rows = [row for part in parts for batch in reader.read(part) for row in batch.column(0).to_pylist()]
            assert sorted(rows) == list(range(11, 31))
            assert not reader.partitions({"log_index": 5}, {"log_index": 10})
        reader.stop()


@pytest.mark.usefixtures("here")
def test_lost_entries_do_not_hide_what_the_archive_has(wal: FileWal, tmp_path: Path) -> None:
    """Entries 21 to 40 are in the archive and not in the log, 41 to 50 in neither."""
    fill(wal, 20)
    event_loop.run(wal.log.trim(20))
    fill(wal, 20, 20)
    archive = str(tmp_path / "archive")
    assert archive_log(NO_SPARK, wal.address, archive, 10)[2] == 40
    fill(wal, 20, 40)
    event_loop.run(wal.log.trim(50))
    given = {"log": wal.address, "archive": archive, "failOnDataLoss": "false"}
    reader = LogStreamReader(parse_options(given))

    def rows(first: int, last: int) -> list[int]:
        parts = reader.partitions({"log_index": first - 1}, {"log_index": last})
        return sorted(row for part in parts for batch in reader.read(part) for row in batch.column(0).to_pylist())

    assert rows(11, 60) == [*range(21, 41), *range(51, 61)]
    assert rows(31, 45) == list(range(31, 41))
    assert rows(42, 48) == []
    assert rows(45, 55) == list(range(51, 56))
    assert rows(1, 20) == []
    reader.stop()


def test_a_stream_has_no_end(wal: FileWal) -> None:
    schema = StructType()
    for name in ("endingIndex", "endingTimestamp"):
        source = LogPlayerSource({"log": wal.address, name: "20"})
        with pytest.raises(ConfigError, match=f"a stream has no end: {name} is for spark.read"):
            source.streamReader(schema)
    LogPlayerSource({"log": wal.address, "endingIndex": "latest"}).streamReader(schema)


def test_all_logs_of_a_query_have_other_names_now(wal: FileWal) -> None:
    fill(wal, 5)
    given = {"logs": f"new={wal.address}", "failOnDataLoss": "false", "maxEntriesPerTrigger": "3", "pollMs": "0"}
    reader = SeveralLogsStream(parse_options(given))
    place = reader.latestOffset({"old": 7}, ReadMaxRows(3))
    assert at(place) == {"old": 7, "new": 0}
    assert at(reader.latestOffset(place, ReadMaxRows(3))) == {"old": 7, "new": 3}
    reader.stop()


def test_real_time_mode_takes_no_source_in_python(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    fill(wal, 1)
    stream = spark.readStream.format("logplayer").options(log=wal.address).load()
    writer = stream.writeStream.format("console").outputMode("update").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(PySparkException, match="INPUT_STREAM_NOT_SUPPORTED"):
        writer.trigger(realTime="5 seconds").start().awaitTermination()  # type: ignore[call-overload]


def test_a_table_in_the_catalog(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    """Spark 4.3 gives a Python source the options of a table when it is made, and not when it is read."""
    fill(wal, 30)
    address = wal.serve()
    given = f"log = '{address}', staging = '{tmp_path}/s'"
    try:
        spark.sql(
            f"CREATE TABLE parity_t USING logplayer OPTIONS (log '{address}') COMMENT 'x' TBLPROPERTIES ('a.b'='c')"
        )
        spark.sql("CREATE TABLE parity_r USING logplayer TBLPROPERTIES ('raw'='true')")
        spark.sql(f"CREATE VIEW parity_v AS SELECT * FROM parity_t WITH (log = '{address}')")
        assert spark.sql("SELECT * FROM parity_v WHERE log_index > 20 AND target = 'a'").count() == 5
        assert spark.table("parity_r").columns[1] == "kind"
        with pytest.raises(PySparkException, match="does not give its options to a Python source"):
            spark.table("parity_t").count()
        spark.sql(f"INSERT INTO parity_t WITH ({given}) (key, value, target) SELECT binary('n'), binary('w'), 'a'")
        assert [(r.index, r.payload) for r in wal.records()[30:]] == [(31, transaction((b"n", b"w", "a")))]
        with pytest.raises(PySparkException, match="did you mean startingIndex"):
            spark.sql(f"CREATE TABLE parity_x USING logplayer OPTIONS (log '{address}', startingIndx '3')")
    finally:
        spark.sql("DROP VIEW IF EXISTS parity_v")
        for name in "tr":
            spark.sql(f"DROP TABLE IF EXISTS parity_{name}")


def test_several_logs_in_one_query(spark: SparkSession, wal: FileWal, other: FileWal, tmp_path: Path) -> None:
    fill(wal, 20)
    fill(other, 7)
    logs = f"eu={wal.address},us={other.address}"
    rows = spark.read.format("logplayer").options(logs=logs, raw="true").load()
    counted = {row.log: row["count"] for row in rows.groupBy("log").count().collect()}
    assert counted == {"eu": 20, "us": 7}
    assert rows.where("log_index > 5").count() == 17

    def play(**options: str) -> list[Any]:
        stream = spark.readStream.format("logplayer").options(includeHeaders="true", **options).load()
        query = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
        started = query.trigger(availableNow=True).start(str(tmp_path / "out"))
        started.awaitTermination()
        return [progress for progress in started.recentProgress if progress.numInputRows]

    batches = play(logs=f"eu={wal.address}", maxEntriesPerTrigger="15")
    assert [batch.numInputRows for batch in batches] == [15, 5]
    fill(wal, 3, 20)
    play(logs=logs)  # A log more.
    fill(other, 2, 7)
    play(logs=logs)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.select("log", "log_index").distinct().count() == found.count() == 23 + 9
    with pytest.raises(PySparkException, match="option logs no longer names"):
        play(logs=f"us={other.address}")


def test_shares_of_several_logs(wal: FileWal, other: FileWal) -> None:
    fill(wal, 50)
    fill(other, 3)
    given = {"logs": f"eu={wal.address},us={other.address}", "maxEntriesPerTrigger": "10"}
    reader = SeveralLogsStream(parse_options(given))
    place = reader.initialOffset()
    assert at(place) == {"eu": 0, "us": 0}
    place = reader.latestOffset(place, ReadMaxRows(10))
    assert at(place) == {"eu": 7, "us": 3}
    assert at(reader.latestOffset(place, ReadMaxRows(10))) == {"eu": 17, "us": 3}
    assert at(reader.latestOffset(place, ReadAllAvailable())) == {"eu": 50, "us": 3}
    assert at(reader.reportLatestOffset()) == {"eu": 50, "us": 3}
    reader.stop()


def test_a_log_that_is_added_starts_at_its_beginning(wal: FileWal, other: FileWal) -> None:
    fill(wal, 5)
    fill(other, 3)
    reader = SeveralLogsStream(parse_options({"logs": f"eu={wal.address},us={other.address}"}))
    place = reader.latestOffset({"eu": 2}, ReadAllAvailable())
    assert at(place) == {"eu": 5, "us": 0}  # Its place is decided in one batch, and read from in the next.
    assert {part.log for part in reader.partitions({"eu": 2}, place)} == {"eu"}  # type: ignore[attr-defined]
    assert at(reader.latestOffset(place, ReadAllAvailable())) == {"eu": 5, "us": 3}
    reader.stop()


@pytest.mark.parametrize("key", ["archive", "addresses", "startingIndex"])
def test_what_is_about_one_log_is_refused_for_several(key: str) -> None:
    value = {"archive": "/x", "addresses": "a=grpc://127.0.0.1:1", "startingIndex": "3"}[key]
    with pytest.raises(ConfigError, match=key):
        parse_options({"logs": "a=file:///x,b=file:///y", key: value})


def test_progress_says_how_far_a_stream_lags(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    """Spark 4.3 takes no metrics from a Python source; the newest offset it does take."""
    fill(wal, 30)
    stream = spark.readStream.format("logplayer").options(log=wal.address, raw="true", maxEntriesPerTrigger="20").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    started = query.trigger(availableNow=True).start()
    started.awaitTermination()
    first = started.recentProgress[0].sources[0]
    assert (at(json.loads(first.endOffset)), at(json.loads(first.latestOffset))) == (20, 30)
    assert not first.metrics


def test_spark_does_not_say_which_columns_are_read() -> None:
    """If this fails, Spark has begun to: then the source should read no other columns."""
    offered = {name for name in dir(DataSourceReader) if not name.startswith("_")}
    assert offered == {"partitions", "pushFilters", "read"}
    offered = {name for name in dir(DataSource) if not name.startswith("_")}
    assert not [name for name in offered if "column" in name.lower() or "prune" in name.lower()]


def test_headers_are_written_in_the_payload(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    payload = transaction((b"k", b"v", "a")) + encode_headers([("trace", b"t1")])
    rows = spark.createDataFrame([(payload,)], "payload binary")
    rows.write.format("logplayer").options(log=wal.serve(), staging=str(tmp_path / "s")).mode("append").save()
    [row] = spark.read.format("logplayer").options(log=wal.address, includeHeaders="true").load().collect()
    assert [(item.name, bytes(item.value)) for item in row.headers] == [("trace", b"t1")]


def test_an_error_is_the_first_line_of_its_trace(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("logplayer").option("logg", "file:///x").load()
    first = str(caught.value).splitlines()[0]
    assert "no option 'logg'; did you mean log?" in first
    with pytest.raises(PySparkException) as caught:
        spark.read.format("logplayer").option("log", f"file://{tmp_path}/none").load().count()
    assert "there is no log" in str(caught.value).splitlines()[0]


def test_workers_without_the_package_say_what_to_do(tmp_path: Path) -> None:
    """A Python that has PySpark and nothing else gets what Spark would send to it."""
    for package in (pyspark, py4j):
        folder = Path(str(package.__file__)).parent
        (tmp_path / folder.name).symlink_to(folder)
    reader = LogReader(parse_options({"log": "file:///x"}))
    for shipped in (reader, ShippedFunction(UserError)):
        sent = tmp_path / "sent"
        sent.write_bytes(cloudpickle.dumps(shipped))  # type: ignore[no-untyped-call]
        program = f"import pickle; pickle.loads(open({str(sent)!r}, 'rb').read())"
        bare = [sys.executable, "-S", "-c", program]
        done = subprocess.run(bare, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=120)
        said = done.stderr.strip().splitlines()[-1]
        assert "the Python of Spark's workers has no package logplayer" in said
        assert "PYSPARK_PYTHON" in said
    again = cloudpickle.loads(cloudpickle.dumps(reader))  # type: ignore[no-untyped-call]
    assert again.options == reader.options

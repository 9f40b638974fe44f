"""The log as a table and as a stream."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logplayer.core.entry import HashMap, MapChanged, Takeover
from logplayer.core.routing import owner_of
from logplayer.spark import event_loop
from logplayer.wire.entries import encode_headers
from tests.spark.spark_support import FileWal, transaction


def fill(wal: FileWal, count: int) -> None:
    wal.append([transaction((b"k%d" % i, b"v%d" % i, "ab"[i % 2]), (b"x%d" % i, None, "b")) for i in range(count)])


def test_rows_of_the_log(spark: SparkSession, wal: FileWal) -> None:
    fill(wal, 100)
    rows = spark.read.format("logplayer").option("log", wal.address).load().orderBy("log_index", "op").collect()
    assert len(rows) == 200
    assert [row.log_index for row in rows[::2]] == list(range(1, 101))
    first, second = rows[0], rows[1]
    assert (first.key, first.value, first.op, first.target) == (b"x0", None, "delete", "b")
    assert (second.key, second.value, second.op, second.target) == (b"k0", b"v0", "put", "a")
    assert (first.producer, first.sequence) == ("shop", 1)
    assert int(first.committed_at.timestamp() * 1e6) // 1000 == wal.records()[0].committed_at_us // 1000


def test_raw_rows_hold_every_entry(spark: SparkSession, wal: FileWal) -> None:
    fill(wal, 30)
    wal.decide(Takeover("g", "p"), HashMap(("a", "b")))
    rows = spark.read.format("logplayer").options(log=wal.address, raw="true").load().orderBy("log_index").collect()
    assert [(r.log_index, r.kind, r.payload) for r in rows] == [
        (r.index, r.kind.name.lower(), r.payload) for r in wal.records()
    ]


def test_headers_are_a_column_for_those_who_ask(spark: SparkSession, wal: FileWal) -> None:
    headers = encode_headers([("trace", b"\x00\xff"), ("n", b"1"), ("n", b"2")])
    wal.append([transaction((b"k", b"v", "a"), (b"l", None, "b")) + headers, transaction((b"m", b"w", "a"))])
    table = spark.read.format("logplayer").option("log", wal.address)
    assert "headers" not in table.load().columns
    expected = [("trace", b"\x00\xff"), ("n", b"1"), ("n", b"2")]
    rows = table.option("includeHeaders", "true").load().orderBy("log_index", "key").collect()
    found = [[(item.name, bytes(item.value)) for item in row.headers] for row in rows]
    assert found == [expected, expected, []]
    raw = table.option("raw", "true").load().orderBy("log_index").collect()
    assert [[(item.name, bytes(item.value)) for item in row.headers] for row in raw] == [expected, []]


def test_the_map_in_force_at_each_index_names_the_target(spark: SparkSession, wal: FileWal) -> None:
    before, after = HashMap(("a", "b")), HashMap(("c", "d", "e"))
    keys = [b"key%d" % i for i in range(50)]
    wal.append([transaction((key, b"1", "")) for key in keys])
    changed = wal.decide(MapChanged(after), before)
    wal.append([transaction((key, b"2", "")) for key in keys])
    rows = spark.read.format("logplayer").options(log=wal.address, map="hash:a,b").load().collect()
    for row in rows:
        expected = before if row.log_index < changed else after
        assert row.target == owner_of(expected)(row.key)


def test_filters_are_pushed_down(spark: SparkSession, wal: FileWal) -> None:
    fill(wal, 1000)
    table = spark.read.format("logplayer").options(log=wal.address).load()
    some = table.where("log_index > 100 and log_index <= 300 and target = 'a'")
    assert sorted(row.log_index for row in some.collect()) == list(range(101, 301, 2))
    narrow = table.where("log_index = 7")
    assert narrow.rdd.getNumPartitions() == 1
    assert {row.log_index for row in narrow.collect()} == {7}
    assert table.where("log_index in (3, 5, 2000)").count() == 4
    assert table.where("log_index > 5000").count() == 0
    assert table.where("target in ('a')").count() == 500


def test_a_session_without_pushdown_can_read_too(spark: SparkSession, wal: FileWal) -> None:
    """Spark refuses readers that push filters while its configuration says no; this one must still work."""
    fill(wal, 20)
    other = spark.newSession()
    other.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert other.read.format("logplayer").option("log", wal.address).load().where("log_index <= 5").count() == 10


def test_ranges_are_split_over_tasks(spark: SparkSession, wal: FileWal) -> None:
    wal.append([transaction((b"k", bytes(2000), "a"))] * 1000)
    table = spark.read.format("logplayer").options(log=wal.address, raw="true", bytesPerTask="200000").load()
    assert table.rdd.getNumPartitions() >= 8
    row = table.selectExpr("count(distinct log_index)", "sum(length(payload))").first()
    assert row is not None
    assert row[0] == 1000


def test_start_and_end(spark: SparkSession, wal: FileWal) -> None:
    fill(wal, 50)
    table = spark.read.format("logplayer")
    part = table.options(log=wal.address, raw="true", startingIndex="10", endingIndex="19").load()
    assert sorted(row.log_index for row in part.collect()) == list(range(10, 20))
    event_loop.run(wal.log.trim(20))
    rest = table.options(log=wal.address, raw="true", startingIndex="earliest", endingIndex="latest").load()
    assert rest.count() == 30
    with pytest.raises(PySparkException, match="entry 10"):
        table.options(log=wal.address, raw="true", startingIndex="10").load().count()


def test_the_log_server_is_a_log_too(spark: SparkSession, wal: FileWal) -> None:
    fill(wal, 300)
    address = wal.serve()
    assert spark.read.format("logplayer").options(log=address, raw="true").load().count() == 300


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "needs option"),
        ({"log": "fil:///x"}, "unknown scheme"),
        ({"log": "file:///x", "startingIndx": "3"}, "no option 'startingindx'"),
        ({"log": "file:///x", "map": "hash"}, "is not a shard map"),
        ({"log": "file:///x", "raw": "yes"}, "true or false"),
    ],
)
def test_wrong_options_say_what_to_write(spark: SparkSession, options: dict[str, str], what: str) -> None:
    with pytest.raises(PySparkException, match=re.escape(what)):
        spark.read.format("logplayer").options(**options).load().count()


def test_a_stream_reads_each_entry_once_through_restarts(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    fill(wal, 100)
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def play() -> list[int]:
        stream = spark.readStream.format("logplayer").options(log=wal.address, maxEntriesPerTrigger="40").load()
        query = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        started = query.trigger(availableNow=True).start(out)
        started.awaitTermination()
        return [progress.numInputRows for progress in started.recentProgress]

    assert [rows for rows in play() if rows] == [80, 80, 40]
    fill(wal, 30)
    assert sum(play()) == 60
    rows = spark.read.parquet(out)
    assert (rows.count(), rows.select("log_index").distinct().count()) == (260, 130)


def test_a_stream_from_latest_and_from_an_index(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    fill(wal, 50)

    def rows(start: str, name: str) -> int:
        stream = spark.readStream.format("logplayer").options(log=wal.address, raw="true", startingIndex=start).load()
        query = stream.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        return spark.table(name).count()

    assert rows("41", "tail_of_ten") == 10
    assert rows("latest", "nothing_new") == 0

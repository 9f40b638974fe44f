"""The rows of the source in the JVM: those of ``format("logplayer")``, in real time and in micro-batches."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

import logplayer as lp
from logplayer.core.entry import HashMap, MapChanged
from logplayer.errors import ConfigError
from logplayer.spark.real_time.query import Realtime
from logplayer.wire.entries import encode_headers
from logplayer.wire.logplayer.v1 import entry_pb2 as pb
from tests.spark.spark_support import FileWal, Shards, transaction, until
from tests.spark.test_real_time import NAMES, connector, entries, realtime, right, shards
from tests.spark.test_real_time_trouble import MALFORMED, ODD

__all__ = ["connector", "shards"]

TEXTS = ["", "plain", 'quote " back \\ slash / tab \t', "\x00\x01\b\f\n\r\x1f\x7f\x80", "grüße €", "\U0001f680\u2028"]
DECIMALS = ["0", "-0", "0.00", "9.90", "1E+5", "1E-7", "0.000001", "0.0000001", "-12.5E-3", "NaN", "-Infinity", "0E+3"]
ODD_DECIMALS = [
    "+1.0",
    "1e5",
    ".5",
    "5.",
    "00012.50",
    "-.0",
    "inf",
    "nan007",
    "sNaN",
    " 1_000 ",
    "١٢.٥",
    "1E400",
    "0e-9",
]
NOT_DECIMALS = ["", "-", ".", "1.2.3", "1 2", "e5", "0x1", "1E99999999999999999999", "nanx"]
TYPED: list[Any] = [
    *(None, True, False, 0, -1, 2**63 - 1, -(2**63), b"", bytes(range(256)), lp.Json({"a": [1, "é"]}), lp.Json("")),
    *TEXTS,
    *map(Decimal, DECIMALS),
    *(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2026, 2, 28, 1, 2, 3, 40)),
    *(datetime(1, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2026, 7, 1, tzinfo=UTC)),
    *(date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31), time(0), time(23, 59, 59, 1), time(1, 2, 3)),
    *(UUID(int=0), UUID("12345678-9abc-def0-8234-56789abcdef0"), [], [1, None, [b"x", [1.5]], Decimal("1.10")]),
    [date(2026, 1, 1), lp.Json([]), "\n", math.nan],
]


def doubles() -> list[float]:
    """Of all lengths, at the borders of the forms, and where the neighbours of a double are not equally near."""
    chance = random.Random(7)
    borders = [0.0, -0.0, 1e16, 9999999999999998.0, 1e-4, 9.999e-5, 1e22, 5e-324, 1.7976931348623157e308, 2.0**53, 0.1]
    borders += [2.0**n for n in range(-1074, 1024, 13)] + [
        9007199254740993.0,
        2.0**-44,
        1.5,
        100.0,
        math.inf,
        -math.inf,
    ]
    bits = [struct.unpack(">d", chance.randbytes(8))[0] for _ in range(400)]
    plain = [chance.uniform(-1e6, 1e6) for _ in range(100)] + [round(chance.uniform(0, 999), 2) for _ in range(100)]
    return [one for one in borders + bits + plain if one == one]


def raw_row(value: pb.Value, **more: Any) -> bytes:
    """A row with a value that the encoder would not write."""
    columns = [pb.Column(name="id", value=pb.Value(integer=1), key=True), pb.Column(name="v", value=value)]
    given = {"key": b"stock/1", "table": "stock", "columns": columns, **more}
    return pb.Transaction(mutations=[pb.Mutation(**given)]).SerializeToString()


def payloads() -> Iterator[bytes]:
    """Every type of a value, every operation, and what a target cannot understand."""
    yield transaction((b"k1", b"v", ""), (b"\xff", None, ""), (b"", b"", "b")) + encode_headers(
        [("t", "1"), ("t", b"\xff")]
    )
    for nth, value in enumerate([*TYPED, doubles()]):
        yield lp.table("stock").put(id=nth, v=value).encoded + encode_headers({"trace": str(nth)} if nth % 3 else {})
    yield lp.table("stock").patch(id=1, v=2).encoded + lp.table("stock").delete(id=2).encoded
    yield lp.table("lines", key=("order", "n")).put(order="a/b", n=2, text=None).encoded
    columns = [pb.Column(name="id", value=pb.Value(integer=nth), key=nth == 1) for nth in (1, 2)]
    yield raw_row(pb.Value(), op=pb.PATCH, columns=columns)
    yield from (raw_row(pb.Value(decimal=text)) for text in ODD_DECIMALS + NOT_DECIMALS)
    yield raw_row(pb.Value(timestamp_us=2**59))
    yield raw_row(pb.Value(local_timestamp_us=-(2**59)))
    yield raw_row(pb.Value(date_days=2**31 - 1))
    yield raw_row(pb.Value(time_us=-1))
    yield raw_row(pb.Value(uuid=b"short"))
    yield raw_row(pb.Value(array=pb.Array(items=[pb.Value(time_us=86_400_000_000)])))
    yield raw_row(pb.Value(), table="")
    yield raw_row(pb.Value(), columns=[pb.Column(name="id")])
    yield raw_row(pb.Value(), op=7)
    statement = pb.Mutation(key=b"ignored", value="alter é".encode(), op=pb.DDL, target="a")
    yield pb.Transaction(mutations=[statement]).SerializeToString()
    yield pb.Transaction(mutations=[pb.Mutation(value=b"\xff", op=pb.DDL, target="b")]).SerializeToString()
    row = lp.table("stock").put(id=9, v=1).encoded
    yield transaction((b"k", b"v", "a"), (b"k2", b"v", "b")) + row  # One target has both, and refuses its share.
    yield pb.Transaction(mutations=[statement]).SerializeToString() + transaction(
        (b"k2", b"v", "b"), (b"k3", None, "b")
    )
    yield transaction((b"k", b"v", "nobody"))
    yield from (*MALFORMED.values(), *ODD.values())


def from_python(spark: SparkSession, log: str) -> DataFrame:
    """The same of the source in Python, of what is for a target of the query."""
    rows = spark.read.format("logplayer").option("log", log).option("includeHeaders", True).load()
    return rows.where(f.col("target").isin(*NAMES))


def taken(rows: DataFrame, folder: Path) -> list[Row]:
    """All that a stream has now and had not when the same folder was used before, by micro-batches."""
    found: list[Row] = []
    writer = rows.writeStream.foreachBatch(lambda batch, nth: found.extend(batch.collect()))
    stream = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    stream.awaitTermination()
    return found


@contextmanager
def played(spark: SparkSession, wal: FileWal, shards: Shards, **more: Any) -> Iterator[Realtime]:
    running = realtime(spark, wal, shards, **more).start()
    try:
        yield running
    finally:
        running.stop()


def by_index(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["log_index"], row["target"]))


def test_rows_by_micro_batches_are_those_of_the_source_in_python(
    spark: SparkSession, wal: FileWal, shards: Shards, tmp_path: Path
) -> None:
    log = wal.serve()
    wal.append(list(payloads()))
    first = {"log": log, "transform": lambda rows: rows.where("false")}  # Its targets could not hold all of this.
    with played(spark, wal, shards, **first, groups=2) as running:
        running._transform = None
        there = from_python(spark, log)
        rows = running.rows()
        assert rows.schema.simpleString() == there.schema.simpleString()
        expected = by_index(there.collect())
        assert len(expected) > 90
        assert by_index(taken(rows, tmp_path / "offsets")) == expected
        more = wal.append([transaction((b"more", b"v", "")), lp.table("stock").put(id=1, v=1.5).encoded])
        later = by_index(from_python(spark, log).where(f.col("log_index") >= more[0]).collect())
        assert by_index(taken(running.rows(), tmp_path / "offsets")) == later  # Those before are not read again.
        assert len(later) == 2


def test_rows_in_real_time_are_those_of_the_source_in_python(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    """A row that the source in Python has not, in every column as it is, would be delivered; none is."""
    wal.append(list(payloads()))
    log = wal.serve()
    whole = "to_json(struct(*), map('ignoreNullFields', 'false'))"

    def unknown(rows: DataFrame) -> DataFrame:
        known = from_python_json.withColumnRenamed("whole", "known").withColumnRenamed("log_index", "at")
        named = rows.withColumn("whole", f.expr(whole))
        return named.join(f.broadcast(known), f.expr("whole = known and log_index = at"), "left_anti")

    wal.decide(MapChanged(HashMap(NAMES)), HashMap(NAMES), tuple(shards.addresses.items()))
    expected = from_python(spark, log).selectExpr("log_index", f"{whole} whole").collect()
    from_python_json = spark.createDataFrame(expected, "log_index long, whole string").cache()
    with played(spark, wal, shards, log=log, transform=unknown) as running:
        shards.wait(wal.last())
        until(lambda: running.status["rows_in"] == len(expected))
        assert running.status["rows_out"] == 0
    assert all(shards.read(name)[0] == {} for name in NAMES)


def test_what_a_query_delivers_is_what_its_rows_say(
    spark: SparkSession, wal: FileWal, shards: Shards, tmp_path: Path
) -> None:
    wal.append(entries(0, 200))
    with played(spark, wal, shards) as running:
        found: dict[str, dict[bytes, bytes]] = {name: {} for name in NAMES}
        for row in taken(running.rows(), tmp_path / "offsets"):
            if row["value"] is None:
                found[row["target"]].pop(row["key"].encode(), None)
            else:
                found[row["target"]][row["key"].encode()] = row["value"].encode()
        shards.wait(wal.last())
    assert found == {name: shards.read(name)[0] for name in NAMES}
    right(wal, shards)


def test_a_stream_of_rows_ends_at_a_decision_that_it_does_not_know(
    spark: SparkSession, wal: FileWal, shards: Shards, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="start"):
        realtime(spark, wal, shards).rows()
    wal.append(entries(0, 10))
    with played(spark, wal, shards, log=wal.serve()) as running:
        before = running.rows()
        running._number = 0  # What it is made of stays.
        wal.decide(MapChanged(HashMap(tuple(reversed(NAMES)))), HashMap(NAMES))
        until(lambda: running.status["starts"] == 2 and running.status["state"] == "playing")
        assert len(taken(running.rows(), tmp_path / "after")) > 10
        with pytest.raises(StreamingQueryException, match="decides MAP_CHANGED, after this stream was made"):
            taken(before, tmp_path / "before")


def test_sql_chooses_by_table_and_by_header(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    """Stores of keys and values get no row of a table, which they would refuse."""

    def chosen(rows: DataFrame) -> DataFrame:
        return rows.where("table is null and exists(headers, one -> one.name = 'keep' and one.value = x'31')")

    kept, other = encode_headers({"keep": "1"}), encode_headers({"keep": "2"})
    row = lp.table("stock").put(id=1, n=2).encoded
    wal.append([transaction((b"k1", b"v", "")) + kept, row + kept, transaction((b"k2", b"v", "")) + other, row])
    with played(spark, wal, shards, transform=chosen):
        shards.wait(wal.last())
    assert shards.read("a")[0] | shards.read("b")[0] == {b"k1": b"v"}

"""Rows of tables, statements and headers in Spark's rows: what the source shows, both sinks take, to the byte."""

from __future__ import annotations

import json
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import logplayer as lp
from logplayer.errors import ConfigError, UserError
from logplayer.log.protocol import Kind, Record
from logplayer.spark import event_loop
from logplayer.spark.format import HEADERS as HEADERS_DDL
from logplayer.spark.format import ROWS
from logplayer.spark.routes import Routes
from logplayer.spark.sinks.parts import PartsStage, messages_of
from logplayer.spark.sinks.rows import check_columns, encode_row, payloads_of
from logplayer.spark.sinks.staging import Staging
from logplayer.spark.source.batches import ROW_SCHEMA, row_batch
from logplayer.target.server import TargetServer
from logplayer.target.stores.open import open_store
from logplayer.wire.entries import decode_headers, encode_headers
from logplayer.wire.rows import Column, Op, decode_row_changes, encode_ddl
from logplayer.wire.rows import encode_row as encode_table_row
from tests.spark.spark_support import FileWal, transaction
from tests.wire.test_rows import rows

HEADERS = [("trace", b"\x00\xff"), ("n", b"1")]


def ddl_schema(text: str) -> StructType:
    return StructType.fromDDL(text)  # type: ignore[return-value]  # It says that it is any type.


def shown(*payloads: bytes, headers: bool = False) -> pa.RecordBatch:
    records = [Record(nth, Kind.DATA, "p", nth, 0, payload, b"", 0) for nth, payload in enumerate(payloads, 1)]
    return row_batch(records, Routes(), None, headers)


def test_the_source_shows_rows_and_statements(spark: SparkSession) -> None:
    lines = lp.table("lines", key=("order_id", "n"), place="order_id")
    entry = [lines.put(order_id=7, n=1, total=Decimal("9.90")), lines.patch(order_id=7, n=1, total=None)]
    [ddl] = lp.ddl("ALTER TABLE lines ADD note text", ["a"])
    moved = encode_table_row(Op.PATCH, "t", [Column("id", 1, True), Column("id", 2)], target="a")
    batch = shown(
        b"".join(one.encoded for one in entry), ddl.encoded, lines.delete(order_id=7, n=1).encoded + moved.encoded
    )
    found = [{name: row[name] for name in ROW_SCHEMA.names[4:]} for row in batch.to_pylist()]
    key, names = b"lines/{7}/1", ["order_id", "n"]
    assert found == [
        row(None, key, "put", "lines", names, '{"order_id": 7, "n": 1, "total": {"decimal": "9.90"}}'),
        row(None, key, "patch", "lines", names, '{"order_id": 7, "n": 1, "total": null}'),
        row("a", None, "ddl", None, None, None, b"ALTER TABLE lines ADD note text"),
        row(None, key, "delete", "lines", names, '{"order_id": 7, "n": 1}'),
        row("a", b"t/1", "patch", "t", ["id"], '[["id", 1], ["id", 2]]'),
    ]
    assert ddl_schema(ROWS).fieldNames() == ROW_SCHEMA.names


def row(target: Any, key: Any, op: str, table: Any, names: Any, columns: Any, value: Any = None) -> dict[str, Any]:
    return dict(zip(ROW_SCHEMA.names[4:], (target, key, value, op, table, names, columns), strict=True))


def test_keys_and_rows_in_one_share_are_malformed_for_their_target() -> None:
    """No store takes such an entry; what another target gets of it is what it was."""
    mixed = transaction((b"k", b"v", "a"), (b"l", b"w", "b")) + lp.table("t", target="a").put(id=1).encoded
    found = [(one["target"], one["key"], one["op"]) for one in shown(mixed).to_pylist()]
    assert found == [("a", None, "malformed"), ("b", b"l", "put")]


@given(rows(), st.sampled_from([Op.PUT, Op.PATCH, Op.DELETE]), st.booleans())
def test_what_the_source_shows_a_sink_takes(one: tuple[str, list[Column]], op: Op, placed: bool) -> None:
    table, columns = one
    columns = [column for column in columns if column.key or op != Op.DELETE]
    if op == Op.PATCH and all(column.key for column in columns):
        op = Op.PUT
    made = encode_table_row(op, table, columns, place=columns[0].name if placed else "", target="a").encoded
    assert payloads_of(shown(made)).to_pylist() == [made]


def test_headers_come_through_and_are_refused_where_they_contradict() -> None:
    headers = encode_headers(HEADERS)
    entry = lp.table("t").put(id=1).encoded + headers
    statement = encode_ddl("DROP TABLE t", "a").encoded + headers
    pair = transaction((b"k", b"v", "a"))
    batch = shown(entry, statement, pair + headers, pair, headers=True)
    assert payloads_of(batch).to_pylist() == [entry, statement, pair + headers, pair]
    given_ = [{"name": name, "value": value} for name, value in HEADERS]
    assert encode_row({"payload": pair, "headers": given_}) == pair + headers
    assert encode_row({"payload": pair + headers, "headers": given_}) == pair + headers
    assert encode_row({"payload": pair + headers, "headers": []}) == pair + headers
    assert encode_row({"mutations": [{"key": "k", "value": "v", "target": "a"}], "headers": given_}) == pair + headers
    with pytest.raises(UserError, match="headers of its own"):
        encode_row({"payload": pair + headers, "headers": given_[:1]})
    with pytest.raises(UserError, match="a header without a name"):
        encode_row({"key": "k", "value": "v", "headers": [{"name": None, "value": b""}]})


TABLE_ROW = {"table": "t", "key_columns": ["id"], "columns": '{"id": 1, "v": "x"}'}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"table": None, "key": "k"}, "has columns, but no table"),
        ({"table": None, "columns": None, "key": "k"}, "has key_columns, but no table"),
        ({"value": "v"}, "has a value and a table"),
        ({"columns": None}, "has no columns"),
        ({"key_columns": None}, "does not name its key columns"),
        ({"columns": "{"}, "is not JSON"),
        ({"columns": "7"}, "has no columns"),
        ({"columns": '{"id": 1, "v": [1]}'}, "names its type"),
        ({"op": "upsert"}, "must be put, patch or delete"),
        ({"op": "delete"}, "takes the key columns only"),
        ({"op": "malformed"}, "must be put, patch or delete"),
        ({"key": "t/2"}, "has key b't/2', but its columns make b't/1'"),
        ({"op": "ddl"}, "a statement has its text in value"),
        ({"op": "ddl", "table": None, "columns": None, "key_columns": None, "target": "a"}, "has its text in value"),
    ],
)
def test_a_row_of_a_table_that_contradicts_itself_is_refused(change: dict[str, Any], says: str) -> None:
    assert encode_row(TABLE_ROW) == lp.table("t").put(id=1, v="x").encoded
    with pytest.raises(UserError, match=says):
        encode_row({**TABLE_ROW, **change})
    with pytest.raises(UserError, match="a statement names its target"):
        encode_row({"op": "ddl", "value": "DROP TABLE t"})
    with pytest.raises(UserError, match="patch is for rows of tables"):
        encode_row({"op": "patch", "key": "k", "value": "v"})


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("table STRING, key STRING, value STRING", "table, key_columns and columns"),
        ("table STRING, columns STRING", "table, key_columns and columns"),
        ("table STRING, key_columns STRING, columns STRING", "key_columns must be an array of strings"),
        ("table STRING, key_columns ARRAY<STRING>, columns MAP<STRING, STRING>", "columns must be text"),
        ("key STRING, value STRING, headers STRING", "headers must be an array of structs with name and value"),
        ("mutations ARRAY<STRUCT<key: STRING, value: STRING, headers: STRING>>", "headers belong to the row"),
        ("mutations ARRAY<STRUCT<table: STRING, columns: STRING>>", "table, key_columns and columns"),
    ],
)
def test_columns_that_would_be_ignored_are_refused(spark: SparkSession, schema: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_columns(ddl_schema(schema))
    check_columns(ddl_schema(f"table STRING, key_columns ARRAY<STRING>, columns STRING, {HEADERS_DDL}"))


def test_an_entry_of_several_rows_has_its_headers_once(tmp_path: Path) -> None:
    """The source gives each of its rows the headers of the entry."""
    table = lp.table("t", target="a")
    mutations = [table.put(id=nth).encoded for nth in range(3)]
    batch = shown(b"".join(mutations) + encode_headers(HEADERS), headers=True)
    staging = Staging(str(tmp_path))
    with PartsStage(staging.folder, 0) as stage:
        stage.add(batch)
        parts = stage.finish().parts
    [message] = messages_of(staging.folder, "a", parts)
    assert decode_headers(message.payload) == tuple(HEADERS)
    assert [change.key for change in decode_row_changes(message.payload)] == [b"t/0", b"t/1", b"t/2"]


def test_rows_go_from_a_log_into_another_and_into_tables(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    """A stream with SQL between, the log sink and the target sink; a statement is run in its place."""
    orders = lp.table("orders", target="shop")
    first = [orders.put(id=nth, total=Decimal("1.50"), note=f"n{nth}").encoded for nth in range(4)]
    [alter] = lp.ddl("ALTER TABLE orders ADD tag text", ["shop"])
    second = orders.patch(id=1, tag="gift").encoded + orders.delete(id=2).encoded + encode_headers(HEADERS)
    wal.append([b"".join(first), alter.encoded, second])
    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total TEXT, note TEXT)")
    db.close()
    server = TargetServer({"shop": open_store("sqlite-tables", "shop", path=str(tmp_path / "shop.db"))})
    [address] = event_loop.run(server.start(grpc="127.0.0.1:0"))
    other = FileWal(tmp_path / "other")

    def each(batch: DataFrame, batch_id: int) -> None:
        lp.spark.once(batch, batch_id, log=other.serve(), staging=str(tmp_path / "to-log"))

    read = spark.readStream.format("logplayer").options(log=wal.address, includeHeaders="true").load()
    query = read.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "c1"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert [(change.op, change.key) for record in other.records() for change in decode_row_changes(record.payload)] == [
        (change.op, change.key) for record in wal.records() for change in decode_row_changes(record.payload)
    ]
    assert [decode_headers(record.payload) for record in other.records()][-2:] == [tuple(HEADERS)] * 2
    loud = read.selectExpr(
        "target",
        "log_index",
        "op",
        "value",
        "table",
        "key_columns",
        "replace(columns, '1.50', '2.75') columns",
        "headers",
    )
    sink = loud.writeStream.format("logplayer").options(to="targets", addresses=f"shop={address}")
    sink = sink.option("checkpointLocation", str(tmp_path / "c2"))
    sink.trigger(availableNow=True).start().awaitTermination()
    event_loop.run(server.stop())
    other.close()
    with sqlite3.connect(tmp_path / "shop.db") as db:
        found = db.execute("SELECT * FROM orders ORDER BY id").fetchall()
    db.close()
    assert found == [(0, "2.75", "n0", None), (1, "2.75", "n1", "gift"), (3, "2.75", "n3", None)]
    assert json.loads(read.schema.json())["fields"][-1]["name"] == "headers"

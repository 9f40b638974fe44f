"""``map check --database``: which foreign keys a map keeps, by the catalogs of real databases."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from zlib import crc32

import psycopg
import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logplayer as lp
from logplayer.core.entry import ExplicitMap, HashMap, RangeMap, ShardMap
from logplayer.errors import ConfigError, UserError
from logplayer.player.foreign_keys import RowShape, check_foreign_keys, count_torn, judge, shapes_in, shapes_of
from logplayer.player.maps import parse_map
from logplayer.target.stores.tables.foreign_keys import ForeignKey, Pair, TableKey, TableSchema, open_schema
from tests.player.player_support import logplayer

SHOP = """
CREATE TABLE {p}customers (id INTEGER PRIMARY KEY, boss INTEGER, FOREIGN KEY (boss) REFERENCES {p}customers (id));
CREATE TABLE {p}products (name VARCHAR(40) PRIMARY KEY);
CREATE TABLE {p}orders (customer INTEGER NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (customer, n),
  FOREIGN KEY (customer) REFERENCES {p}customers (id));
CREATE TABLE {p}order_lines (n INTEGER NOT NULL, customer INTEGER NOT NULL, i INTEGER NOT NULL, product VARCHAR(40),
  PRIMARY KEY (customer, n, i), FOREIGN KEY (n, customer) REFERENCES {p}orders (n, customer),
  FOREIGN KEY (product) REFERENCES {p}products (name));
INSERT INTO {p}customers VALUES (1, NULL), (2, 1), (3, 1), (4, 2);
INSERT INTO {p}products VALUES ('tea'), ('cup');
INSERT INTO {p}orders VALUES (1, 1), (2, 1), (3, 1), (4, 1);
INSERT INTO {p}order_lines VALUES (1, 1, 1, 'tea'), (1, 2, 1, 'cup'), (1, 3, 1, 'tea'), (1, 4, 1, NULL);
"""
PLACES = {"customers": "id", "": "customer"}
TAG, WHOLE = HashMap(("a", "b"), "tag"), HashMap(("a", "b"))


def statements(prefix: str = "") -> list[str]:
    return [one for one in SHOP.format(p=prefix).strip().split(";\n") if one.strip(";\n ")]


@pytest.fixture
def sqlite_shop(tmp_path: Path) -> str:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as db:
        for statement in statements():
            db.execute(statement)
    return str(path)


@pytest.fixture
def postgres_shop(postgres_url: str) -> str:
    """In a database of its own: other tests leave tables with foreign keys in theirs."""
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS torn WITH (FORCE)")
        db.execute("CREATE DATABASE torn")
    torn = urlsplit(postgres_url)._replace(path="/torn").geturl()
    with psycopg.connect(torn, autocommit=True) as db:
        db.execute("CREATE SCHEMA shop")
        for statement in statements("shop."):
            db.execute(statement.encode())
    return torn


@pytest.fixture
def mysql_shop(mysql_url: str) -> str:
    parts = urlsplit(mysql_url)
    socket = parse_qs(parts.query)["socket"][0]
    with (
        pymysql.connect(unix_socket=socket, user="root", database="shop", autocommit=True) as db,
        db.cursor() as cursor,
    ):
        cursor.execute("DROP DATABASE IF EXISTS torn")
        cursor.execute("CREATE DATABASE torn CHARACTER SET utf8mb4")
        cursor.execute("USE torn")
        for statement in statements():
            # InnoDB wants an index of the parent that begins with the referred columns in this order.
            cursor.execute(statement.replace("(n, customer) REFERENCES orders (n, customer)", _IN_ORDER))
    return mysql_url.replace("/shop?", "/torn?")


_IN_ORDER = "(customer, n) REFERENCES orders (customer, n)"


def judged(
    database: str, shard_map: ShardMap, schema: str = "public"
) -> dict[tuple[str, str], tuple[object, int, int]]:
    reader = open_schema(database, schema)
    try:
        found = check_foreign_keys(reader, shard_map, place=PLACES)
    finally:
        reader.close()
    return {(one.child, one.parent): (one.kept, one.rows, one.torn_rows) for one in found}


@pytest.mark.parametrize("shop", ["sqlite_shop", "postgres_shop", "mysql_shop"])
def test_every_catalog_is_understood(shop: str, request: pytest.FixtureRequest) -> None:
    database = request.getfixturevalue(shop)
    found = judged(database, TAG, "shop")
    assert {pair for pair, (kept, *_) in found.items() if kept} == {("order_lines", "orders"), ("orders", "customers")}
    torn = {pair: counts for pair, (kept, *counts) in found.items() if not kept}
    # customers/{2} and {3} are with 1 or not as CRC-32 says; order 4 has no product, so there are three lines.
    assert {pair: rows for pair, (rows, _) in torn.items()} == {
        ("customers", "customers"): 3,
        ("order_lines", "products"): 3,
    }
    assert all(count > 0 for _, count in torn.values())
    whole = judged(database, WHOLE, "shop")
    assert not any(kept for kept, *_ in whole.values())
    assert whole["order_lines", "orders"][1] == 4


def test_a_table_of_another_schema_has_its_schema_in_its_name(postgres_shop: str) -> None:
    with psycopg.connect(postgres_shop, autocommit=True) as db:
        db.execute("CREATE TABLE shop.notes (id int PRIMARY KEY, customer int REFERENCES shop.customers)")
    reader = open_schema(postgres_shop)
    found = [(key.child, key.parent) for key in reader.read().foreign_keys]
    reader.close()
    assert ("shop.notes", "shop.customers") in found


KEY = ForeignKey("", "order_lines", ("n", "customer"), "orders", ("n", "customer"))
BOSS = ForeignKey("", "customers", ("boss",), "customers", ("id",))
SHAPES = {
    "customers": RowShape(("id",), "id"),
    "orders": RowShape(("customer", "n"), "customer"),
    "order_lines": RowShape(("customer", "n", "i"), "customer"),
}
SAME = crc32(b"orders") % 2 == crc32(b"order_lines") % 2


@pytest.mark.parametrize(
    ("text", "lines", "boss"),
    [
        ("hash:a,b", False, False),
        ("hash[tag]:a,b", True, False),
        ("hash:a", True, True),
        ("hash[prefix /]:a,b", SAME, True),  # The table's name decides.
        ("hash[prefix :]:a,b", False, False),  # No key has a colon, so the whole key is hashed.
        ("range:a<m<b", True, True),  # order_lines/... and orders/... are after m.
        ("range:a<order<b<orders0<c", True, True),
        ("range:a<order_z<b", False, True),
        ("range:a<orders/5<b", False, True),
        ("explicit", None, None),
    ],
)
def test_each_kind_of_map(text: str, lines: bool | None, boss: bool | None) -> None:
    shard_map = parse_map(text)
    found = judge(KEY, SHAPES, shard_map), judge(BOSS, SHAPES, shard_map)
    assert tuple(verdict.kept for verdict in found) == (lines, boss)
    assert all(bool(verdict.remedy) == (verdict.kept is False) for verdict in found)


def test_the_columns_that_place_must_be_those_of_the_foreign_key() -> None:
    other = SHAPES | {"order_lines": RowShape(("customer", "n", "i"), "i")}
    assert judge(KEY, other, TAG).kept is False
    crossed = KEY._replace(referred=("customer", "n"))  # n of the child is the parent's customer.
    assert judge(crossed, SHAPES, TAG).kept is False
    assert "--place order_lines=n --place orders=customer" in judge(crossed, SHAPES, TAG).remedy
    bare = SHAPES | {"orders": RowShape(("customer", "n"))}
    assert "no column places the rows of orders" in judge(KEY, bare, TAG).why
    product = ForeignKey("", "order_lines", ("product",), "products", ("name",))
    assert "no rows of table products come by this log" in judge(product, SHAPES, TAG).why
    remedy = judge(product, SHAPES | {"products": RowShape(("name",))}, TAG).remedy
    assert remedy.startswith("make product a part of the primary key of order_lines")


@given(
    st.sampled_from([TAG, WHOLE, HashMap(("a", "b", "c"), "prefix /"), RangeMap((b"orders/{2",), ("a", "b"))]),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30),
)
def test_what_is_said_to_be_kept_is_kept_in_every_row(shard_map: ShardMap, rows: list[tuple[int, int, int]]) -> None:
    verdict = judge(KEY, SHAPES, shard_map)
    pairs = [Pair((customer, n, i), (customer, n)) for customer, n, i in rows]
    counted = count_torn(verdict, pairs, SHAPES, shard_map)
    assert counted.rows == len(rows)
    assert not (verdict.kept and counted.torn_rows)


def test_shapes_come_from_the_log_or_the_catalog() -> None:
    row = lp.table("lines", key=("a", "b"), place="b").put(a="x/y", b="{z}", c=1)
    logged = shapes_in([row.encoded, lp.put("k", "v").encoded, b"\xff"])
    assert logged == {"lines": RowShape(("a", "b"), "b")}
    schema = TableSchema({"lines": TableKey("lines", ("a", "b")), "t": TableKey("t", ("id",))}, [])
    assert shapes_of(schema, {}, logged) == {"lines": RowShape(("a", "b"), "b"), "t": RowShape(("id",))}
    assert shapes_of(schema, {"": "a"}, logged)["lines"].place == "a"
    for wrong in ({"lines": "c"}, {"nobody": "a"}):
        with pytest.raises(UserError, match="--place"):
            shapes_of(schema, wrong)


def test_explicit_maps_are_not_judged(sqlite_shop: str) -> None:
    assert {kept for kept, *_ in judged(sqlite_shop, ExplicitMap()).values()} == {None}


@pytest.mark.parametrize("database", ["redis://127.0.0.1/0", "/nowhere/shop.db", "postgresql://h:x/db", "mysql://h"])
def test_what_is_not_a_database_is_refused(database: str) -> None:
    with pytest.raises(UserError):
        open_schema(database)


def test_a_file_that_is_not_sqlite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be taken for one" * 9)
    with pytest.raises(ConfigError, match="cannot be read as an SQLite file"):
        open_schema(str(tmp_path / "text"))


@pytest.mark.asyncio
async def test_the_command(tmp_path: Path, sqlite_shop: str) -> None:
    address = f"file://{tmp_path}/log"
    async with lp.open_log(address) as log:
        orders = lp.table("orders", key=("customer", "n"), place="customer")
        await (await log.producer("p")).append(orders.put(customer=1, n=1))
    words = ("map", "check", "--log", address, "--map", "hash[tag]:a,b", "--database", sqlite_shop)
    facts = json.loads(await logplayer(*words, "--place", "customers=id", "--json"))
    kept = {(one["child"], one["parent"]): one["kept"] for one in facts["foreign_keys"]}
    assert kept["orders", "customers"] is True, "the log says how orders are placed"
    assert kept["order_lines", "orders"] is False, "nothing says it of the lines"
    text = await logplayer(*words, "--place", "customers=id", "--place", "customer")
    assert "2 of 4 foreign keys torn" in text
    assert "kept orders (customer) -> customers (id)" in text
    assert "rows are not with their parent, for example: " in text
    assert "warning: the target of a torn row refuses it" in text
    assert "give that too" in await logplayer(*words[:6], "--place", "x", code=2)

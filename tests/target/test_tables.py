"""Stores of tables: the user's own schema with its constraints on, types, poison that says what to do, statements."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import logplayer as lp
from logplayer.core.entry import Delivery, Mutation, Session
from logplayer.errors import ConfigError, Poison, UserError
from logplayer.target.protocol import Store
from logplayer.target.server import TargetServer
from logplayer.target.stores.open import open_store
from logplayer.testing.conformance.targets import SampleTransaction, conform
from logplayer.wire.rows import Column, Op, encode_row
from tests.target.store_places import Place, opening, playing, run_sql

S1 = Session(1, 1)
SCHEMA = (
    "CREATE TABLE c_{table} (id INT PRIMARY KEY, mail VARCHAR(40), CONSTRAINT mail_{table} UNIQUE (mail))",
    "CREATE TABLE o_{table} (id INT PRIMARY KEY, c INT NOT NULL, total DECIMAL(10, 2) DEFAULT 0, note VARCHAR(5),"
    " CONSTRAINT owner_{table} FOREIGN KEY (c) REFERENCES c_{table} (id) ON DELETE CASCADE,"
    " CONSTRAINT positive_{table} CHECK (total >= 0))",
)


class Shop:
    """Customers and orders in a store of tables."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.index = 0
        run_sql(place, *SCHEMA)
        self.store: Store = open_store(place.kind, place.name, path=place.path, url=place.url)
        self.store.apply(opening(S1))
        self.customers = lp.table(f"c_{place.table}")
        self.orders = lp.table(f"o_{place.table}")

    def play(self, *entries: list[Mutation]) -> None:
        """Apply entries as one batch."""
        messages = [
            Delivery(self.index + nth, b"".join(one.encoded for one in entry)) for nth, entry in enumerate(entries, 1)
        ]
        self.store.apply(playing(S1, self.index, self.index + len(entries), *messages))
        self.index += len(entries)

    def refuses(self, *entries: list[Mutation], at: int = 1) -> str:
        """What is said of the entry that is refused; nothing of the batch stays."""
        before = self.store.position(), list(self.store.scan())
        with pytest.raises(Poison) as poison:
            self.play(*entries)
        assert poison.value.index == self.index + at
        assert (self.store.position(), list(self.store.scan())) == before
        return str(poison.value)

    def rows(self, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
        return run_sql(self.place, f"SELECT {columns} FROM {table}_{self.place.table} ORDER BY 1")


@pytest.fixture
def shop(table_place: Place) -> Iterator[Shop]:
    made = Shop(table_place)
    yield made
    made.store.close()


def test_puts_patches_and_deletes(shop: Shop) -> None:
    shop.play(
        [shop.customers.put(id=1, mail="a"), shop.customers.put(id=2, mail="b")],
        [shop.orders.put(id=7, c=1, total=Decimal("9.90"), note="x"), shop.orders.put(id=8, c=2)],
        [shop.orders.patch(id=7, note="y"), shop.customers.put(id=1, mail=None)],
        [shop.orders.delete(id=8), shop.orders.delete(id=99)],
        [shop.customers.put(id=3), shop.customers.put(id=1)],  # Only the key: there is nothing else to write.
    )
    assert shop.rows("c") == [(1, None), (2, "b"), (3, None)]
    assert [(row[0], row[1], Decimal(str(row[2])), row[3]) for row in shop.rows("o")] == [(7, 1, Decimal("9.9"), "y")]


def test_the_same_row_many_times_in_one_batch(shop: Shop) -> None:
    shop.play(*[[shop.customers.put(id=1, mail=f"m{nth}")] for nth in range(5)], [shop.customers.patch(id=1, mail="z")])
    assert shop.rows("c") == [(1, "z")]


def test_a_deleted_parent_takes_its_children(shop: Shop) -> None:
    shop.play([shop.customers.put(id=1, mail="a"), shop.orders.put(id=7, c=1)])
    shop.play([shop.customers.delete(id=1), shop.orders.delete(id=7)])
    assert shop.rows("o") == []


def test_a_unique_value_may_move_between_rows(shop: Shop) -> None:
    """One statement for both may be refused, by its order; one after the other they pass, as at the source."""
    shop.play([shop.customers.put(id=nth, mail=f"m{nth}") for nth in range(1, 9)])
    shop.play(
        [shop.customers.patch(id=1, mail="free")],
        *[[shop.customers.patch(id=nth, mail=f"m{nth - 1}")] for nth in range(2, 9)],
    )
    assert shop.rows("c") == [(1, "free"), *((nth, f"m{nth - 1}") for nth in range(2, 9))]
    shop.play([shop.customers.put(id=8, mail="moved"), shop.customers.put(id=9, mail="m7")])
    assert shop.rows("c")[-2:] == [(8, "moved"), (9, "m7")]


def test_the_primary_key_may_change(shop: Shop) -> None:
    table = f"c_{shop.place.table}"
    shop.play([shop.customers.put(id=1, mail="a"), shop.customers.put(id=2, mail="b")])
    moved = [encode_row(Op.PATCH, table, [Column("id", old, True), Column("id", new)]) for old, new in ((2, 3), (1, 2))]
    shop.play(moved)
    assert shop.rows("c") == [(2, "a"), (3, "b")]


@pytest.mark.parametrize("batched", [False, True])
def test_another_unique_key_is_never_taken_for_the_primary_one(shop: Shop, batched: bool) -> None:
    shop.play([shop.customers.put(id=1, mail="a")])
    more = [shop.customers.put(id=nth, mail=f"m{nth}") for nth in range(5, 9)] if batched else []
    said = shop.refuses([*more, shop.customers.put(id=2, mail="a")])
    assert f"mail_{shop.place.table}" in said or f"c_{shop.place.table}.mail" in said  # SQLite names columns only.
    assert shop.rows("c") == [(1, "a")]


def test_what_a_constraint_refuses_names_it_and_what_to_do(shop: Shop) -> None:
    good = [shop.customers.put(id=1, mail="a")]
    said = shop.refuses(good, [shop.orders.put(id=7, c=5)], good, at=2)
    assert ("c -> c_" if shop.place.path else f"owner_{shop.place.table}") in said
    assert said.endswith("repair the data or the schema, or quarantine the entry")
    assert f"row o_{shop.place.table}/7: " in said
    said = shop.refuses(good, good, [shop.orders.put(id=7, c=1, total=-1)], at=3)
    assert f"positive_{shop.place.table}" in said
    shop.play(good)
    said = shop.refuses([shop.orders.put(id=7, c=None)])
    assert "NULL" in said.upper()


def test_what_is_not_in_the_schema_is_said(shop: Shop) -> None:
    assert "has no table 'nowhere'; create it" in shop.refuses([lp.table("nowhere").put(id=1)])
    assert "has no column 'x'; add it (ALTER TABLE)" in shop.refuses([shop.customers.put(id=1, x=1)])
    by_mail = lp.table(f"o_{shop.place.table}", key="note")
    assert "no primary or unique key on note" in shop.refuses([by_mail.put(id=1, c=1, note="x")])
    assert "has no row" in shop.refuses([shop.customers.put(id=1)], [shop.customers.patch(id=2, mail="x")], at=2)
    assert "is not a row of a table" in shop.refuses([lp.put("k", "v")])


def test_a_value_that_does_not_fit_is_refused_and_not_cut(shop: Shop) -> None:
    shop.play([shop.customers.put(id=1)])
    if shop.place.path:
        assert "NaN does not fit" in shop.refuses([shop.orders.put(id=7, c=1, total=float("nan"))])
        return
    for row in ({"note": "too long"}, {"total": Decimal("1E+20")}, {"note": "x", "total": "no number"}):
        shop.refuses([shop.orders.put(id=7, c=1, **row)])
        shop.refuses([shop.orders.put(id=7 + nth, c=1, **row) for nth in range(3)])


def test_a_schema_that_changes_beside_the_server_is_seen(shop: Shop) -> None:
    shop.play([shop.customers.put(id=1, mail="a")])
    run_sql(shop.place, "ALTER TABLE c_{table} ADD phone VARCHAR(20)")
    shop.play([shop.customers.put(id=1, mail="a", phone="1")], [shop.customers.put(id=2, mail="b", phone="2")])
    assert [row[2] for row in shop.rows("c")] == ["1", "2"]
    run_sql(shop.place, "ALTER TABLE c_{table} DROP COLUMN phone")
    assert "has no column 'phone'" in shop.refuses([shop.customers.put(id=1, mail="a", phone="1")])


def test_it_goes_on_after_a_quarantined_row(shop: Shop) -> None:
    bad = shop.orders.put(id=7, c=5)
    shop.refuses([bad])
    shop.store.apply(playing(S1, 0, 1, Delivery(1, bad.encoded, True)))
    assert list(shop.store.quarantine()) == [(1, bad.encoded)]
    shop.index = 1
    shop.play([shop.customers.put(id=5, mail="a")], [bad])
    assert len(shop.rows("o")) == 1


def test_rows_can_be_read_back(shop: Shop) -> None:
    shop.play([shop.customers.put(id=1, mail="a")])
    reader = open_store(shop.place.kind, shop.place.name, path=shop.place.path, url=shop.place.url, read_only=True)
    key = f"c_{shop.place.table}/1".encode()
    assert json.loads(reader.get(key) or b"") == {"id": 1, "mail": "a"}
    assert reader.get(key + b"0") is None
    with pytest.raises(lp.TargetError, match="opened for reading"):
        reader.apply(opening(S1))
    reader.close()


# --- Types. -----------------------------------------------------------------------------------------------

WHEN = datetime.datetime(2026, 11, 18, 12, 30, 1, 250000)
TYPES: dict[str, tuple[Any, str, str, str]] = {  # value: PostgreSQL's, MySQL's, SQLite's column.
    "boolean": (True, "boolean", "BOOLEAN", "INTEGER"),
    "integer": (-(2**63), "bigint", "BIGINT", "INTEGER"),
    "large": (2**70, "numeric", "DECIMAL(40)", "TEXT"),
    "real": (0.1, "double precision", "DOUBLE", "REAL"),
    "decimal": (Decimal("9.90"), "numeric(10,2)", "DECIMAL(10,2)", "TEXT"),
    "text": ("Zoë's 'x' \\ % {}", "text", "TEXT", "TEXT"),
    "binary": (b"\x00\xff'\\", "bytea", "BLOB", "BLOB"),
    "timestamp": (WHEN.replace(tzinfo=datetime.UTC), "timestamptz", "TIMESTAMP(6)", "TEXT"),
    "local": (WHEN, "timestamp", "DATETIME(6)", "TEXT"),
    "date": (WHEN.date(), "date", "DATE", "TEXT"),
    "time": (WHEN.time(), "time", "TIME(6)", "TEXT"),
    "uuid": (uuid.UUID(int=5), "uuid", "CHAR(36)", "TEXT"),
    "json": (lp.Json({"a": [1, None]}), "jsonb", "JSON", "TEXT"),
    "array": ([1, None, 3], "bigint[]", "JSON", "TEXT"),
    "null": (None, "int", "INT", "INT"),
}


def as_text(value: Any) -> str:
    """How a value reads in any of the three databases, as far as they agree."""
    if isinstance(value, datetime.timedelta):
        value = (datetime.datetime.min + value).time()
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, bool):
        value = int(value)
    text = str(value.text if isinstance(value, lp.Json) else value)
    return text.replace("+00:00", "").replace(" ", "").replace('"', "").replace("'", "").replace("None", "null")


@pytest.mark.parametrize("count", [1, 3])
def test_every_type_comes_through(table_place: Place, count: int) -> None:
    column = {"postgres-tables": 1, "mysql-tables": 2, "sqlite-tables": 3}[table_place.kind]
    columns = ", ".join(f"{name}_ {kinds[column]} NULL" for name, kinds in TYPES.items())
    run_sql(table_place, f"CREATE TABLE {{table}} (id INT PRIMARY KEY, {columns})")
    store = open_store(table_place.kind, table_place.name, path=table_place.path, url=table_place.url)
    store.apply(opening(S1))
    values = {f"{name}_": kinds[0] for name, kinds in TYPES.items()}
    rows = [lp.table(table_place.table).put(id=nth, **values).encoded for nth in range(count)]
    store.apply(playing(S1, 0, 1, Delivery(1, b"".join(rows))))
    for row in run_sql(table_place, "SELECT * FROM {table}"):
        for name, found in zip(TYPES, row[1:], strict=True):
            assert as_text(found) == as_text(TYPES[name][0]), name
    assert len(list(store.scan())) >= count
    store.close()


# --- Statements. ------------------------------------------------------------------------------------------


def test_a_statement_runs_once_in_its_place(shop: Shop) -> None:
    [alter] = lp.ddl(f"-- Numbers.\nALTER TABLE c_{shop.place.table} ADD phone VARCHAR(20)", ["a"])
    put = shop.customers.put(id=1, mail="a", phone="1")
    if shop.place.kind == "mysql-tables":
        assert "run it by hand when the target is blocked here" in shop.refuses([alter])
        return
    shop.play([shop.customers.put(id=1, mail="a")], [alter], [put])
    assert shop.rows("c") == [(1, "a", "1")]
    assert "has no column 'fax'" in shop.refuses(
        lp.ddl(f"ALTER TABLE c_{shop.place.table} ADD city VARCHAR(20)", ["a"]), [shop.customers.put(id=1, fax=1)], at=2
    )
    assert "has no column 'city'" in shop.refuses([shop.customers.put(id=1, city="x")])  # It was rolled back.


def test_a_statement_that_would_end_the_transaction_is_refused(shop: Shop) -> None:
    table = f"c_{shop.place.table}"
    put = [shop.customers.put(id=1, mail="a")]
    for text in ("COMMIT", "/* x */ ROLLBACK", "PRAGMA foreign_keys = OFF", f"DELETE FROM {table} WHERE id = 1", ""):
        assert "does not begin with" in shop.refuses(put, [encode(text)], at=2)
    for more in ("; COMMIT", f", {table}", " -- x", f" USING {table}", ".x.y"):
        assert "does not begin with" in shop.refuses(put, [encode(f"DELETE FROM {table}{more}")], at=2)
    shop.refuses(put, [encode(f"DROP TABLE {table}; COMMIT")], at=2)
    shop.refuses(put, [encode("ALTER TABLE nowhere ADD x INT")], at=2)
    if shop.place.kind == "postgres-tables":
        said = shop.refuses(put, [encode(f"CREATE INDEX CONCURRENTLY i ON {table} (mail)")], at=2)
        assert "CREATE INDEX without CONCURRENTLY" in said
    shop.play(put)


def test_a_table_is_emptied_in_its_place(shop: Shop) -> None:
    """The one statement that is data and no schema: also in MySQL, where it is part of the transaction."""
    rows = [shop.customers.put(id=1, mail="a"), shop.orders.put(id=7, c=1)]
    name = f'"o_{shop.place.table}"'
    shop.play(rows, [encode(f"DELETE FROM {name}")], [shop.orders.put(id=8, c=1)])
    assert [row[0] for row in shop.rows("o")] == [8]
    assert "has no table 'nowhere'" in shop.refuses(rows, [encode("DELETE FROM nowhere")], at=2)
    shop.play(rows, [encode(f"-- All.\ndelete from `c_{shop.place.table}` ;")])
    assert shop.rows("o") == shop.rows("c") == []  # ON DELETE CASCADE.


def test_a_table_is_emptied_under_its_name_here(tmp_path: Path) -> None:
    place = Place("sqlite-tables", str(tmp_path / "store"), "")
    run_sql(place, "CREATE TABLE shop_orders (id INT PRIMARY KEY)", "CREATE TABLE trail (id INT PRIMARY KEY)")
    file = tmp_path / "logplayer.toml"
    file.write_text('[tables.orders]\nname = "shop_orders"\n[tables.trail]\nignore = true\n')
    run_sql(place, "INSERT INTO trail VALUES (1)")
    store = open_store(place.kind, place.name, path=place.path, mapping=str(file))
    store.apply(opening(S1))
    emptied = encode('DELETE FROM "orders"').encoded + encode('DELETE FROM "trail"').encoded
    put = lp.table("orders").put(id=1).encoded
    store.apply(playing(S1, 0, 2, Delivery(1, put), Delivery(2, emptied)))
    assert run_sql(place, "SELECT * FROM shop_orders") == []
    assert run_sql(place, "SELECT * FROM trail") == [(1,)]
    store.close()


def encode(text: str) -> Mutation:
    from logplayer.wire.rows import encode_ddl

    return encode_ddl(text, "a")


# --- Constraints that are checked at the commit, other engines, other schemas, mappings. -------------------


@pytest.mark.parametrize("kind", ["sqlite-tables", "postgres-tables"])
def test_a_deferred_constraint_blames_the_right_entry(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = "" if kind.startswith("sqlite") else request.getfixturevalue("postgres_url")
    shop = Shop(Place(kind, str(tmp_path / "store") if not url else "", url))
    run_sql(
        shop.place,
        "CREATE TABLE l_{table} (id INT PRIMARY KEY, c INT REFERENCES c_{table} (id) DEFERRABLE INITIALLY DEFERRED)",
    )
    lines = lp.table(f"l_{shop.place.table}")
    shop.play([lines.put(id=1, c=1), shop.customers.put(id=1)])  # The child first: at the commit it is right.
    said = shop.refuses([shop.customers.put(id=2)], [lines.put(id=2, c=9)], [shop.customers.put(id=3)], at=2)
    assert "foreign key" in said.lower()
    shop.play([shop.customers.put(id=2)])
    shop.store.close()


def test_a_table_of_another_engine_is_refused(mysql_url: str) -> None:
    shop = Shop(Place("mysql-tables", "", mysql_url))
    run_sql(shop.place, "CREATE TABLE m_{table} (id INT PRIMARY KEY) ENGINE=MyISAM")
    assert "ENGINE=InnoDB" in shop.refuses([lp.table(f"m_{shop.place.table}").put(id=1)])
    shop.store.close()


def test_tables_of_another_schema(postgres_url: str) -> None:
    place = Place("postgres-tables", "", postgres_url)
    run_sql(place, f'CREATE SCHEMA "S {place.name}"', f'CREATE TABLE "S {place.name}".orders (id INT PRIMARY KEY)')
    store = open_store(place.kind, place.name, url=place.url, schema=f"S {place.name}")
    store.apply(opening(S1))
    [alter] = lp.ddl("ALTER TABLE orders ADD note text", ["a"])
    put = lp.table("orders").put(id=1, note="x")
    store.apply(playing(S1, 0, 2, Delivery(1, alter.encoded), Delivery(2, put.encoded)))
    assert run_sql(place, f'SELECT * FROM "S {place.name}".orders') == [(1, "x")]
    store.close()
    with pytest.raises(UserError, match="has no schema 'nowhere'"):
        open_store(place.kind, place.name, url=place.url, schema="nowhere")
    with pytest.raises(ConfigError, match="--schema is for"):
        open_store("sqlite-tables", "a", path="x.db", schema="s")


def test_a_table_of_another_schema_is_named_with_it(postgres_url: str) -> None:
    """As a capture names it: rows, statements and what is read back mean the same table."""
    place = Place("postgres-tables", "", postgres_url)
    schema = f"s{place.name}"
    run_sql(place, f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.orders (id INT PRIMARY KEY)")
    store = open_store(place.kind, place.name, url=place.url)
    store.apply(opening(S1))
    orders = lp.table(f"{schema}.orders")
    alter = encode(f'ALTER TABLE "{schema}"."orders" ADD COLUMN note text')
    rows = [[orders.put(id=1), orders.put(id=2)], [alter], [orders.patch(id=1, note="y"), orders.delete(id=2)]]
    entries = [Delivery(nth, b"".join(one.encoded for one in entry)) for nth, entry in enumerate(rows, 1)]
    store.apply(playing(S1, 0, 3, *entries))
    assert run_sql(place, f"SELECT * FROM {schema}.orders") == [(1, "y")]
    assert json.loads(store.get(f"{schema}.orders/1".encode()) or b"") == {"id": 1, "note": "y"}
    assert store.get(f"{schema}.orders/2".encode()) is None
    store.apply(playing(S1, 3, 4, Delivery(4, encode(f'DELETE FROM "{schema}"."orders"').encoded)))
    assert run_sql(place, f"SELECT * FROM {schema}.orders") == []
    # A table that has that very name comes first.
    run_sql(place, f'CREATE TABLE "{schema}.orders" (id INT PRIMARY KEY)')
    store.apply(playing(S1, 4, 5, Delivery(5, encode(f"COMMENT ON TABLE {schema}.orders IS NULL").encoded)))
    store.apply(playing(S1, 5, 6, Delivery(6, orders.put(id=3).encoded)))
    assert run_sql(place, f'SELECT * FROM "{schema}.orders"') == [(3,)]
    with pytest.raises(Poison, match=r"has no table 'nowhere\.orders'"):
        store.apply(playing(S1, 6, 7, Delivery(7, lp.table("nowhere.orders").put(id=3).encoded)))
    store.close()


def test_a_mapping_renames_ignores_and_adds(tmp_path: Path) -> None:
    place = Place("sqlite-tables", str(tmp_path / "store"), "")
    run_sql(place, "CREATE TABLE shop_orders (id INT PRIMARY KEY, amount INT, region TEXT)")
    file = tmp_path / "logplayer.toml"
    file.write_text(
        '[tables.orders]\nname = "shop_orders"\ncolumns = { total = "amount" }\nignore = ["note"]\n'
        'constants = { region = "eu" }\n[tables.trail]\nignore = true\n'
    )
    store = open_store(place.kind, place.name, path=place.path, mapping=str(file))
    store.apply(opening(S1))
    orders = lp.table("orders")
    rows = [orders.put(id=1, total=5, note="x"), orders.patch(id=1, note="y"), lp.table("trail").put(id=1)]
    store.apply(playing(S1, 0, 1, Delivery(1, b"".join(row.encoded for row in rows))))
    assert run_sql(place, "SELECT * FROM shop_orders") == [(1, 5, "eu")]
    store.close()
    for wrong in ("tables = 1", "[tables.a]\nx = 1", "[tables.a]\nignore = 1", "[tables.a]\nname = 1", "not toml"):
        file.write_text(wrong)
        with pytest.raises(ConfigError):
            open_store(place.kind, place.name, path=place.path, mapping=str(file))


# --- The kit. ---------------------------------------------------------------------------------------------


async def test_the_kit_judges_a_store_of_tables(table_place: Place) -> None:
    shop = Shop(table_place)
    shop.store.close()
    store = open_store(
        table_place.kind,
        f"k{table_place.name}",
        path=table_place.path and f"{table_place.path}-kit",
        url=table_place.url,
    )
    kit = Place(table_place.kind, table_place.path and f"{table_place.path}-kit", table_place.url)
    kit.name = table_place.name
    if table_place.path:
        run_sql(kit, *SCHEMA)
    samples = [
        SampleTransaction("line 1", shop.customers.put(id=1, mail="a").encoded + shop.orders.put(id=7, c=1).encoded),
        SampleTransaction("line 2", shop.orders.patch(id=7, note="x").encoded),
        SampleTransaction("line 3", shop.orders.delete(id=8).encoded),
    ]
    name = f"k{table_place.name}"
    server = TargetServer({name: store})
    [address] = await server.start(tcp="127.0.0.1:0")
    try:
        verdicts = await conform(address, name, samples=samples)
    finally:
        await server.stop()
    assert [str(one) for one in verdicts if one.ok is False] == []
    assert sum(one.ok is True for one in verdicts) > 10

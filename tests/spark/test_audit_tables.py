"""Audit of targets in tables: every row against what the log says, by the database's own idea of its values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

import logplayer as lp
from logplayer.core.entry import Delivery, ExplicitMap, Mutation, Quarantined
from logplayer.log.open import LogPlace
from logplayer.log.protocol import Kind
from logplayer.spark import event_loop
from logplayer.spark.jobs import expected_state
from logplayer.spark.jobs.archive_job import archive_log
from logplayer.spark.jobs.audit import audit
from logplayer.spark.jobs.compare import ComparedStore, StoreAddress, compare_store
from logplayer.spark.jobs.compare_tables import RowMerge
from logplayer.spark.jobs.row_fold import GONE
from logplayer.spark.jobs.verdict import AuditVerdict
from logplayer.spark.routes import Routes, load_routes
from logplayer.spark.source.plan import Piece
from logplayer.target.stores.open import open_store
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping, read_mapping
from logplayer.target.stores.tables.runs import deleted_table, emptied_tables
from logplayer.wire.rows import Column, Op, encode_ddl, encode_row
from tests.spark.spark_support import FileWal
from tests.target.store_places import Place, of_target, opening_of, run_sql, table_place

__all__ = ["table_place"]  # The fixture.
UTC = datetime.UTC
AT = datetime.datetime(2026, 11, 18, 12, 0, 0, 123456)


class Audited:
    """A log, a target in tables that is filled from it, and their audit."""

    def __init__(self, wal: FileWal, place: Place, tmp_path: Path, mapping: TableMapping = NO_MAPPING) -> None:
        self.wal, self.place, self.folder, self.mapping = wal, place, str(tmp_path / "scratch"), mapping
        stamp = "timestamptz" if place.kind.startswith("postgres") else "DATETIME(6)"
        run_sql(
            place,
            f"CREATE TABLE {{table}} (id INT PRIMARY KEY, name VARCHAR(20), total DECIMAL(10, 2), at {stamp},"
            " note VARCHAR(20) DEFAULT 'none', tag VARCHAR(40))",
        )
        self.table = lp.table(place.table)
        self.mapping_file = ""

    def append(self, *entries: list[Mutation]) -> list[int]:
        addressed = [[of_target(one, self.place.name) for one in entry] for entry in entries]
        return self.wal.append([b"".join(one.encoded for one in entry) for entry in addressed])

    def fill(self) -> None:
        """Play the log into the store."""
        store = open_store(
            self.place.kind, self.place.name, path=self.place.path, url=self.place.url, mapping=self.mapping_file
        )
        info = event_loop.run(self.wal.log.info())
        routes = event_loop.run(load_routes(self.wal.log, ExplicitMap()))
        aside = routes.quarantined.get(self.place.name, frozenset())
        messages = [
            Delivery(record.index, record.payload, record.index in aside, record.chain)
            for record in self.wal.records()
            if record.kind == Kind.DATA
        ]
        for change in opening_of(store.position(), info, messages):
            store.apply(change)
        store.close()

    def parts(self, cuts: list[int]) -> list[expected_state.Folded]:
        """What tasks make of the log, cut after these entries."""
        last = self.wal.last()
        ends = [*cuts, last]
        pieces = [Piece(first + 1, end) for first, end in zip([0, *cuts], ends, strict=True)]
        routes = event_loop.run(load_routes(self.wal.log, ExplicitMap()))
        name, kinds = self.place.name, {self.place.name: self.mapping}
        jobs = [
            expected_state.Job(LogPlace(self.wal.address), piece, routes, {name: last}, self.folder, kinds)
            for piece in pieces
        ]
        return [part for job in jobs for part in expected_state.fold_piece(job)]

    def verdict(self, *cuts: int) -> AuditVerdict:
        """As the tasks of an audit find it, in this process."""
        at = StoreAddress(self.place.kind, self.place.path or self.place.url, mapping=self.mapping)
        parts = self.parts(list(cuts))
        log = LogPlace(self.wal.address)
        store = ComparedStore(self.place.name, at, log, Routes(), parts, self.folder, self.wal.last())
        return compare_store(store)

    def differences(self, *cuts: int) -> list[tuple[int, str, str]]:
        verdict = self.verdict(*cuts)
        assert verdict.digest == verdict.expected
        return [(one.index, one.key.decode(), one.what) for one in verdict.differences]


@pytest.fixture
def audited(wal: FileWal, table_place: Place, tmp_path: Path) -> Audited:
    return Audited(wal, table_place, tmp_path)


def shop(audited: Audited) -> None:
    """Six entries; five rows are left."""
    put, patch, delete = audited.table.put, audited.table.patch, audited.table.delete
    audited.append(
        [put(id=nth, name=f"Name {nth}", total=Decimal("9.9"), at=AT.replace(tzinfo=UTC)) for nth in range(1, 6)],
        [patch(id=2, total=Decimal("10.5")), put(id=3, note=None), delete(id=5)],
        [put(id=6, tag=str(UUID(int=6)), name="é%'\\"), patch(id=1, name="one")],
        [delete(id=4), put(id=4, name="again")],
        [encode_row(Op.PATCH, audited.place.table, [Column("id", 3, True), Column("id", 30), Column("name", "moved")])],
        [patch(id=30, tag="x")],
    )


@pytest.mark.parametrize("cuts", [(), (1, 2, 3, 4, 5), (4,), (1, 5)])
def test_a_target_that_has_what_the_log_says_is_right(audited: Audited, cuts: tuple[int, ...]) -> None:
    shop(audited)
    audited.fill()
    verdict = audited.verdict(*cuts)
    assert (verdict.differences, verdict.notes, verdict.right) == ([], [], True)
    assert (verdict.keys, verdict.entries) == (5, 6)


def test_a_row_that_was_changed_or_lost_or_added_is_named(audited: Audited) -> None:
    shop(audited)
    audited.fill()
    table = audited.place.table
    run_sql(audited.place, "UPDATE {table} SET name = 'ONE', total = 1 WHERE id = 1")
    assert audited.differences(2) == [(3, f"{table}/1", "has another value in name, total")]
    run_sql(audited.place, "DELETE FROM {table} WHERE id = 30")
    run_sql(audited.place, "INSERT INTO {table} (id, name) VALUES (77, 'x')")
    run_sql(audited.place, "INSERT INTO {table} (id, name) VALUES (5, 'back')")
    assert audited.differences(2) == [
        (0, f"{table}/77", "is there, and no entry wrote it"),
        (2, f"{table}/5", "was deleted and is there"),
        (3, f"{table}/1", "has another value in name, total"),
        (6, f"{table}/30", "is missing"),
    ]


def test_a_letter_in_another_case_and_a_null_are_other_values(audited: Audited) -> None:
    """Also where the database's collation takes them for equal."""
    shop(audited)
    audited.fill()
    table = audited.place.table
    run_sql(audited.place, "UPDATE {table} SET name = 'NAME 2' WHERE id = 2")
    run_sql(audited.place, "UPDATE {table} SET note = 'free' WHERE id = 2")  # No entry has written it.
    run_sql(audited.place, "UPDATE {table} SET note = '' WHERE id = 30")
    assert audited.differences() == [
        (2, f"{table}/2", "has another value in name"),
        (6, f"{table}/30", "has another value in note"),
    ]


def test_the_mapping_is_applied(audited: Audited, tmp_path: Path) -> None:
    text = (
        f'[tables.orders]\nname = "{audited.place.table}"\ncolumns = {{ who = "name" }}\nignore = ["secret"]\n'
        'constants = { tag = "eu" }\n[tables.trail]\nignore = true\n'
    )
    (tmp_path / "map.toml").write_text(text)
    audited.mapping_file = str(tmp_path / "map.toml")
    audited.mapping = read_mapping(audited.mapping_file)
    audited.append([lp.table("orders").put(id=1, who="a", secret="s"), lp.table("trail").put(id=1)])
    audited.fill()
    assert audited.differences() == []
    run_sql(audited.place, "UPDATE {table} SET tag = 'us' WHERE id = 1")
    assert audited.differences() == [(1, f"{audited.place.table}/1", "has another value in tag")]


def test_statements_of_the_log_are_noticed(audited: Audited) -> None:
    table, name = audited.place.table, audited.place.name
    audited.append([audited.table.put(id=1, name="a", tag="t"), audited.table.put(id=2, name="b")])
    if audited.place.kind == "mysql-tables":  # It refuses them: the operator runs the statement, and quarantines it.
        audited.append(list(lp.ddl(f"ALTER TABLE {table} DROP COLUMN tag", targets=[name])))
        audited.wal.decide(Quarantined(name, 2), ExplicitMap(), [(name, "")])
        audited.fill()
        run_sql(audited.place, "ALTER TABLE {table} DROP COLUMN tag")
    else:
        audited.append(
            list(lp.ddl(f"ALTER TABLE {table} DROP COLUMN tag", targets=[name])),
        )
        audited.fill()
    verdict = audited.verdict()
    assert verdict.right, verdict
    assert verdict.notes == [
        "the log changes the schema of this target: entries 2",
        f"table {table!r} has no column 'tag', and what the log had for it was not compared",
    ]


def test_a_column_that_somebody_dropped_is_a_difference(audited: Audited) -> None:
    audited.append([audited.table.put(id=1, tag="t")])
    audited.fill()
    run_sql(audited.place, "ALTER TABLE {table} DROP COLUMN tag")
    assert audited.differences() == [
        (0, audited.place.table, f"cannot be compared: table {audited.place.table!r} has no column 'tag'")
    ]


def test_a_table_that_the_log_empties_has_what_came_after(wal: FileWal, tmp_path: Path, postgres_url: str) -> None:
    audited = Audited(wal, Place("postgres-tables", "", postgres_url), tmp_path)
    put, name = audited.table.put, audited.place.name
    audited.append([put(id=1, name="a"), put(id=2, name="b")])
    statement = f'TRUNCATE public."{audited.place.table}" CASCADE'
    audited.append(list(lp.ddl(statement, targets=[name])), [put(id=2, tag="c")])
    audited.fill()
    for cuts in ((), (1,), (2,), (1, 2)):
        assert audited.differences(*cuts) == []
    left = {row.key.decode(): row.effect for row in RowMerge(audited.parts([1])).rows()}
    assert left[f"{audited.place.table}/1"].base == GONE
    assert left[f"{audited.place.table}/2"].columns == {"id": 2, "tag": "c"}


def test_a_database_that_cannot_compare_is_not_judged(wal: FileWal, tmp_path: Path, postgres_url: str) -> None:
    audited = Audited(wal, Place("postgres-tables", "", postgres_url), tmp_path)
    audited.append([audited.table.put(id=1, name="too long")])
    audited.fill()
    run_sql(audited.place, "ALTER TABLE {table} ALTER COLUMN name TYPE varchar(3) USING left(name, 3)")
    verdict = audited.verdict()
    assert not verdict.judged
    assert not verdict.right
    assert "PostgreSQL cannot compare its rows: value too long" in verdict.problem


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("TRUNCATE orders", ["orders"]),
        ("/* x */ truncate table only a, s.b restart identity cascade;", ["a", "b"]),
        ("TRUNCATE a, public.b, other.c", ["a", "public.b", "other.c"]),
        ('DROP TABLE IF EXISTS "my ""own""", `x`', ['my "own"', "x"]),
        ("ALTER TABLE a DROP COLUMN b", []),
        ("DROP INDEX a", []),
    ],
)
def test_which_tables_a_statement_empties(sql: str, tables: list[str]) -> None:
    assert emptied_tables(sql, "s") == tables


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ('DELETE FROM "t"', "t"),
        ('-- x\ndelete  from\n"s"."my ""own""";', 's.my "own"'),
        ("DELETE FROM public.`t`", "t"),
        ("DELETE FROM t WHERE true", ""),
        ("TRUNCATE t", ""),
    ],
)
def test_which_table_a_capture_empties(sql: str, table: str) -> None:
    assert deleted_table(sql) == table


def test_a_table_that_a_capture_empties_has_what_came_after(audited: Audited) -> None:
    put, name = audited.table.put, audited.place.name
    audited.append([put(id=1, name="a"), put(id=2, name="b")])
    audited.append([encode_ddl(f'DELETE FROM "{audited.place.table}"', name)], [put(id=2, tag="c")])
    audited.fill()
    for cuts in ((), (1,), (2,), (1, 2)):
        verdict = audited.verdict(*cuts)
        assert verdict.right, (cuts, verdict)
        assert not verdict.notes  # It is no change of the schema.


def test_an_audit_compares_tables_of_another_schema(wal: FileWal, tmp_path: Path, postgres_url: str) -> None:
    audited = Audited(wal, Place("postgres-tables", "", postgres_url), tmp_path)
    schema = f"s{audited.place.name}"
    run_sql(audited.place, f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.orders (id INT PRIMARY KEY, note TEXT)")
    orders = lp.table(f"{schema}.orders")
    audited.append([orders.put(id=nth, note="x") for nth in range(3)], [orders.put(id=2, note="y")])
    audited.fill()
    assert audited.differences() == []
    run_sql(audited.place, f"UPDATE {schema}.orders SET note = 'z' WHERE id = 1")
    assert audited.differences() == [(1, f"{schema}.orders/1", "has another value in note")]


def test_a_key_without_a_table_should_have_blocked_the_target(audited: Audited) -> None:
    audited.append([audited.table.put(id=1, name="a")])
    audited.fill()
    audited.append([lp.put("k", "v")])
    parts = audited.parts([])
    assert [index for part in parts for index, _ in part.refused] == [2]


def test_an_audit_on_spark_compares_tables(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    """Through Spark, from the archive and from the log, beside a target of which only the address is known."""
    audited = Audited(wal, Place("sqlite-tables", str(tmp_path / "shop.db"), ""), tmp_path)
    shop(audited)
    audited.fill()
    archive = str(tmp_path / "archive")
    archive_log(spark, wal.address, archive, 2)
    event_loop.run(wal.log.trim(3))
    name = audited.place.name
    stores = {name: f"sqlite-tables:{audited.place.path}"}
    [verdict] = audit(spark, wal.address, stores=stores, archive=archive)
    assert (verdict.right, verdict.content_checked, verdict.keys) == (True, True, 5), verdict
    run_sql(audited.place, "UPDATE {table} SET name = 'x' WHERE id = 6")
    [verdict] = audit(spark, wal.address, stores=stores, archive=archive)
    assert [(one.index, one.key, one.what) for one in verdict.differences] == [
        (3, b"data/6", "has another value in name")
    ]
    server = lp.TargetServer({name: open_store("sqlite-tables", name, path=audited.place.path)})
    [address] = event_loop.run(server.start(grpc="127.0.0.1:0"))
    try:
        [verdict] = audit(spark, wal.address, addresses={name: address}, archive=archive)
    finally:
        event_loop.run(server.stop())
    assert (verdict.right, verdict.content_checked) == (True, False), verdict

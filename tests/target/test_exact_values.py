"""Stores of tables keep a value as it is, or refuse it: what a database would round, cut or pad in silence."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import logplayer as lp
from logplayer.core.entry import Delivery, Session
from logplayer.errors import Poison
from logplayer.target.stores.open import open_store
from logplayer.target.stores.tables.exact import limit_of
from tests.target.store_places import Place, opening, playing, run_sql

SERVERS = ("postgres-tables", "mysql-tables")
S1 = Session(1, 1)
NOON = datetime.datetime(2026, 11, 18, 12, 0, 0)
FINE = NOON.replace(microsecond=123456)
MILLI = NOON.replace(microsecond=123000)
# PostgreSQL's column, MySQL's (empty: it has none, or keeps the value), values that fit, values that would be changed.
CASES: list[tuple[str, str, list[Any], list[Any]]] = [
    ("numeric(8,2)", "DECIMAL(8,2)", [Decimal("9.90"), Decimal("9.9000"), Decimal(0), Decimal("1E+3"), 7, 0.25],
     [Decimal("9.999"), Decimal("0.001"), 0.125, "1.234"]),
    ("numeric", "", [Decimal("0.12345678901234567890"), 0.1], [0.1 + 0.2]),
    ("smallint", "SMALLINT", [7, Decimal("7.00"), 7.0], [Decimal("7.5"), 7.5]),
    ("bigint", "BIGINT", [2**62, Decimal(2**62)], [Decimal("0.5"), 1e-3]),
    ("integer", "INT", [None, 7], [Decimal("7.000001")]),
    ("real", "FLOAT", [0.5, 0.33333334, 7, Decimal("0.25"), 1e10], [0.1234567891, 2**24 + 1, Decimal("0.123456789")]),
    ("double precision", "DOUBLE", [0.1, 2**53, Decimal("0.1")], [2**53 + 1, Decimal("0.12345678901234567890")]),
    ("varchar(3)", "VARCHAR(3)", ["abc", "a  ", "äöü"], ["abc ", "a     ", "abcd"]),
    ("char(3)", "CHAR(3)", ["abc", "a"], ["abc ", "abcd"]),
    ("timestamp(3)", "DATETIME(3)", [NOON, MILLI], [FINE]),
    ("timestamptz(0)", "TIMESTAMP", [NOON.replace(tzinfo=datetime.UTC)], [MILLI.replace(tzinfo=datetime.UTC)]),
    ("time(0)", "TIME", [NOON.time()], [FINE.time()]),
    ("date", "DATE", [NOON.date(), datetime.datetime(2026, 11, 18)], [NOON]),
    ("time", "TIME(6)", [FINE.time()], [NOON]),
    ("boolean", "", [True, False], [2]),
    ("", "BINARY(3)", [b"abc"], [b"ab"]),
    ("cents", "", [Decimal("0.50")], [Decimal("0.505")]),
]  # fmt: skip


class Column:
    """A table with one column beside its key, in a store."""

    def __init__(self, place: Place, declared: str) -> None:
        self.place, self.index = place, 0
        run_sql(place, f"CREATE TABLE {{table}} (id INT PRIMARY KEY, v {declared} NULL)")
        self.store = open_store(place.kind, place.name, path=place.path, url=place.url)
        self.store.apply(opening(S1))

    def write(self, values: list[Any]) -> None:
        table = lp.table(self.place.table)
        payload = b"".join(table.put(id=nth, v=value).encoded for nth, value in enumerate(values))
        self.store.apply(playing(S1, self.index, self.index + 1, Delivery(self.index + 1, payload)))
        self.index += 1


def place_of(kind: str, request: pytest.FixtureRequest) -> Place:
    return Place(kind, "", request.getfixturevalue(f"{kind.removesuffix('-tables')}_url"))


SERVER_CASES = [(kind, nth) for nth, one in enumerate(CASES) for kind, has in zip(SERVERS, one, strict=False) if has]


@pytest.fixture(params=SERVER_CASES, ids=[f"{CASES[nth][SERVERS.index(kind)]}-{kind}" for kind, nth in SERVER_CASES])
def case(request: pytest.FixtureRequest) -> Iterator[tuple[Column, list[Any], list[Any]]]:
    kind, nth = request.param
    place, declared = place_of(kind, request), str(CASES[nth][SERVERS.index(kind)])
    if declared == "cents":
        run_sql(place, "CREATE DOMAIN cents_{table} AS numeric(8,2)")
        declared = f"cents_{place.table}"
    made = Column(place, declared)
    yield made, *CASES[nth][2:]
    made.store.close()


def test_a_value_is_kept_or_refused(case: tuple[Column, list[Any], list[Any]]) -> None:
    column, good, bad = case
    for value in good:
        column.write([value])  # One row, and several of them, are written in different ways.
        column.write([value, good[0], value])
        found = run_sql(column.place, "SELECT v FROM {table}")
        assert same(found[0][0], value), (found, value)
        assert same(found[-1][0], value), (found, value)
    for value in bad:
        for rows in ([value], [good[0], value, good[0]]):
            with pytest.raises(Poison, match=r"column 'v' \(.*\) cannot hold .* as it is.*ALTER TABLE|too long"):
                column.write(rows)


def same(found: Any, value: Any) -> bool:
    if isinstance(found, datetime.timedelta):
        found = (datetime.datetime.min + found).time()
    if isinstance(found, datetime.datetime) and isinstance(value, datetime.datetime):
        return found.replace(tzinfo=None) == value.replace(tzinfo=None)
    if isinstance(found, datetime.date) and isinstance(value, datetime.datetime):
        return found == value.date()
    if isinstance(found, str) and isinstance(value, str):
        return found.rstrip(" ") == value.rstrip(" ")
    if isinstance(value, float) and not isinstance(found, float):
        return float(found) == value
    if isinstance(found, float):
        return abs(found - float(value)) <= 2e-6 * abs(found)
    return bool(found == value)


@pytest.mark.parametrize(("declared", "value"), [("char(5)", "abcde"), ("bit(5)", "10101"), ("varbit(5)", "101")])
def test_many_rows_of_fixed_length_are_not_cut(postgres_url: str, declared: str, value: str) -> None:
    """In a cast, ``character`` and ``bit`` are those of length one."""
    column = Column(Place("postgres-tables", "", postgres_url), declared)
    column.write([value] * 3)
    assert run_sql(column.place, "SELECT v::text FROM {table}") == [(value,)] * 3
    column.store.close()


WIDEN = {"postgres-tables": "ALTER COLUMN v TYPE numeric(9,3)", "mysql-tables": "MODIFY v DECIMAL(9,3)"}


@pytest.mark.parametrize("kind", SERVERS)
def test_a_column_that_becomes_wider_takes_the_value(request: pytest.FixtureRequest, kind: str) -> None:
    column = Column(place_of(kind, request), "DECIMAL(8,2)")
    with pytest.raises(Poison, match="as it is"):
        column.write([Decimal("0.125")])
    run_sql(column.place, f"ALTER TABLE {{table}} {WIDEN[kind]}")
    column.write([Decimal("0.125")])
    assert run_sql(column.place, "SELECT v FROM {table}") == [(Decimal("0.125"),)]
    column.store.close()


def test_a_long_decimal_does_not_become_a_float_of_sqlite(tmp_path: Path) -> None:
    column = Column(Place("sqlite-tables", str(tmp_path / "store"), ""), "DECIMAL(30,10)")
    column.write([Decimal("12345.678901234"), Decimal("1.50")])
    with pytest.raises(Poison, match=r"declare it TEXT.*cannot hold .* as it is"):
        column.write([Decimal("12345678901234.56789")])
    column.store.close()


@pytest.mark.parametrize(
    "declared", ["text", "jsonb", "mood", "bigint[]", "varchar(3)[]", "longtext", "enum('a')", "uuid"]
)
def test_most_types_need_no_look(declared: str) -> None:
    assert limit_of(declared, 6) is None

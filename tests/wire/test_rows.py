"""Rows: what goes into a message comes out of it, and equal primary keys have equal bytes."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logplayer as lp
from logplayer.core.entry import Delivery, HashMap
from logplayer.core.routing import owner_of
from logplayer.errors import Malformed, Poison, UserError
from logplayer.target.protocol import decode_rows
from logplayer.wire.entries import decode_transaction, encode_headers, route_transaction, split_transaction
from logplayer.wire.logplayer.v1 import entry_pb2 as pb
from logplayer.wire.rows import Column, Op, decode_row, decode_row_changes, encode_row
from logplayer.wire.values import decode_tagged
from tests.wire.plain_fastpath import BOTH

scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.decimals(allow_nan=False, places=3) | st.sampled_from([Decimal("NaN"), Decimal("1E+30"), Decimal("-Infinity")]),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.datetimes() | st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.times(),
    st.uuids(),
    st.recursive(st.integers() | st.text(), st.lists, max_leaves=4).map(lambda value: lp.Json([value])),
)
values = st.recursive(st.none() | scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
names = st.text(st.characters(categories=["L"]), min_size=1, max_size=8)
key_values = scalars.filter(lambda value: not isinstance(value, lp.Json))


@st.composite
def rows(draw: st.DrawFn) -> tuple[str, list[Column]]:
    found = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    keys = draw(st.integers(1, len(found)))
    columns = [Column(name, draw(key_values), True) for name in found[:keys]]
    return draw(names), columns + [Column(name, draw(values)) for name in found[keys:]]


def same(one: Any, other: Any) -> bool:
    """Equal and of one type; NaN is equal to itself here, and a number keeps its zeros."""
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    if isinstance(one, Decimal):
        return isinstance(other, Decimal) and str(one) == str(other)
    return type(one) is type(other) and bool(one == other)


@given(rows())
def test_a_row_comes_out_as_it_went_in(row: tuple[str, list[Column]]) -> None:
    table, columns = row
    made = encode_row(Op.PUT, table, columns, target="t1")
    found = decode_row(made.encoded)
    assert (found.op, found.table, found.key, found.target) == (Op.PUT, table, made.key, "t1")
    assert [(one.name, one.key) for one in found.columns] == [(one.name, one.key) for one in columns]
    for one, other in zip(found.columns, columns, strict=True):
        assert same(one.value, other.value), (one, other)


Flat = list[tuple[Any, tuple[Any, ...]]]


def flat(runs: list[Any]) -> Flat:
    """The rows of runs, one by one: the form and the values."""
    return [(run.form, row) for run in runs for row in run.rows]


@given(st.lists(rows(), max_size=4), st.booleans())
def test_rows_in_their_form_are_the_same_rows(some: list[tuple[str, list[Column]]], distinct: bool) -> None:
    """Compiled or not: all values with their types, or nothing at all where the generated code has to read them."""
    made = [encode_row(Op.PUT, table, columns, target="t" * (len(columns) % 2)) for table, columns in some]
    payload = b"".join(one.encoded for one in made) + encode_headers({"trace": "1"})
    for module in BOTH:
        reader = module.RowReader(decode_tagged, distinct=distinct)
        for _ in range(2):  # The second time it knows the forms.
            runs: list[Any] = []
            if not reader.read(payload, runs):
                assert any(leaves_to_generated_code(column.value) for _, columns in some for column in columns)
                assert runs == []
                continue
            for (form, values), (table, columns) in zip(flat(runs), some, strict=True):
                assert (form.op, form.table) == (Op.PUT, table)
                assert list(zip(form.names, form.keys, strict=True)) == [(one.name, one.key) for one in columns]
                assert all(same(value, column.value) for value, column in zip(values, columns, strict=True))
            for run in runs:
                assert not distinct or len(run.seen) == len(run.rows)


def leaves_to_generated_code(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, int) and not -(1 << 62) <= value < 1 << 62)


@given(st.lists(rows(), min_size=1, max_size=3), st.data())
def test_damaged_rows_are_read_as_the_generated_code_reads_them(
    some: list[tuple[str, list[Column]]], data: st.DataObject
) -> None:
    """The fast path may leave bytes to the generated code; what it reads, that code reads in the same way."""
    payload = bytearray(b"".join(encode_row(Op.PUT, table, columns).encoded for table, columns in some))
    readers = [module.RowReader(decode_tagged) for module in BOTH]
    for reader in readers:
        reader.read(bytes(payload), [])  # It knows the forms.
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = decode_row_changes(bytes(payload))
    except Malformed:
        expected = None
    answers: list[Any] = []
    for reader in readers:
        runs: list[Any] = []
        try:
            answers.append(flat(runs) if reader.read(bytes(payload), runs) else None)
        except Malformed:
            answers.append("malformed")
            assert expected is None
    assert repr(answers[0]) == repr(answers[1])
    if isinstance(answers[0], list):
        assert expected is not None
        for (form, values), change in zip(answers[0], expected, strict=True):
            assert (form.op, form.table, form.names) == (change.op, change.table, tuple(c.name for c in change.columns))
            assert form.keys == tuple(column.key for column in change.columns)
            assert all(same(value, column.value) for value, column in zip(values, change.columns, strict=True))


@given(st.datetimes(), st.booleans())
def test_a_timestamp_as_text_is_what_python_writes(at: datetime, zone: bool) -> None:
    at = at.replace(tzinfo=UTC) if zone else at
    payload = encode_row(Op.PUT, "t", [Column("id", 1, True), Column("at", at)]).encoded
    for module in BOTH:
        runs: list[Any] = []
        assert module.RowReader(decode_tagged, zone="+00:00").read(payload, runs)
        assert runs[0].rows == [(1, at.isoformat(" "))]


@pytest.mark.parametrize("module", BOTH)
def test_rows_make_as_few_runs_as_there_can_be(module: Any) -> None:
    def row(op: Op, table: str, nth: int, *more: Column) -> bytes:
        return encode_row(op, table, [Column("id", nth, True), *more]).encoded

    a1, a2, b1 = (row(Op.PUT, table, nth, Column("x", nth)) for table, nth in (("a", 1), ("a", 2), ("b", 1)))
    gone, moved = row(Op.DELETE, "a", 1), row(Op.PATCH, "a", 2, Column("id", 3))
    payloads = [a1 + a2, a1, b1 + a1, gone + row(Op.DELETE, "a", 2), moved + moved]
    for distinct, expected in ((False, [3, 1, 1, 2, 1, 1]), (True, [2, 1, 1, 1, 2, 1, 1])):
        reader = module.RowReader(decode_tagged, distinct=distinct)
        runs: list[Any] = []
        assert all(reader.read(payload, runs) for payload in payloads)
        assert [len(run.rows) for run in runs] == expected
        assert not reader.read(a1 + b"\x0a\x00", runs)  # Nothing of it stays.
        assert [len(run.rows) for run in runs] == expected
    runs = []
    assert reader.read(a1 + row(Op.PUT, "a", 1, Column("y", 1)) + a1, runs)  # Other names, of the same length.
    assert [run.form.names for run in runs] == [("id", "x"), ("id", "y"), ("id", "x")]


@given(st.lists(rows(), min_size=1, max_size=3), st.sampled_from(["", "tag", "prefix /"]))
def test_rows_are_routed_as_they_are(some: list[tuple[str, list[Column]]], by: str) -> None:
    """The fast path, compiled or not, and the generated code cut and route the same bytes, and change none."""
    made = [encode_row(Op.PUT, table, columns, place=columns[0].name) for table, columns in some]
    payload = b"".join(one.encoded for one in made)
    assert list(split_transaction(payload)) == made
    owner = owner_of(HashMap(("t0", "t1", "t2"), by))
    expected: dict[str, bytes] = {}
    for one in made:
        expected[owner(one.key)] = expected.get(owner(one.key), b"") + one.encoded
    assert route_transaction(payload, owner) == (expected, 0)
    for module in BOTH:
        # Arrays and numbers of 64 bits are left to the generated code.
        assert module.read_parts(payload, owner) in ((expected, 0), None)
        assert module.read_rows(1, payload) is None


@pytest.mark.parametrize("op", [Op.PATCH, Op.DDL])
@pytest.mark.parametrize("module", BOTH)
def test_the_new_operations_are_routed_by_the_fast_path(module: Any, op: Op) -> None:
    mutation = lp.table("orders").patch(id=7, paid=True) if op == Op.PATCH else lp.ddl("ALTER", ["a"])[0]
    assert module.read_parts(mutation.encoded, lambda key: "a") == ({"a": mutation.encoded}, 0)
    assert module.read_changes(mutation.encoded) is None


def test_an_operation_of_the_future_is_poison_everywhere() -> None:
    body = pb.Mutation(key=b"orders/7", table="orders", columns=[pb.Column(name="id", key=True)])
    encoded = bytearray(body.SerializeToString())
    encoded[10:10] = b"\x18\x04"  # Mutation.op
    payload = b"\x0a" + bytes([len(encoded)]) + bytes(encoded)
    for read in (decode_transaction, decode_row_changes):
        with pytest.raises(Malformed):
            read(payload)


@pytest.mark.parametrize(
    "mutation",
    [
        lp.table("orders").put(id=7),
        lp.table("orders").patch(id=7, paid=True),
        lp.table("orders").delete(id=7),
        *lp.ddl("ALTER TABLE orders ADD note text", ["a"]),
    ],
)
def test_a_store_of_keys_and_values_refuses_rows(mutation: lp.Mutation) -> None:
    with pytest.raises(Poison, match="keys and values only; serve the target with a store of tables") as raised:
        decode_rows(Delivery(9, lp.put("k", "v").encoded + mutation.encoded))
    assert raised.value.index == 9


def test_a_store_of_tables_refuses_keys_without_a_table() -> None:
    with pytest.raises(Malformed, match="is not a row of a table"):
        decode_row_changes(lp.put("k", "v").encoded)


def test_a_statement_is_alone() -> None:
    rows = lp.table("orders").put(id=7).encoded
    statement = lp.ddl("ALTER TABLE orders ADD note text", ["a"])[0]
    assert decode_row(statement.encoded).sql == "ALTER TABLE orders ADD note text"
    with pytest.raises(Malformed, match="an entry of its own"):
        decode_row_changes(rows + statement.encoded)


# --- Keys. ------------------------------------------------------------------------------------------------

SAMPLES = [
    (7, "7"),
    (2**70, str(2**70)),
    (True, "true"),
    (Decimal("9.90"), "9.9"),
    (Decimal("1E+3"), "1000"),
    (Decimal("-0.00"), "0"),
    (Decimal("NaN"), "NaN"),
    (-0.0, "0.0"),
    (1e300, "1e+300"),
    ("a/b{c}%", "a%2Fb%7Bc%7D%25"),
    ("Zoë", "Zoë"),
    (b"\x00\xff", "00ff"),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (datetime(2026, 11, 18, 12, tzinfo=UTC), "2026-11-18T12:00:00Z"),
    (datetime(2026, 11, 18, 14, 0, 0, 5, tzinfo=timezone(timedelta(hours=2))), "2026-11-18T12:00:00.000005Z"),
    (datetime(2026, 11, 18, 12), "2026-11-18T12:00:00"),
    (date(2026, 11, 18), "2026-11-18"),
    (time(12, 30), "12:30:00"),
]


@pytest.mark.parametrize(("value", "text"), SAMPLES, ids=[text for _, text in SAMPLES])
def test_a_key_can_be_read(value: Any, text: str) -> None:
    assert lp.table("orders").delete(id=value).key == f"orders/{text}".encode()
    placed = lp.table("orders", place="id").delete(id=value)
    assert placed.key == f"orders/{{{text}}}".encode()
    assert owner_of(HashMap(("a", "b", "c"), "tag"))(placed.key) == owner_of(HashMap(("a", "b", "c")))(text.encode())


@given(st.tuples(key_values, key_values), st.tuples(key_values, key_values))
def test_keys_that_differ_have_keys_that_differ(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    """Of one type in each column, as a table has it."""
    if any(type(a) is not type(b) for a, b in zip(one, other, strict=True)):
        return
    if any(
        isinstance(a, datetime) and (a.tzinfo is None) != (b.tzinfo is None) for a, b in zip(one, other, strict=True)
    ):
        return
    keys = [encode_row(Op.DELETE, "t", [Column("a", a, True), Column("b", b, True)]).key for a, b in (one, other)]
    equal = all(a == b or same(a, b) for a, b in zip(one, other, strict=True))
    assert (keys[0] == keys[1]) == equal


def test_a_patch_may_change_the_primary_key() -> None:
    made = encode_row(Op.PATCH, "orders", [Column("id", 7, True), Column("id", 8), Column("paid", None)])
    assert made.key == b"orders/7"
    assert decode_row(made.encoded).columns == (Column("id", 7, True), Column("id", 8), Column("paid", None))


def test_an_integer_that_is_too_large_is_a_decimal() -> None:
    assert decode_row(lp.table("t").put(id=1, n=2**63).encoded).columns[1].value == Decimal(2**63)


# --- What is refused, with what to do. --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: lp.table("orders").put(total=1), "needs its key column 'id'"),
        (lambda: lp.table("orders").put(id=None), "a primary key cannot be null"),
        (lambda: lp.table("orders").put(id=[1]), "cannot be part of a primary key"),
        (lambda: lp.table("orders").put(id=1, x=object()), "column 'x' of table 'orders': a object has no type"),
        (lambda: lp.table("orders").put(id=1, x=time(1, tzinfo=UTC)), "time with a zone"),
        (lambda: lp.table("orders").put(id=1, x=Decimal("sNaN")), "signalling NaN"),
        (lambda: lp.table("orders").put(id="\ud800"), "UTF-8"),
        (lambda: lp.table("orders").put(id=1, x="\ud800"), "UTF-8"),
        (lambda: lp.table("orders").patch(id=1), "changes nothing"),
        (lambda: lp.table("orders").delete(id=1, x=2), "takes the key columns only"),
        (lambda: lp.table("orders", place="x"), "not in its key"),
        (lambda: lp.table(""), "needs a name and a key"),
        (lambda: lp.ddl(" ", ["a"]), "there is no statement"),
        (lambda: lp.ddl("ALTER", []), "needs the names of the targets"),
        (lambda: lp.Json(object()), "JSON has no form"),
        (lambda: encode_row(Op.PUT, "t", [Column("a", 1)]), "has no key column"),
        (lambda: encode_row(Op.PUT, "t", [Column("a", 1, True), Column("a", 2)]), "a column twice"),
        (lambda: encode_row(Op.DDL, "t", []), "is not a row"),
        (lambda: encode_row(Op.PUT, "", []), "the name of its table"),
        (lambda: encode_row(Op.PUT, "t", [Column("a", 1, True)], place="b"), "not a key column"),
    ],
)
def test_what_cannot_be_a_row_is_said(make: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        make()


@pytest.mark.parametrize(
    "value",
    [
        pb.Value(decimal="nine"),
        pb.Value(timestamp_us=2**62),
        pb.Value(local_timestamp_us=-(2**62)),
        pb.Value(date_days=2**30),
        pb.Value(time_us=86_400_000_000),
        pb.Value(uuid=b"short"),
    ],
)
def test_a_value_that_python_cannot_hold_is_malformed(value: pb.Value) -> None:
    body = pb.Mutation(table="t", columns=[pb.Column(name="a", value=value, key=True)]).SerializeToString()
    with pytest.raises(Malformed):
        decode_row(b"\x0a" + bytes([len(body)]) + body)

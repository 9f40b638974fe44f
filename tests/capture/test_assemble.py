"""From messages to transactions: what each kind of change becomes."""

from __future__ import annotations

from typing import Any

import pytest

from logplayer.capture import pgoutput as pg
from logplayer.capture.assemble import Assembler
from logplayer.capture.settings import HEADER_BYTES, CaptureStopped, Choices, SourceTable
from logplayer.capture.transactions import SourceTransaction, parts
from logplayer.errors import EntryTooLarge, Malformed, UserError
from logplayer.log.protocol import ENTRY_BYTES_MAX
from logplayer.wire.entries import decode_headers, encode_headers
from logplayer.wire.rows import Column, Op, decode_row_changes, encode_row

DEFAULT = Choices()
T = SourceTable("public", "t", ("id",))
LINES = SourceTable("shop", "lines", ("order", "nr"), place="order")
TABLES = {(table.schema, table.name): table for table in (T, LINES)}


def relation(*columns: str, oid: int = 1, name: str = "t", schema: str = "public", identity: str = "d") -> pg.Relation:
    """Columns as ``name:type``; a star marks the identity."""
    made = []
    for column in columns:
        label, _, kind = column.rstrip("*").partition(":")
        made.append(pg.RelationColumn(label, int(kind or 25), -1, column.endswith("*")))
    return pg.Relation(oid, schema, name, identity, tuple(made))


PLAIN = relation("v", "id:23*", "big")


def run(*messages: pg.SourceMessage, choices: Choices = DEFAULT, known: Any = None) -> SourceTransaction | None:
    assembler = Assembler(TABLES, {9001: 23}, choices, known)
    assembler.feed(pg.Begin(100, 1_700_000_000_000_000, 7))
    for message in messages:
        assert assembler.feed(message) is None
    return assembler.feed(pg.Commit(100, 148, 1_700_000_000_000_000))


def changes(transaction: SourceTransaction | None) -> list[tuple[str, bytes, dict[str, Any]]]:
    """Operation, key and columns; a column of the key has a star."""
    assert transaction is not None
    out = []
    for payload in parts(transaction, Choices(split_large=True)):
        for change in decode_row_changes(payload):
            columns = {f"{name}*" if key else name: value for name, value, key in change.columns}
            out.append((change.op.name, change.key, columns))
    return out


def test_an_insert_is_a_put_with_the_key_first() -> None:
    assert changes(run(PLAIN, pg.Insert(1, ("a", "7", None)))) == [
        ("PUT", b"t/7", {"id*": 7, "v": "a", "big": None}),
    ]


def test_an_update_is_a_put_of_the_whole_row() -> None:
    assert changes(run(PLAIN, pg.Update(1, None, ("a", "7", "b")))) == [
        ("PUT", b"t/7", {"id*": 7, "v": "a", "big": "b"})
    ]


def test_a_value_that_postgresql_left_out_is_left_out() -> None:
    found = changes(run(PLAIN, pg.Update(1, None, ("a", "7", pg.UNCHANGED))))
    assert found == [("PATCH", b"t/7", {"id*": 7, "v": "a"})]


def test_a_changed_key_is_a_patch_with_both() -> None:
    found = changes(run(PLAIN, pg.Update(1, (None, "7", None), ("a", "8", pg.UNCHANGED))))
    assert found == [("PATCH", b"t/7", {"id*": 7, "id": 8, "v": "a"})]


def test_of_a_key_of_two_columns_only_what_changed_is_given_twice() -> None:
    described = relation("order:23*", "nr:23*", "what", name="lines", schema="shop")
    found = changes(run(described, pg.Update(1, ("1", "2", None), ("1", "3", "tea"))))
    assert found == [("PATCH", b"shop.lines/{1}/2", {"order*": 1, "nr*": 2, "nr": 3, "what": "tea"})]


def test_with_identity_full_the_old_row_fills_what_was_left_out() -> None:
    described = relation("v*", "id:23*", "big*", identity="f")
    found = changes(run(described, pg.Update(1, ("a", "7", "long"), ("b", "7", pg.UNCHANGED))))
    assert found == [("PUT", b"t/7", {"id*": 7, "v": "b", "big": "long"})]
    assert changes(run(described, pg.Delete(1, ("a", "7", "long")))) == [("DELETE", b"t/7", {"id*": 7})]


def test_a_delete_has_the_key_only() -> None:
    assert changes(run(PLAIN, pg.Delete(1, (None, "7", None)))) == [("DELETE", b"t/7", {"id*": 7})]


def test_a_domain_has_the_type_under_it() -> None:
    assert changes(run(relation("id:9001*"), pg.Insert(1, ("7",)))) == [("PUT", b"t/7", {"id*": 7})]


def test_rows_of_other_tables_are_left_out_and_nothing_is_no_entry() -> None:
    assert run(relation("id*", name="other"), pg.Insert(1, ("7",))) is None
    assert run(pg.LogicalMessage(True, 1, "someone", b"else")) is None
    assert run(pg.LogicalMessage(False, 1, "logplayer", b"{}")) is None
    assert run(pg.Origin("x"), pg.TypeName(1, "a", "b")) is None


def test_the_headers_name_the_commit() -> None:
    transaction = run(PLAIN, pg.Insert(1, ("a", "7", None)))
    assert transaction is not None
    [payload] = parts(transaction, Choices())
    assert decode_headers(payload) == (
        ("pg-lsn", b"0/94"),
        ("pg-commit-time", b"2023-11-14T22:13:20.000000Z"),
        ("pg-xid", b"7"),
    )


def test_a_value_that_does_not_fit_stops_with_its_place_or_becomes_text() -> None:
    described, row = relation("id:23*", "at:1184"), pg.Insert(1, ("7", "infinity"))
    with pytest.raises(UserError, match=r"table t, column at: 'infinity' does not fit .* --unfit text"):
        run(described, row)
    found = changes(run(described, row, choices=Choices(unfit="text")))
    assert found == [("PUT", b"t/7", {"id*": 7, "at": "infinity"})]


def test_a_truncate_stops_or_is_given_on() -> None:
    with pytest.raises(UserError, match=r"TRUNCATE on t.*--on-truncate ddl"):
        run(PLAIN, pg.Truncate((1,)))
    transaction = run(PLAIN, pg.Truncate((1,)), choices=Choices(truncate="ddl", ddl_targets=("a",)))
    assert transaction is not None
    assert transaction.truncated == [T]


KNOWN = {"t": (("v", 25, -1), ("id", 23, -1), ("big", 25, -1))}


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (relation("v", "id:23*", "big", "new"), "column new is new"),
        (relation("v", "id:23*"), "column big is gone"),
        (relation("v", "id:20*", "big"), "column id has another type"),
        (relation("id:23*", "v", "big"), "the order of its columns differs"),
    ],
)
def test_a_table_that_changed_stops(after: pg.Relation, said: str) -> None:
    with pytest.raises(UserError, match=f"table t of the source has changed: {said}.*--on-schema-change accept"):
        run(after, known=KNOWN)
    transaction = run(after, pg.Delete(1, tuple("7" for _ in after.columns)), known=KNOWN, choices=Choices("accept"))
    assert transaction is not None
    assert len(transaction.changes) == 1


def test_only_an_added_column_can_become_a_statement() -> None:
    ddl = Choices("ddl", ddl_targets=("a",))
    added = relation("v", "id:23*", "big", "new")
    transaction = run(added, pg.Delete(1, (None, "7", None, None)), known=KNOWN, choices=ddl)
    assert transaction is not None
    assert transaction.changes[0].added == ("new",)
    with pytest.raises(UserError, match="column big is gone"):
        run(relation("v", "id:23*"), known=KNOWN, choices=ddl)
    with pytest.raises(UserError, match="--ddl-targets"):
        Choices("ddl")


def test_what_the_log_has_is_not_read_and_its_tables_are_not_judged() -> None:
    """Two commits may follow each other without a byte in between, so one that begins at ``seen`` is new."""
    assembler = Assembler(TABLES, {}, DEFAULT, KNOWN, seen=148)
    old = relation("v", "id:23*")
    for message in (pg.Begin(100, 0, 7), old, pg.Insert(1, ("a", "7")), pg.Truncate((1,)), pg.Commit(100, 148, 0)):
        assert assembler.feed(message) is None
    assert assembler.known == KNOWN
    assembler.feed(pg.Begin(148, 0, 8))
    with pytest.raises(UserError, match="column big is gone"):
        assembler.feed(pg.Insert(1, ("a", "8")))
    assembler.feed(PLAIN)
    assert assembler.feed(pg.Insert(1, ("a", "8", "b"))) is None
    transaction = assembler.feed(pg.Commit(148, 196, 0))
    assert changes(transaction) == [("PUT", b"t/8", {"id*": 8, "v": "a", "big": "b"})]


@pytest.mark.parametrize("mode", ["stop", "accept"])
def test_of_a_transaction_that_was_cut_the_rest_is_read_and_judged(mode: str) -> None:
    """Its end is known, its beginning is not: it begins before ``seen`` as those that the log has as a whole."""
    assembler = Assembler(TABLES, {}, Choices(mode), KNOWN, seen=295, cut=True)
    other = relation("id*", oid=2, name="other")
    for message in (pg.Begin(100, 0, 7), relation("v", "id:23*"), pg.Insert(1, ("a", "7")), pg.Commit(100, 148, 0)):
        assert assembler.feed(message) is None
    for message in (pg.Begin(250, 0, 8), other, pg.Insert(2, ("x",)), pg.Insert(1, ("a", "8")), PLAIN):
        assert assembler.feed(message) is None
    assert assembler.feed(pg.Insert(1, ("a", "9", "b"))) is None
    if mode == "stop":
        with pytest.raises(UserError, match="column big is gone"):
            assembler.feed(pg.Commit(250, 296, 0))
        return
    transaction = assembler.feed(pg.Commit(250, 296, 0))
    assert [key for _, key, _ in changes(transaction)] == [b"t/8", b"t/9"]
    assert transaction is not None
    assert len(transaction.changes) == 2


def test_what_is_made_again_is_not_judged_and_what_follows_is() -> None:
    assembler = Assembler(TABLES, {}, DEFAULT)
    assembler.remaking = True
    for at, described in enumerate((relation("v", "id:23*"), PLAIN)):
        assembler.feed(pg.Begin(at, 0, 7))
        assembler.feed(described)
        assembler.feed(pg.Delete(1, (None, "7", None)[: len(described.columns)]))
        transaction = assembler.feed(pg.Commit(at, at, 0))
        assert transaction is not None
        assert len(transaction.changes) == at
    assembler.judge({"t": KNOWN["t"][:1]})
    assembler.feed(pg.Begin(9, 0, 7))
    with pytest.raises(UserError, match="column id is new, column big is new"):
        assembler.feed(pg.Delete(1, (None, "7", None)))


@pytest.mark.parametrize("name", ["public.t_old", "archive.t"])
def test_a_captured_table_under_another_name_stops(name: str) -> None:
    """Its rows are left out otherwise, and what follows is confirmed."""
    schema, _, table = name.partition(".")
    away = relation("v", "id:23*", "big", name=table, schema=schema)
    row, renamed_row = pg.Insert(1, ("a", "7", None)), pg.Insert(1, ("a", "8", None))
    said = rf"table t of the source is called {name} now.*ALTER TABLE .*--on-schema-change accept"
    for choices in (DEFAULT, Choices("ddl", ddl_targets=("a",))):
        with pytest.raises(CaptureStopped, match=said) as stopped:
            run(PLAIN, row, away, renamed_row, choices=choices)
        assert stopped.value.reason == "schema_change"
    found = changes(run(PLAIN, row, away, renamed_row, PLAIN, choices=Choices("accept")))
    assert [key for _, key, _ in found] == [b"t/7", b"t/8"]


@pytest.mark.parametrize("mode", ["stop", "accept"])
def test_another_table_under_a_captured_name_stops(mode: str) -> None:
    """Which rows the first one had when it was dropped is not in the stream."""
    other = relation("v", "id:23*", "big", oid=2)
    with pytest.raises(CaptureStopped, match=r"table t of the source is another one now.*new --slot") as stopped:
        run(PLAIN, pg.Insert(1, ("a", "7", None)), other, pg.Insert(2, ("a", "7", None)), choices=Choices(mode))
    assert stopped.value.reason == "schema_change"


def test_rows_of_a_renamed_table_are_held_until_it_is_known_whether_the_log_has_them() -> None:
    assembler = Assembler(TABLES, {}, Choices("accept"), KNOWN, seen=295, cut=True, oids={1: ("public", "t")})
    away = relation("v", "id:23*", "big", name="t_old")
    for message in (pg.Begin(250, 0, 8), away, pg.Insert(1, ("a", "8", None))):
        assert assembler.feed(message) is None
    assert changes(assembler.feed(pg.Commit(250, 296, 0))) == [("PUT", b"t/8", {"id*": 8, "v": "a", "big": None})]


def test_another_replica_identity_stops() -> None:
    with pytest.raises(UserError, match=r"no longer has the primary key \(id\)"):
        run(relation("v*", "id:23", "big"))
    with pytest.raises(UserError, match=r"no longer has the primary key \(id\)"):
        run(relation("v", "id:23", "big", identity="n"))


def test_a_large_transaction_stops_or_is_cut() -> None:
    rows = [pg.Insert(1, ("x" * 3000, str(nth), None)) for nth in range(5)]
    with pytest.raises(EntryTooLarge, match="--split-large"):
        run(PLAIN, *rows, choices=Choices(entry_bytes=8000))
    cut = Choices(entry_bytes=8000, split_large=True)
    transaction = run(PLAIN, *rows, choices=cut)
    assert transaction is not None
    payloads = parts(transaction, cut)
    assert [dict(decode_headers(payload))["pg-part"] for payload in payloads] == [b"1/3", b"2/3", b"3/3"]
    assert all(len(payload) <= 8000 for payload in payloads)
    assert [change.key for payload in payloads for change in decode_row_changes(payload)] == [
        f"t/{nth}".encode() for nth in range(5)
    ]
    with pytest.raises(EntryTooLarge, match="one change"):
        run(PLAIN, pg.Insert(1, ("x" * 9000, "1", None)), choices=cut)


def test_an_outbox_message_is_a_part_of_its_transaction() -> None:
    message = b'{"mutations": [{"key": "mail", "value": "hi"}], "headers": {"trace": "1"}}'
    transaction = run(PLAIN, pg.Insert(1, ("a", "7", None)), pg.LogicalMessage(True, 9, "logplayer", message))
    assert transaction is not None
    assert len(transaction.mutations) == 2
    [payload] = parts(transaction, Choices())
    assert decode_headers(payload)[-1] == ("trace", b"1")


def test_a_transaction_may_fill_an_entry_but_for_its_headers() -> None:
    """The room that is left for headers is what the longest ones take, and little more."""
    longest = SourceTransaction(253402300799_999999, 2**32 - 1, 2**64 - 1)
    headers = encode_headers([*longest.own_headers(), ("pg-part", "999999/999999")])
    name = "x" * 63
    rows = encode_headers([("pg-snapshot", "rows"), ("pg-table", SourceTable(name, name, ()).log_name)])
    assert max(len(headers), len(rows)) <= HEADER_BYTES <= max(len(headers), len(rows)) + 32
    room = ENTRY_BYTES_MAX - HEADER_BYTES
    around = len(encode_row(Op.PUT, "t", [Column("id", 7, True), Column("v", "x" * room), Column("big", None)]).encoded)
    largest = run(PLAIN, pg.Insert(1, ("x" * (2 * room - around), "7", None)))
    assert largest is not None
    assert [len(mutation) for mutation in largest.mutations] == [room]
    [payload] = parts(largest, DEFAULT)
    assert ENTRY_BYTES_MAX - HEADER_BYTES < len(payload) <= ENTRY_BYTES_MAX
    with pytest.raises(EntryTooLarge):
        run(PLAIN, pg.Insert(1, ("x" * (2 * room - around + 1), "7", None)))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x00\x01", "cannot be understood"),
        (b"{", "not JSON"),
        (b'{"mutations": []}', "empty list"),
        (b'{"mutations": [{"key": "k", "value": "v"}], "headers": {"pg-lsn": "0/0"}}', "belongs to the capture"),
        (b'{"producer": "p", "sequence": 1, "mutations": [{"key": "k", "value": "v"}]}', "names a producer"),
    ],
)
def test_a_bad_outbox_message_stops_or_is_left_out(content: bytes, said: str) -> None:
    message = pg.LogicalMessage(True, 9, "logplayer", content)
    with pytest.raises(UserError, match=f"{said}.*--on-bad-message drop"):
        run(message)
    assert run(message, choices=Choices(bad_message="drop")) is None


@pytest.mark.parametrize(
    "messages",
    [
        [pg.Insert(1, ("a",))],
        [PLAIN, pg.Insert(1, ("a",))],
        [pg.Begin(1, 1, 1)],
    ],
)
def test_messages_out_of_order_are_refused(messages: list[pg.SourceMessage]) -> None:
    with pytest.raises(Malformed):
        run(*messages)
    with pytest.raises(Malformed):
        Assembler(TABLES, {}, Choices()).feed(pg.Commit(1, 1, 1))

"""Rows as lines of JSON: what ``log dump`` prints, ``log append`` takes, and it is the same entry."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

import logplayer as lp
from logplayer.errors import UserError
from logplayer.log.json_lines import parse_line, payload_to_dict
from logplayer.wire.rows import Column, Op, decode_row, encode_row
from tests.wire.test_rows import rows


@given(rows())
def test_a_row_that_is_shown_can_be_appended(row: tuple[str, list[Column]]) -> None:
    table, columns = row
    made = encode_row(Op.PUT, table, columns, place=columns[0].name, target="t")
    shown = json.dumps(payload_to_dict(made.encoded))
    assert parse_line(shown, "line 1").payload == made.encoded


def test_the_form_is_as_documented() -> None:
    line = (
        '{"mutations": [{"table": "orders", "op": "patch", "key": ["id"], "columns": {"id": 7, '
        '"total": {"decimal": "9.90"}, "at": {"timestamp": "2026-11-18T12:00:00Z"}, "tags": {"array": ["a", null]}, '
        '"data": {"json": {"x": 1}}}}]}'
    )
    payload = parse_line(line, "line 1").payload
    found = decode_row(payload)
    assert (found.op, found.key) == (Op.PATCH, b"orders/7")
    shown = payload_to_dict(payload)["mutations"][0]
    assert shown["columns"]["total"] == {"decimal": "9.90"}
    assert shown["columns"]["data"] == {"json": '{"x":1}'}


def test_a_changed_primary_key_and_a_statement_are_shown() -> None:
    moved = encode_row(Op.PATCH, "orders", [Column("id", 7, True), Column("id", 8)])
    shown = payload_to_dict(moved.encoded)
    assert shown["mutations"][0]["columns"] == [("id", 7), ("id", 8)]
    assert parse_line(json.dumps(shown), "line 1").payload == moved.encoded
    [statement] = lp.ddl("ALTER TABLE orders ADD note text", ["a"])
    assert payload_to_dict(statement.encoded) == {
        "mutations": [{"op": "ddl", "sql": "ALTER TABLE orders ADD note text", "target": "a"}]
    }


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"table": "t"}, "does not name its key columns"),
        ({"table": "t", "key": ["id"]}, "has no columns"),
        ({"table": "t", "key": ["id"], "columns": {"x": 1}}, "has no column 'id'"),
        ({"table": "t", "key": ["id"], "columns": {"id": None}}, "cannot be null"),
        ({"table": "t", "key": ["id"], "columns": {"id": 1}, "op": "ddl"}, "must be put, patch or delete"),
        ({"table": "t", "key": ["id"], "columns": {"id": 1, "x": [1]}}, "names its type"),
        ({"table": "t", "key": ["id"], "columns": {"id": 1, "x": {"decimal": "x"}}}, "'x' is not a decimal"),
        ({"table": "t", "key": ["id"], "columns": {"id": {"timestamp": "2026-01-01T00:00"}}}, "not a timestamp"),
        ({"table": "t", "key": ["id"], "columns": {"id": 1}, "value": "v"}, "unknown field 'value'"),
        ({"table": 7, "key": ["id"], "columns": {"id": 1}}, "must be text"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(row: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_line(json.dumps({"mutations": [row]}), "line 1")

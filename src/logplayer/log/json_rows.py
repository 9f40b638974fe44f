"""Rows as JSON, for ``log append`` and ``log dump``: what JSON has as it is, other types named by an object.

    {"table": "orders", "op": "put", "key": ["id"], "columns": {"id": 7, "total": {"decimal": "9.90"}}}

A row whose column is there twice, because a patch changes the primary key, has its columns as a list of pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from logplayer.core.entry import Mutation
from logplayer.errors import LogPlayerError, UserError
from logplayer.wire.logplayer.v1 import entry_pb2 as pb
from logplayer.wire.rows import Column, Op, decode_row, encode_row, row_change, row_key
from logplayer.wire.values import Json

OPS = {"put": Op.PUT, "patch": Op.PATCH, "delete": Op.DELETE}
FIELDS = {"table", "op", "key", "columns", "place", "target"}


def parse_row(value: dict[str, Any], where: str) -> pb.Mutation:
    """A row as a line gave it, or what is wrong with it."""
    return pb.Transaction.FromString(encode_json_row(value, where).encoded).mutations[0]


def encode_json_row(value: dict[str, Any], where: str) -> Mutation:
    """The same, encoded."""
    op = value.get("op", "put")
    if op not in OPS:
        raise UserError(f"{where} has op {op!r}; of a row it must be put, patch or delete")
    key, target, place = value.get("key"), value.get("target", ""), value.get("place", "")
    if not isinstance(key, list) or not key or not all(isinstance(name, str) for name in key):
        raise UserError(f'{where} does not name its key columns; write for example "key": ["id"]')
    if not isinstance(value["table"], str) or not isinstance(target, str) or not isinstance(place, str):
        raise UserError(f"{where}: table, place and target must be text")
    pairs = value.get("columns")
    pairs = list(pairs.items()) if isinstance(pairs, dict) else pairs
    if not isinstance(pairs, list) or any(not isinstance(one, (list, tuple)) or len(one) != 2 for one in pairs):
        raise UserError(f'{where} has no columns; write for example "columns": {{"id": 7, "paid": true}}')
    columns = _with_keys(
        [(str(name), parse_value(one, f"{where}, column {name!r}")) for name, one in pairs], key, where
    )
    try:
        return encode_row(OPS[op], value["table"], columns, place=place, target=target)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _with_keys(pairs: list[tuple[str, Any]], key: list[str], where: str) -> list[Column]:
    """The columns, those of the key first and in its order; a second one of a name is the new value."""
    left = list(pairs)
    keys = []
    for name in key:
        found = next((pair for pair in left if pair[0] == name), None)
        if found is None:
            raise UserError(f"{where} has no column {name!r}, which its key names")
        left.remove(found)
        keys.append(Column(name, found[1], True))
    return keys + [Column(name, value) for name, value in left]


def parse_value(value: Any, where: str) -> Any:
    """One value of a row."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict) and len(value) == 1:
        [(kind, content)] = value.items()
        if kind == "array" and isinstance(content, list):
            return [parse_value(item, where) for item in content]
        if kind == "json":
            return Json(content)
        if kind in READERS and isinstance(content, str):
            try:
                return READERS[kind](content)
            except (ValueError, ArithmeticError):
                raise UserError(f"{where}: {content!r:.60} is not a {kind.replace('_', ' ')}") from None
    known = ", ".join((*READERS, "json", "array"))
    raise UserError(f'{where}: write a plain value, or an object that names its type ({known}): {{"decimal": "9.90"}}')


def _zoned(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(text)
    return found


def _local(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError(text)
    return found


READERS: dict[str, Callable[[str], Any]] = {
    "decimal": Decimal,
    "bytes": bytes.fromhex,
    "timestamp": _zoned,
    "local_timestamp": _local,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "uuid": UUID,
    "double": float,  # For what JSON has no number for.
}


def value_to_json(value: Any) -> Any:
    """One value of a row as JSON: the inverse of :func:`parse_value`."""
    if isinstance(value, float):
        return value if value - value == 0 else {"double": repr(value)}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return {"local_timestamp": value.isoformat()}
        return {"timestamp": value.isoformat().replace("+00:00", "Z")}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, time):
        return {"time": value.isoformat()}
    if isinstance(value, UUID):
        return {"uuid": str(value)}
    if isinstance(value, Json):
        return {"json": value.text}
    return {"array": [value_to_json(item) for item in value]}


def row_to_dict(mutation: pb.Mutation) -> dict[str, Any] | None:
    """A row or a statement as JSON; None if it cannot be understood."""
    try:
        change = row_change(mutation)
    except LogPlayerError:
        return None
    if change.op == Op.DDL:
        return {"op": "ddl", "sql": change.sql, "target": change.target}
    shown: dict[str, Any] = {
        "table": change.table,
        "op": change.op.name.lower(),
        "key": [column.name for column in change.columns if column.key],
        "columns": columns_to_json(change.columns),
    }
    place = _place(change.table, change.columns, change.key)
    if place:
        shown["place"] = place
    if change.target:
        shown["target"] = change.target
    return shown


def columns_to_json(columns: tuple[Column, ...]) -> Any:
    """An object, or a list of pairs if a name is there twice."""
    pairs = [(column.name, value_to_json(column.value)) for column in columns]
    named = dict(pairs)
    return named if len(named) == len(pairs) else pairs


def place_of(row: Mutation, key: bytes) -> str:
    """The key column by which an encoded row is placed if its key is this one; empty if by none."""
    change = decode_row(row.encoded)
    return _place(change.table, change.columns, key)


def _place(table: str, columns: tuple[Column, ...], key: bytes) -> str:
    """The key column whose value stands in braces; empty if none does."""
    for column in columns if b"{" in key else ():
        if column.key and row_key(table, columns, column.name) == key:
            return column.name
    return ""

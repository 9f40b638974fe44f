"""Rows of a DataFrame that are rows of tables, statements or headers: what of them is a change, and what is a mistake.

Nothing is ignored in silence: a column that says something which the change would not have is refused.
"""

from __future__ import annotations

import json
from typing import Any

from logplayer.errors import UserError


def encode_table_row(change: dict[str, Any], what: str = "a row") -> bytes:
    """A change of one row: ``table``, ``key_columns``, ``columns``, with ``op``, ``target`` and ``key`` if given."""
    from logplayer.log.json_rows import encode_json_row, place_of

    what = f"{what} of table {change['table']!r}"
    if change.get("value") is not None:
        raise UserError(f"{what} has a value and a table; put its columns into columns, and leave value null")
    try:
        columns = json.loads(change.get("columns") or "null")
    except (ValueError, RecursionError) as error:
        raise UserError(f'the columns of {what} is not JSON ({error}); write for example {{"id": 7}}') from None
    given = {
        "table": change["table"],
        "op": change.get("op") or "put",
        "key": list(change.get("key_columns") or ()),
        "columns": columns,
        "target": change.get("target") or "",
    }
    key = change.get("key")
    key = key.encode() if isinstance(key, str) else key
    made = encode_json_row(given, what)
    if key is None or made.key == key:
        return made.encoded
    place = place_of(made, key)
    if not place:
        raise UserError(
            f"{what} has key {key!r:.60}, but its columns make {made.key!r:.60}; leave key out, or correct it"
        )
    return encode_json_row({**given, "place": place}, what).encoded


def encode_statement(change: dict[str, Any], delivered: bool) -> bytes:
    """A statement: ``value`` has its text. In a log it must name its target; a delivery has one."""
    from logplayer.wire.rows import encode_ddl

    value, target = change.get("value"), change.get("target") or ""
    others = [name for name in ("table", "columns", "key_columns", "key") if change.get(name)]
    if not value or others:
        raise UserError(f"a statement has its text in value, and nothing in {', '.join(others) or 'table or columns'}")
    if not target and not delivered:
        raise UserError("a statement names its target; a shard map gives it to nobody")
    return encode_ddl(value if isinstance(value, str) else bytes(value).decode(), target).encoded


def check_no_table(change: dict[str, Any]) -> None:
    """Refuse columns of a row that names no table: a put of its key and value would lose them."""
    for name in ("columns", "key_columns"):
        if change.get(name):
            raise UserError(f"a row with key {change.get('key')!r} has {name}, but no table; name the table")
    if change.get("op") == "patch":
        raise UserError(f"a row with key {change.get('key')!r} has no table: the op patch is for rows of tables")


def join_headers(payload: bytes, headers: Any, own: bool) -> bytes:
    """The transaction with the row's ``headers``. ``own``: the payload was given whole, and may have some."""
    if not headers:
        return payload
    from logplayer.wire.entries import decode_headers, encode_headers  # Protobuf: most rows do without it.

    if any(header["name"] is None for header in headers):
        raise UserError("a row has a header without a name; give each a name and a value")
    pairs = [(header["name"], header["value"] or b"") for header in headers]
    if own and (had := decode_headers(payload)):
        encoded = [(name, value.encode() if isinstance(value, str) else bytes(value)) for name, value in pairs]
        if list(had) != encoded:
            raise UserError("a row has headers, and a payload with other headers of its own; give one of them")
        return payload
    return payload + encode_headers(pairs)

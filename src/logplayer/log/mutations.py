"""What a transaction is made of, as an application writes it: puts and deletes of keys, rows of tables, statements."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from logplayer.core.entry import Mutation
from logplayer.log.protocol import BadRequest
from logplayer.wire.entries import encode_headers, encode_mutation
from logplayer.wire.rows import Column, Op, encode_ddl, encode_row


def put(key: str | bytes, value: str | bytes, target: str = "") -> Mutation:
    """Write ``value`` under ``key``.

    Args:
        key: Text (stored as UTF-8) or bytes.
        value: Text (stored as UTF-8) or bytes; for anything else see :func:`json_value`.
        target: The target that gets it. Empty: the shard map decides by key.

    Raises:
        BadRequest: The key or the value is neither text nor bytes.

    Example:
        >>> put("alice", "90").key
        b'alice'
    """
    return encode_mutation(_bytes("key", key), _bytes("value", value), target)


def delete(key: str | bytes, target: str = "") -> Mutation:
    """Remove ``key``. Removing a key that does not exist is allowed.

    Args:
        key: Text (stored as UTF-8) or bytes.
        target: The target that has it. Empty: the shard map decides by key.

    Raises:
        BadRequest: The key is neither text nor bytes.

    Example:
        >>> delete("alice").key
        b'alice'
    """
    return encode_mutation(_bytes("key", key), None, target)


def json_value(value: Any) -> bytes:
    """``value`` as compact JSON, with the keys sorted: the same value is always the same bytes.

    Args:
        value: Anything that :func:`json.dumps` takes.

    Raises:
        BadRequest: JSON has no form for it.

    Example:
        >>> json_value({"balance": 90, "name": "Zoë"}).decode()
        '{"balance":90,"name":"Zoë"}'
    """
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BadRequest(f"JSON has no form for {value!r:.60}: {error}") from None


class Table:
    """Makes changes of a table's rows. Made by :func:`table`.

    Example:
        >>> orders = table("orders")
        >>> [orders.put(id=7, total=9.5).key, orders.delete(id=8).key]
        [b'orders/7', b'orders/8']
    """

    __slots__ = ("_key", "_name", "_place", "_target")

    def __init__(self, name: str, key: tuple[str, ...], place: str, target: str) -> None:
        self._name = name
        self._key = key
        self._place = place
        self._target = target

    def put(self, **columns: Any) -> Mutation:
        """Write a whole row, whether it is there or not.

        Args:
            columns: Every column with its value: None, bool, int, float, Decimal, str, bytes, datetime, date, time,
                UUID, ``lp.Json`` or a list of these.

        Raises:
            UserError: A key column is missing or null, or a value has no type in a row.

        Example:
            >>> table("orders").put(id=7, total=9.5).key
            b'orders/7'
        """
        return self._encode(Op.PUT, columns)

    def patch(self, **columns: Any) -> Mutation:
        """Change some columns of a row that is there.

        Args:
            columns: The key columns, and those that change.

        Raises:
            UserError: A key column is missing or null, nothing changes, or a value has no type in a row.

        Example:
            >>> table("orders").patch(id=7, paid=True).key
            b'orders/7'
        """
        return self._encode(Op.PATCH, columns)

    def delete(self, **key: Any) -> Mutation:
        """Remove a row. Removing a row that does not exist is allowed.

        Args:
            key: The key columns.

        Raises:
            UserError: A key column is missing or null, or there are others.

        Example:
            >>> table("lines", key=("order_id", "n")).delete(order_id=7, n=1).key
            b'lines/7/1'
        """
        return self._encode(Op.DELETE, key)

    def _encode(self, op: Op, columns: dict[str, Any]) -> Mutation:
        for name in self._key:
            if name not in columns:
                raise BadRequest(f"a row of table {self._name!r} needs its key column {name!r}")
        keys = [Column(name, columns[name], True) for name in self._key]
        others = [Column(name, value) for name, value in columns.items() if name not in self._key]
        return encode_row(op, self._name, keys + others, place=self._place, target=self._target)


def table(name: str, key: str | Sequence[str] = "id", place: str = "", target: str = "") -> Table:
    """A table whose rows are to be put, patched and deleted, in the target's own schema.

    Args:
        name: The table's name.
        key: The column, or the columns in their order, of its primary key.
        place: The key column that decides where a row lives, for a map that hashes by tag: rows of several tables with
            the same value there live together.
        target: The target that gets the rows. Empty: the shard map decides by key.

    Raises:
        BadRequest: The table has no name or no key, or ``place`` is not a part of the key.

    Example:
        >>> lines = table("lines", key=("order_id", "n"), place="order_id")
        >>> lines.put(order_id=7, n=1, item="tea").key
        b'lines/{7}/1'
    """
    columns = (key,) if isinstance(key, str) else tuple(key)
    if not name or not columns or not all(columns):
        raise BadRequest("a table needs a name and a key; give lp.table('orders', key='id')")
    if place and place not in columns:
        raise BadRequest(f"table {name!r} is placed by {place!r}, which is not in its key {', '.join(columns)}")
    return Table(name, columns, place, target)


def ddl(sql: str, targets: Sequence[str]) -> list[Mutation]:
    """A statement that changes the schema of targets, once, at its place in the order of the log.

    Append what it returns as a transaction of its own.

    Args:
        sql: One statement, in the language of the targets' databases.
        targets: The names of the targets that run it.

    Raises:
        BadRequest: There is no statement, or no target.

    Example:
        >>> [mutation.target for mutation in ddl("ALTER TABLE orders ADD note text", ["a", "b"])]
        ['a', 'b']
    """
    if not sql.strip():
        raise BadRequest("there is no statement; give for example 'ALTER TABLE orders ADD note text'")
    if not targets or isinstance(targets, str) or not all(targets):
        raise BadRequest("a statement needs the names of the targets that run it; give targets=['a', 'b']")
    return [encode_ddl(sql, target) for target in dict.fromkeys(targets)]


Headers = Mapping[str, str | bytes] | Sequence[tuple[str, str | bytes]]


def transaction(mutations: Sequence[Mutation], headers: Headers = ()) -> bytes:
    """The payload of one entry."""
    if not mutations:
        raise BadRequest("a transaction needs at least one mutation; give lp.put(key, value) or lp.delete(key)")
    for mutation in mutations:
        if not isinstance(mutation, Mutation):
            raise BadRequest(f"{mutation!r:.60} is not a mutation; give lp.put(key, value) or lp.delete(key)")
    encoded = [mutation.encoded for mutation in mutations]
    if headers:
        encoded.append(encode_headers(_header_pairs(headers)))
    return b"".join(encoded)


def _header_pairs(headers: Headers) -> list[tuple[str, bytes]]:
    try:
        pairs = [(name, value) for name, value in (headers.items() if isinstance(headers, Mapping) else headers)]
    except (TypeError, ValueError):
        raise BadRequest(
            f"headers are names and values, not {headers!r:.60}; give headers={{'trace': '...'}}"
        ) from None
    for name, _ in pairs:
        if not isinstance(name, str):
            raise BadRequest(f"the name of a header is text, not {type(name).__name__} ({name!r:.40})")
    return [(name, _bytes("header's value", value)) for name, value in pairs]


def _bytes(what: str, value: str | bytes) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise BadRequest(f"a {what} is text or bytes, not {type(value).__name__} ({value!r:.40}); see lp.json_value")

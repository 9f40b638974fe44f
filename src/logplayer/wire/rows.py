"""Rows: mutations that name a table and carry typed columns, so that a message describes itself.

The key of a row is made of its primary key and can be read: ``orders/7``, ``lines/7/1``. It is canonical: equal
primary keys are equal bytes, so that routing, digests and versions need to know nothing about tables. ``place`` names
the key column whose value stands in braces (``lines/{7}/1``): a map that hashes by tag keeps such rows together.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from logplayer.core.entry import Mutation
from logplayer.errors import Malformed, UserError
from logplayer.wire.fastpath import varint
from logplayer.wire.logplayer.v1 import entry_pb2 as pb
from logplayer.wire.values import Json as Json
from logplayer.wire.values import decode_value, encode_value, escaped, key_text


class Op(enum.IntEnum):
    """What a mutation does; the numbers are those of entry.proto."""

    PUT = pb.PUT
    DELETE = pb.DELETE
    PATCH = pb.PATCH
    DDL = pb.DDL


class Column(NamedTuple):
    """One column of a row.

    ``value`` is None, bool, int, float, Decimal, str, bytes, datetime (with a zone: a point in time; without: a local
    time), date, time, UUID, :class:`Json`, or a list of these.
    """

    name: str
    value: Any
    key: bool = False  # Part of the primary key.


class RowChange(NamedTuple):
    """What one mutation does to one row. For DDL there is no table, and ``sql`` has the statement."""

    op: Op
    table: str
    columns: tuple[Column, ...]
    key: bytes = b""
    target: str = ""
    sql: str = ""


def encode_row(op: Op | int, table: str, columns: Iterable[Column], *, place: str = "", target: str = "") -> Mutation:
    """A change of one row, ready to be joined into a transaction. ``lp.table`` is the easier way.

    Args:
        op: PUT (all columns), PATCH (the key and what changes) or DELETE (the key).
        table: The table's name.
        columns: The columns; those of the primary key in its order.
        place: The key column whose value decides where the row lives, for maps that hash by tag.
        target: The target that gets it. Empty: the shard map decides by key.

    Raises:
        UserError: The row has no key, a null in it, a column twice, or a value without a type here.

    Example:
        >>> encode_row(Op.PUT, "lines", [Column("id", 7, True), Column("n", 1, True)], place="id").key
        b'lines/{7}/1'
    """
    op = Op(op)
    columns = tuple(columns)
    _check_row(op, table, columns, place)
    body = pb.Mutation(key=row_key(table, columns, place), op=op.value, target=target, table=table)
    for name, value, key in columns:
        added = body.columns.add(name=name, key=key)
        try:
            encode_value(added.value, value)
        except UserError as error:
            raise UserError(f"column {name!r} of table {table!r}: {error}") from None
    return _joined(body)


def encode_ddl(sql: str, target: str) -> Mutation:
    """An SQL statement for one target."""
    return _joined(pb.Mutation(value=sql.encode(), op=pb.DDL, target=target))


def _joined(body: pb.Mutation) -> Mutation:
    encoded = body.SerializeToString()
    return Mutation(body.key, b"\x0a" + varint(len(encoded)) + encoded, body.target)


def _check_row(op: Op, table: str, columns: tuple[Column, ...], place: str) -> None:
    if op == Op.DDL:
        raise UserError("a statement is not a row; give it to lp.ddl(sql, targets=[...])")
    if not table or not isinstance(table, str):
        raise UserError(f"a row needs the name of its table, not {table!r}")
    keys = [column.name for column in columns if column.key]
    others = [column.name for column in columns if not column.key]
    where = f"a {op.name.lower()} of table {table!r}"
    if not keys:
        raise UserError(f"{where} has no key column; name the primary key, as in lp.table({table!r}, key='id')")
    if op == Op.DELETE and others:
        raise UserError(f"{where} takes the key columns only, not {others[0]!r}")
    if op == Op.PATCH and not others:
        raise UserError(f"{where} changes nothing; give a column that is not part of the key")
    names = keys + others if op == Op.PUT else keys
    if len(set(names)) != len(names) or len(set(others)) != len(others):
        raise UserError(f"{where} has a column twice")
    if place and place not in keys:
        raise UserError(f"{where} is placed by {place!r}, which is not a key column; those are {', '.join(keys)}")


# --- Keys. ------------------------------------------------------------------------------------------------


def row_key(table: str, columns: Iterable[Column], place: str = "") -> bytes:
    """The canonical key of a row, of its key columns in their order."""
    parts = [escaped(table)]
    for name, value, key in columns:
        if not key:
            continue
        try:
            text = key_text(value)
        except UserError as error:
            raise UserError(f"key column {name!r} of table {table!r}: {error}") from None
        parts.append(f"{{{text}}}" if name == place else text)
    try:
        return "/".join(parts).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"the key of a row of table {table!r} is not text that UTF-8 can write: {error}") from None


# --- Whole mutations. -------------------------------------------------------------------------------------


def decode_row(encoded: bytes) -> RowChange:
    """The row in ``Mutation.encoded``. Raises Malformed if there is none."""
    changes = decode_row_changes(encoded)
    if len(changes) != 1:
        raise Malformed(f"{len(encoded)} bytes are {len(changes)} mutations, not one")
    return changes[0]


def decode_row_changes(payload: bytes) -> list[RowChange]:
    """The rows and statements of an encoded ``Transaction``, in order.

    Raises Malformed for a mutation without a table: only a store of keys and values can hold it.
    """
    try:
        transaction = pb.Transaction.FromString(payload)
    except DecodeError as error:
        raise Malformed(f"{len(payload)} bytes are not a transaction: {error}") from error
    changes = [row_change(mutation) for mutation in transaction.mutations]
    if len({change.op == Op.DDL for change in changes}) > 1:
        raise Malformed("a statement and rows are in one entry; append the statement as an entry of its own")
    return changes


def row_change(mutation: pb.Mutation) -> RowChange:
    """The row in a decoded mutation."""
    if mutation.op not in _KNOWN:
        raise Malformed(f"a mutation has operation {mutation.op}, which this version does not know; upgrade")
    op = Op(mutation.op)
    if op == Op.DDL:
        try:
            return RowChange(op, "", (), mutation.key, mutation.target, mutation.value.decode())
        except UnicodeDecodeError:
            raise Malformed("a statement is not text in UTF-8") from None
    if not mutation.table:
        raise Malformed(
            f"key {mutation.key!r:.60} is not a row of a table; give such keys to a store of keys and values "
            "(--store sqlite, postgres, ...), or append rows with lp.table"
        )
    columns = tuple(Column(one.name, decode_value(one.value), one.key) for one in mutation.columns)
    return RowChange(op, mutation.table, columns, mutation.key, mutation.target)


_KNOWN = {op.value for op in Op}

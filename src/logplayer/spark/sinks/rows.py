"""Rows of a DataFrame as encoded transactions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, StringType, StructType

from logplayer.errors import ConfigError, UserError
from logplayer.log.protocol import ENTRY_BYTES_MAX
from logplayer.spark.arrow import column
from logplayer.spark.sinks.table_rows import check_no_table, encode_statement, encode_table_row, join_headers
from logplayer.wire.fastpath import varint

PAYLOADS = pa.schema([("payload", pa.binary())])
_EMPTY, _IS_DELETE = pa.scalar(b"", pa.binary()), pa.scalar(b"\x18\x01", pa.binary())
_NO_OP, _DELETE = pa.scalar("", pa.string()), pa.scalar("delete", pa.string())
_OPS = column(["put", "delete", ""], pa.string())


def check_columns(schema: StructType) -> None:
    """Refuse a DataFrame that holds no transactions, or says what they would not have, before anything is written."""
    names = set(schema.fieldNames())
    if "headers" in names and not _is_headers(schema["headers"].dataType):
        raise ConfigError("the column headers must be an array of structs with name and value")
    mutations = schema["mutations"].dataType if "mutations" in names else None
    if isinstance(mutations, ArrayType) and isinstance(mutations.elementType, StructType):
        _check_changes(mutations.elementType)
        if "headers" in mutations.elementType.fieldNames():
            raise ConfigError("headers belong to the row and not to each of its mutations")
        return
    _check_changes(schema)
    if "payload" in names or {"key", "value"} <= names or {"table", "columns"} <= names:
        return
    if "mutations" in names and isinstance(mutations, ArrayType):
        return
    raise ConfigError(
        f"rows with the columns {', '.join(schema.fieldNames())} are not transactions: give payload, or key and value "
        "(and op, target), or table, key_columns and columns (and op, target), or mutations (an array of such structs)"
    )


def _check_changes(schema: StructType) -> None:
    names = {"table", "key_columns", "columns"} & set(schema.fieldNames())
    if not names:
        return
    if len(names) < 3:
        raise ConfigError(f"rows of tables need the columns table, key_columns and columns; only {names} are there")
    kind = schema["key_columns"].dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StringType):
        raise ConfigError("key_columns must be an array of strings: the names of the primary key's columns")
    if not isinstance(schema["columns"].dataType, StringType):
        raise ConfigError('columns must be text, a JSON object such as {"id": 7, "total": {"decimal": "9.90"}}')


def _is_headers(kind: Any) -> bool:
    return (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and set(kind.elementType.fieldNames()) == {"name", "value"}
    )


def payload_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One encoded transaction for each row."""
    return pa.RecordBatch.from_arrays([payloads_of(batch)], schema=PAYLOADS)


def payloads_of(batch: pa.RecordBatch, delivered: bool = False) -> pa.Array:
    """One encoded transaction for each row: by whole columns where rows are plain, which is many times faster.

    ``delivered``: the row's target is known otherwise, so the transaction names none.
    """
    names = batch.schema.names
    if _has_headers(batch):
        return column([encode_row(row, delivered) for row in batch.to_pylist()], pa.binary())
    if "payload" in names and not batch.column("payload").null_count:
        return _bounded_column(batch.column("payload").cast(pa.binary()))
    plain = not {"payload", "mutations"} & set(names) and _names_no_table(batch)
    if plain and (columns := _plain_columns(batch)) is not None:
        return _bounded_column(_joined(*columns))
    return column([encode_row(row, delivered) for row in batch.to_pylist()], pa.binary())


def _has_headers(batch: pa.RecordBatch) -> bool:
    if "headers" not in batch.schema.names:
        return False
    return bool(pc.sum(pc.list_value_length(batch.column("headers"))).as_py())


def _names_no_table(batch: pa.RecordBatch) -> bool:
    some = [batch.column(name) for name in ("table", "key_columns", "columns") if name in batch.schema.names]
    return {"key", "value"} <= set(batch.schema.names) and all(one.null_count == len(one) for one in some)


def _plain_columns(batch: pa.RecordBatch) -> tuple[pa.Array, ...] | None:
    """Key, value, whether it is a delete, and target; None if a row is wrong or too large for the quick way."""
    names = batch.schema.names
    columns = [batch.column(name) for name in ("key", "value")]
    if not all(pa.types.is_binary(one.type) or pa.types.is_string(one.type) for one in columns):
        return None
    key, value = (one.cast(pa.binary()) for one in columns)
    deletes = pc.is_null(value)
    if "op" in names:
        op = pc.coalesce(batch.column("op"), _NO_OP)
        if not pc.all(pc.is_in(op, value_set=_OPS)).as_py():
            return None
        deletes = pc.if_else(pc.equal(op, _NO_OP), deletes, pc.equal(op, _DELETE))
    value = pc.if_else(deletes, _EMPTY, pc.coalesce(value, _EMPTY))
    target = batch.column("target").cast(pa.binary()) if "target" in names else pa.nulls(batch.num_rows, pa.binary())
    if key.null_count or any((pc.max(pc.binary_length(one)).as_py() or 0) > _QUICK_BYTES for one in (key, value)):
        return None
    return key, value, deletes, pc.coalesce(target, _EMPTY)


_QUICK_BYTES = 16_000  # Of a key and of a value: then every length is in the table.


@cache
def _varints() -> pa.Array:
    return column([varint(count) for count in range(3 * _QUICK_BYTES)], pa.binary())


def _joined(key: pa.Array, value: pa.Array, deletes: pa.Array, target: pa.Array) -> pa.Array:
    """The bytes that ``encode_mutation`` gives: fields 1 key, 2 value, 3 op and 4 target, those that are not empty."""
    fields = [_field(b"\x0a", key), _field(b"\x12", value)]
    fields += [pc.if_else(deletes, _IS_DELETE, _EMPTY), _field(b"\x22", target)]
    return _framed(b"\x0a", pc.binary_join_element_wise(*fields, _EMPTY))


def _field(tag: bytes, content: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(pc.binary_length(content), 0), _EMPTY, _framed(tag, content))


def _framed(tag: bytes, content: pa.Array) -> pa.Array:
    lengths = pc.take(_varints(), pc.binary_length(content))
    return pc.binary_join_element_wise(pa.scalar(tag, pa.binary()), lengths, content, _EMPTY)


def _bounded_column(payloads: pa.Array) -> pa.Array:
    largest = pc.max(pc.binary_length(payloads)).as_py() or 0
    if largest > ENTRY_BYTES_MAX:
        raise _too_large(largest)
    return payloads


def encode_row(row: dict[str, Any], delivered: bool = False) -> bytes:
    """The row as an encoded transaction."""
    headers = row.get("headers")
    if row.get("payload") is not None:
        return _bounded(join_headers(bytes(row["payload"]), headers, own=True))
    changes: Sequence[dict[str, Any]] = row["mutations"] if row.get("mutations") is not None else [row]
    return _bounded(join_headers(b"".join(_encode(change, delivered) for change in changes), headers, own=False))


def _bounded(payload: bytes) -> bytes:
    if len(payload) > ENTRY_BYTES_MAX:
        raise _too_large(len(payload))
    return payload


def _too_large(count: int) -> UserError:
    return UserError(f"a row of {count} bytes is over the log's limit of {ENTRY_BYTES_MAX} for one entry")


def _encode(change: dict[str, Any], delivered: bool) -> bytes:
    key, value, op = change.get("key"), change.get("value"), change.get("op")
    if op == "ddl":
        return encode_statement(change, delivered)
    if change.get("table"):
        return encode_table_row(change)
    check_no_table(change)
    op = op or ("delete" if value is None else "put")
    if key is None or op not in ("put", "delete"):
        raise UserError(f"a row with key {key!r} and op {op!r} is not a mutation; op is put or delete")
    from logplayer.wire.entries import encode_mutation  # Protobuf takes long to load, and plain rows do without it.

    return encode_mutation(_bytes(key), None if op == "delete" else _bytes(value), change.get("target") or "").encoded


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else b"" if value is None else bytes(value)

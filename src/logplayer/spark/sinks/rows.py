"""Rows of a DataFrame as encoded transactions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, StructType

from logplayer.errors import ConfigError, UserError
from logplayer.log.protocol import ENTRY_BYTES_MAX
from logplayer.spark.arrow import column
from logplayer.wire.entries import encode_mutation
from logplayer.wire.fastpath import varint

PAYLOADS = pa.schema([("payload", pa.binary())])
_EMPTY, _IS_DELETE = pa.scalar(b"", pa.binary()), pa.scalar(b"\x18\x01", pa.binary())
_NO_OP, _DELETE = pa.scalar("", pa.string()), pa.scalar("delete", pa.string())
_OPS = column(["put", "delete", ""], pa.string())


def check_columns(schema: StructType) -> None:
    """Refuse a DataFrame that holds no transactions, before anything is written."""
    names = set(schema.fieldNames())
    if "payload" in names or {"key", "value"} <= names:
        return
    if "mutations" in names and isinstance(schema["mutations"].dataType, ArrayType):
        return
    raise ConfigError(
        f"rows with the columns {', '.join(schema.fieldNames())} are not transactions: give payload, or key and value "
        "(and op, target), or mutations (an array of such structs)"
    )


def payload_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One encoded transaction for each row."""
    return pa.RecordBatch.from_arrays([payloads_of(batch)], schema=PAYLOADS)


def payloads_of(batch: pa.RecordBatch) -> pa.Array:
    """One encoded transaction for each row: by whole columns where rows are plain, which is many times faster."""
    names = batch.schema.names
    if "payload" in names and not batch.column("payload").null_count:
        return _bounded_column(batch.column("payload").cast(pa.binary()))
    if "payload" not in names and "mutations" not in names and (plain := _plain_columns(batch)) is not None:
        return _bounded_column(_joined(*plain))
    return column([encode_row(row) for row in batch.to_pylist()], pa.binary())


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


def encode_row(row: dict[str, Any]) -> bytes:
    """The row as an encoded transaction."""
    if row.get("payload") is not None:
        return _bounded(bytes(row["payload"]))
    changes: Sequence[dict[str, Any]] = row["mutations"] if row.get("mutations") is not None else [row]
    return _bounded(
        b"".join(
            _encode(change.get("key"), change.get("value"), change.get("op"), change.get("target"))
            for change in changes
        )
    )


def _bounded(payload: bytes) -> bytes:
    if len(payload) > ENTRY_BYTES_MAX:
        raise _too_large(len(payload))
    return payload


def _too_large(count: int) -> UserError:
    return UserError(f"a row of {count} bytes is over the log's limit of {ENTRY_BYTES_MAX} for one entry")


def _encode(key: Any, value: Any, op: str | None, target: str | None) -> bytes:
    op = op or ("delete" if value is None else "put")
    if key is None or op not in ("put", "delete"):
        raise UserError(f"a row with key {key!r} and op {op!r} is not a mutation; op is put or delete")
    return encode_mutation(_bytes(key), None if op == "delete" else _bytes(value), target or "").encoded


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else b"" if value is None else bytes(value)

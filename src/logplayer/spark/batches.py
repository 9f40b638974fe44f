"""From the log's records to Arrow batches: one row per mutation, or one row per entry (raw)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from logplayer.log.protocol import Kind, Record
from logplayer.spark.columns import columns
from logplayer.spark.routes import Routes, Splitter
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

ROWS = (
    "log_index LONG, producer STRING, sequence LONG, committed_at TIMESTAMP, "
    "target STRING, key BINARY, value BINARY, op STRING"
)
RAW = "log_index LONG, kind STRING, producer STRING, sequence LONG, committed_at TIMESTAMP, payload BINARY"

_TIME = pa.timestamp("us", tz="UTC")
RAW_SCHEMA = pa.schema(
    [
        ("log_index", pa.int64()),
        ("kind", pa.string()),
        ("producer", pa.string()),
        ("sequence", pa.int64()),
        ("committed_at", _TIME),
        ("payload", pa.binary()),
    ]
)
ROW_SCHEMA = pa.schema(
    [
        ("log_index", pa.int64()),
        ("producer", pa.string()),
        ("sequence", pa.int64()),
        ("committed_at", _TIME),
        ("target", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("op", pa.string()),
    ]
)
_KINDS = {Kind.DATA: "data", Kind.CONTROL: "control"}
_OPS = {pb.PUT: "put", pb.DELETE: "delete"}


def raw_batch(records: Iterable[Record]) -> pa.RecordBatch:
    """One row per entry, control entries too."""
    found: list[Any] = list(zip(*((r[0], _KINDS[r[1]], *r[2:6]) for r in records), strict=True)) or [()] * 6
    return pa.RecordBatch.from_arrays(columns(found, RAW_SCHEMA), schema=RAW_SCHEMA)


def row_batch(records: Iterable[Record], routes: Routes, targets: Collection[str] | None) -> pa.RecordBatch:
    """One row per mutation, in the log's order. ``targets``: only rows for these."""
    rows: list[tuple[Any, ...]] = []
    owner_at = Splitter(routes, ()).owner_at
    for record in records:
        if record.kind != Kind.DATA:
            continue
        try:
            transaction = pb.Transaction.FromString(record.payload)
        except DecodeError:
            continue  # It is for nobody: players report it and pass over it, and raw=true shows it.
        owner = owner_at(record.index)
        head = (record.index, record.producer, record.sequence, record.committed_at_us)
        for mutation in transaction.mutations:
            target = mutation.target or owner(mutation.key) or None
            if targets is not None and target not in targets:
                continue
            op = _OPS.get(mutation.op, "unknown")
            rows.append((*head, target, mutation.key, mutation.value if op == "put" else None, op))
    found: list[Any] = list(zip(*rows, strict=True)) or [()] * 8
    return pa.RecordBatch.from_arrays(columns(found, ROW_SCHEMA), schema=ROW_SCHEMA)


def records_of(batch: pa.RecordBatch) -> list[Record]:
    """The records of a raw batch, as the archive keeps them."""
    times = batch.column("committed_at").cast(pa.int64())
    columns = [batch.column(name).to_pylist() for name in ("log_index", "kind", "producer", "sequence")]
    payloads, crcs = batch.column("payload").to_pylist(), batch.column("crc").to_pylist()
    kinds = {name: kind for kind, name in _KINDS.items()}
    return [
        Record(index, kinds[kind], producer, sequence, at, payload, crc)
        for index, kind, producer, sequence, at, payload, crc in zip(
            *columns, times.to_pylist(), payloads, crcs, strict=True
        )
    ]

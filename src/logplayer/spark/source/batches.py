"""From the log's records to Arrow batches: one row per mutation, or one row per entry (raw)."""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from logplayer.core.routing import Router, join_routed
from logplayer.errors import Malformed
from logplayer.log.json_rows import columns_to_json
from logplayer.log.protocol import Kind, Record
from logplayer.spark.arrow import column, columns
from logplayer.spark.routes import Routes, share_of
from logplayer.wire.entries import Header, decode_headers, split_transaction
from logplayer.wire.rows import Op, RowChange, decode_row_changes

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
        ("table", pa.string()),
        ("key_columns", pa.list_(pa.string())),
        ("columns", pa.string()),
    ]
)
_HEADER = pa.struct([("name", pa.string()), ("value", pa.binary())])
_KINDS = {Kind.DATA: "data", Kind.CONTROL: "control"}
MALFORMED = "malformed"  # In the column op.


def raw_batch(records: Iterable[Record]) -> pa.RecordBatch:
    """One row per entry, control entries too."""
    found: list[Any] = list(zip(*((r[0], _KINDS[r[1]], *r[2:6]) for r in records), strict=True)) or [()] * 6
    return pa.RecordBatch.from_arrays(columns(found, RAW_SCHEMA), schema=RAW_SCHEMA)


def row_batch(
    records: Iterable[Record], routes: Routes, targets: Collection[str] | None, headers: bool = False
) -> pa.RecordBatch:
    """One row per mutation, in the log's order. ``targets``: only rows for these. ``headers``: with those of its entry.

    What a target refuses for good, because it cannot be understood, is one row with the op ``malformed`` and without a
    key; so is, without a target, a payload that is not a transaction, which players report and pass over.
    """
    rows: list[tuple[Any, ...]] = []
    payloads: list[bytes] = []
    router = routes.router()
    for record in records:
        if record.kind != Kind.DATA:
            continue
        head = (record.index, record.producer, record.sequence, record.committed_at_us)
        for row in _mutation_rows(record.index, record.payload, router):
            if targets is None or row[0] in targets:
                rows.append((*head, *row))
                payloads.append(record.payload)
    found: list[Any] = list(zip(*rows, strict=True)) or [()] * len(ROW_SCHEMA)
    batch = pa.RecordBatch.from_arrays(columns(found, ROW_SCHEMA), schema=ROW_SCHEMA)
    return _append_headers(batch, payloads) if headers else batch


def with_headers(raw: pa.RecordBatch) -> pa.RecordBatch:
    """A raw batch with the headers of its transactions; a control entry has none."""
    return _append_headers(raw, raw.column("payload").to_pylist(), raw.column("kind").to_pylist())


def _append_headers(
    batch: pa.RecordBatch, payloads: Sequence[bytes], kinds: Sequence[str] | None = None
) -> pa.RecordBatch:
    found = [
        _headers(payload) if kinds is None or kinds[nth] == _KINDS[Kind.DATA] else ()
        for nth, payload in enumerate(payloads)
    ]
    pairs = [pair for some in found for pair in some]
    names, values = ([name for name, _ in pairs], [value for _, value in pairs])
    content = pa.StructArray.from_arrays(
        [column(names, pa.string()), column(values, pa.binary())], fields=[_HEADER.field(0), _HEADER.field(1)]
    )
    offsets = array("i", accumulate(map(len, found), initial=0))
    starts = pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)])
    listed = pa.ListArray.from_arrays(starts, content)
    return pa.RecordBatch.from_arrays(
        [*batch.columns, listed], schema=batch.schema.append(pa.field("headers", listed.type))
    )


def _headers(payload: bytes) -> tuple[Header, ...]:
    try:
        return decode_headers(payload)
    except Malformed:
        return ()  # The row says that it is malformed.


# Target, key, value, op, table, key_columns, columns.
_Row = tuple[str | None, bytes | None, bytes | None, str, str | None, list[str] | None, str | None]
_Change = tuple[bytes | None, bytes | None, str, str | None, list[str] | None, str | None]
_NOT_UNDERSTOOD: _Change = (None, None, MALFORMED, None, None, None)


def _mutation_rows(index: int, payload: bytes, router: Router) -> Iterator[_Row]:
    """Routed as a player routes the entry, and decoded as each target decodes its own share of it."""
    try:
        routed = router.route(index, payload, split_transaction)
    except Malformed:
        yield (None, *_NOT_UNDERSTOOD)
        return
    whole = _changes(index, payload)
    if whole is not None:  # Then no target refuses its share either.
        for (name, _), change in zip(routed, whole, strict=True):
            yield (name or None, *change)
        return
    shares = {name: _changes(index, part) for name, part in join_routed(routed).items()}
    changes = {name: iter(share) for name, share in shares.items() if share is not None}
    refused = {name for name, share in shares.items() if share is None}
    for name, _ in routed:
        if name in changes:
            yield (name or None, *next(changes[name]))
        elif name in refused:
            refused.remove(name)  # One row stands for the whole share.
            yield (name or None, *_NOT_UNDERSTOOD)


def _changes(index: int, payload: bytes) -> list[_Change] | None:
    """What a target makes of its share: a store of keys and values, or one of tables; None if neither takes it."""
    share = share_of(index, payload)
    if not share.refused:
        return [(key, value, "delete" if value is None else "put", None, None, None) for key, value in share.changes]
    try:
        changes = decode_row_changes(payload)
    except Malformed:
        return None
    if any(change.op != Op.DDL and not any(column.key for column in change.columns) for change in changes):
        return None  # No store finds such a row.
    return [_table_change(change) for change in changes]


def _table_change(change: RowChange) -> _Change:
    if change.op == Op.DDL:
        return None, change.sql.encode(), "ddl", None, None, None
    names = [column.name for column in change.columns if column.key]
    columns = json.dumps(columns_to_json(change.columns), ensure_ascii=False)
    return change.key, None, change.op.name.lower(), change.table, names, columns


def records_of(batch: pa.RecordBatch) -> list[Record]:
    """The records of a raw batch, as the archive keeps them."""
    times = batch.column("committed_at").cast(pa.int64())
    columns = [batch.column(name).to_pylist() for name in ("log_index", "kind", "producer", "sequence")]
    contents = [batch.column(name).to_pylist() for name in ("payload", "chain", "crc")]
    kinds = {name: kind for kind, name in _KINDS.items()}
    return [
        Record(index, kinds[kind], producer, sequence, at, payload, chain, crc)
        for index, kind, producer, sequence, at, payload, chain, crc in zip(
            *columns, times.to_pylist(), *contents, strict=True
        )
    ]

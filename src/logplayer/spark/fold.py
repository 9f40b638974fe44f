"""What a target must hold, computed from the log side by side: the common half of audit and backfill.

Each task takes a piece of the log and writes, for each target, a sorted file of what the piece leaves behind: for every
key its last value, and which entry wrote it. Digests add up, whatever the order. Merging a target's files by key, the
newest piece first, then gives the target's content in one pass over sorted files, a few rows of each in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from logplayer.core.digest import entry_digest
from logplayer.log.protocol import Kind
from logplayer.spark.plan import Piece
from logplayer.spark.routes import Routes
from logplayer.wire.entries import decode_transaction

SCHEMA = pa.schema([("key", pa.binary()), ("index", pa.int64()), ("value", pa.binary())])
ROWS_PER_BATCH = 4096
_MASK = (1 << 128) - 1


class Job(NamedTuple):
    """One piece to fold. ``through`` says for each target how far it counts."""

    log: str
    piece: Piece
    routes: Routes
    through: dict[str, int]
    folder: str


class Folded(NamedTuple):
    """One target's share of one piece."""

    target: str
    first: int  # Where the piece starts: pieces are merged in this order.
    digest: int
    entries: int
    file: str
    quarantined: tuple[int, ...]


class Effect(NamedTuple):
    """What is left of a key: its value, None if it was deleted, and the entry that wrote it last."""

    key: bytes
    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    value: bytes | None


def fold_piece(job: Job) -> list[Folded]:
    """In a task: fold one piece for all targets. Idempotent: a retry writes the same files."""
    effects: dict[str, dict[bytes, tuple[int, bytes | None]]] = {name: {} for name in job.through}
    digests = dict.fromkeys(job.through, 0)
    counts = dict.fromkeys(job.through, 0)
    aside: dict[str, list[int]] = {name: [] for name in job.through}
    for records in job.piece.records(job.log):
        for record in records:
            if record.kind != Kind.DATA:
                continue
            for target, payload in job.routes.split(record.index, record.payload, job.through).items():
                if record.index > job.through[target]:
                    continue
                digests[target] += entry_digest(record.index, payload)
                counts[target] += 1
                if record.index in job.routes.quarantined.get(target, ()):
                    aside[target].append(record.index)
                    continue
                for key, value in decode_transaction(payload):
                    effects[target][key] = (record.index, value)
    return [
        Folded(
            target,
            job.piece.first,
            digests[target] & _MASK,
            counts[target],
            _write(job, target, effects[target]) if effects[target] else "",
            tuple(aside[target]),
        )
        for target in job.through
        if counts[target]
    ]


def file_of(job: Job, target: str) -> Path:
    """Where the target's share of the piece goes; the hash is for names that differ only in what a file cannot have."""
    safe = "".join(c if c.isalnum() else "_" for c in target)[:40]
    return (
        Path(job.folder) / f"{safe}-{blake2b(target.encode(), digest_size=8).hexdigest()}-{job.piece.first:020}.arrow"
    )


def _write(job: Job, target: str, effects: dict[bytes, tuple[int, bytes | None]]) -> str:
    path = file_of(job, target)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{id(effects)}.tmp")
    keys = sorted(effects)
    with open(new, "wb") as file, pa.ipc.new_stream(file, SCHEMA) as out:
        for at in range(0, len(keys), ROWS_PER_BATCH):
            part = keys[at : at + ROWS_PER_BATCH]
            columns = [part, [effects[key][0] for key in part], [effects[key][1] for key in part]]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            out.write_batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    new.replace(path)
    return str(path)


def merge(parts: Sequence[Folded]) -> Iterator[Effect]:
    """A target's content by key, deleted keys too: each key once, as the newest piece left it."""
    files = [part for part in sorted(parts, key=lambda part: -part.first) if part.file]
    streams = [_read(part.file, order) for order, part in enumerate(files)]
    last: bytes | None = None
    for key, _, index, value in heapq.merge(*streams, key=lambda row: row[:2]):
        if key != last:
            last = key
            yield Effect(key, index, value)


def _read(path: str, order: int) -> Iterator[tuple[bytes, int, int, bytes | None]]:
    with pa.OSFile(path) as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            keys, indexes, values = (column.to_pylist() for column in batch.columns)
            for key, index, value in zip(keys, indexes, values, strict=True):
                yield key, order, index, value


def total_digest(parts: Sequence[Folded]) -> int:
    """The digest that a target must have after all parts."""
    return sum(part.digest for part in parts) & _MASK

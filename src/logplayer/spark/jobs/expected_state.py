"""What a target must hold, computed from the log side by side: the common half of audit and backfill.

Each task takes a piece of the log and writes, for each target, a sorted file of what the piece results in: for every
key its last value, and which entry wrote it. Digests add up, whatever the order. Merging a target's files by key, the
newest piece first, then gives the target's content in one pass over sorted files, a few rows of each in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logplayer.core.digest import entry_digest
from logplayer.log.open import LogPlace
from logplayer.log.protocol import Kind
from logplayer.spark.arrow import TRUE, column, columns
from logplayer.spark.folders import open_file, open_folder
from logplayer.spark.jobs.row_fold import RowFold, TableFacts
from logplayer.spark.routes import NO_KINDS, Routes, Share, Splitter, TargetKind
from logplayer.spark.source.plan import Piece
from logplayer.target.stores.tables.mapping import TableMapping

SCHEMA = pa.schema([("key", pa.binary()), ("index", pa.int64()), ("value", pa.binary())])
ROWS_PER_BATCH = 4096
IN_MEMORY_BYTES_MAX = 256 << 20  # Above it files are merged row by row: slower, in bounded memory.
REFUSED_MAX = 20  # So many of a piece are named; one is enough to stop a backfill or to fail an audit.
_MASK = (1 << 128) - 1


class Job(NamedTuple):
    """One piece to fold. ``through`` says for each target how far it counts."""

    log: LogPlace
    piece: Piece
    routes: Routes
    through: dict[str, int]
    folder: str
    kinds: Mapping[str, TargetKind] = NO_KINDS  # Of targets that are not stores of keys and values.


class Folded(NamedTuple):
    """One target's share of one piece."""

    target: str
    first: int  # Where the piece starts: pieces are merged in this order.
    digest: int
    entries: int
    file: str
    file_bytes: int = 0
    quarantined: tuple[int, ...] = ()
    refused: tuple[tuple[int, str], ...] = ()  # Entries that a target refuses for good, and why; the first ones.
    tables: TableFacts | None = None


class MutationEffect(NamedTuple):
    """What is left of a key: its value, None if it was deleted, and the entry that wrote it last."""

    key: bytes
    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    value: bytes | None


class _Taken:
    """What one target gets of a piece: changes in the order of the log, and the sum of digests."""

    def __init__(self, through: int, quarantined: Collection[int], kind: TargetKind | None) -> None:
        self.rows = RowFold(kind) if isinstance(kind, TableMapping) else None
        self.through = through
        self.quarantined = quarantined
        self.digest = 0
        self.entries = 0
        self.aside: list[int] = []
        self.refused: list[tuple[int, str]] = []
        self.keys: list[bytes] = []
        self.indexes: list[int] = []
        self.values: list[bytes | None] = []

    def take(self, index: int, share: Share) -> None:
        """Count the entry. A quarantined one counts as the others do: the target has it, beside its content."""
        if index > self.through:
            return
        self.digest += entry_digest(index, share.payload)
        self.entries += 1
        if index in self.quarantined:
            self.aside.append(index)
            if self.rows is not None:
                self.rows.set_aside(index, share.payload)
            return
        refused = share.refused if self.rows is None else self.rows.take(index, share.payload)
        if refused and len(self.refused) < REFUSED_MAX:
            self.refused.append((index, refused))
        for key, value in share.changes:
            self.keys.append(key)
            self.indexes.append(index)
            self.values.append(value)

    def finish(self) -> TableFacts | None:
        """What is known once the piece has ended."""
        if self.rows is None:
            return None
        for key, index, value in self.rows.effects():
            self.keys.append(key)
            self.indexes.append(index)
            self.values.append(value)
        return self.rows.facts()


def fold_piece(job: Job) -> list[Folded]:
    """In a task: fold one piece for all targets. Idempotent: a retry writes the same files."""
    taken = {
        name: _Taken(through, job.routes.quarantined.get(name, ()), job.kinds.get(name))
        for name, through in job.through.items()
    }
    split = Splitter(job.routes, job.through, job.kinds).split
    for records in job.piece.records(job.log):
        for index, kind, _, _, _, payload, _, _ in records:
            if kind == Kind.DATA:
                for target, share in split(index, payload).items():
                    taken[target].take(index, share)
    facts = {target: mine.finish() for target, mine in taken.items()}
    return [
        Folded(
            target,
            job.piece.first,
            mine.digest & _MASK,
            mine.entries,
            *(_write(job, target, mine) if mine.keys else ("", 0)),
            tuple(mine.aside),
            tuple(mine.refused),
            facts[target],
        )
        for target, mine in taken.items()
        if mine.entries
    ]


def file_of(job: Job, target: str) -> str:
    """The file for the target's share of the piece; names may differ only in what a file's name cannot have."""
    safe = "".join(c if c.isalnum() else "_" for c in target)[:40]
    return f"{safe}-{blake2b(target.encode(), digest_size=8).hexdigest()}-{job.piece.first:020}.arrow"


def _write(job: Job, target: str, mine: _Taken) -> tuple[str, int]:
    """The last change of each key, sorted by key: the file, and how many bytes it is about."""
    folder, name = open_folder(job.folder), file_of(job, target)
    table = pa.table(columns((mine.keys, mine.indexes, mine.values), SCHEMA), schema=SCHEMA)
    table = _newest_first(table.append_column("order", column(range(table.num_rows, 0, -1), pa.int64())))
    table = table.select(SCHEMA.names)
    with folder.write(name) as file, pa.ipc.new_stream(file, SCHEMA) as out:
        out.write_table(table, max_chunksize=ROWS_PER_BATCH)
    return folder.file(name), table.nbytes


def _newest_first(table: pa.Table) -> pa.Table:
    """Sorted by key, and of each key only the row with the lowest ``order``. Arrow sorts far faster than Python."""
    table = table.take(pc.sort_indices(table, sort_keys=[("key", "ascending"), ("order", "ascending")]))
    keys = table.column("key").combine_chunks()
    if len(keys) < 2:
        return table
    return table.filter(pa.concat_arrays([TRUE, pc.not_equal(keys[1:], keys[:-1])]))


def merge(parts: Sequence[Folded]) -> Iterator[MutationEffect]:
    """A target's content by key, deleted keys too: each key once, as the newest piece left it."""
    for keys, indexes, values in merge_columns(parts):
        yield from map(MutationEffect, keys, indexes, values)


Columns = tuple[list[bytes], list[int], list[bytes | None]]


def merge_columns(parts: Sequence[Folded]) -> Iterator[Columns]:
    """The same in columns, a few thousand rows at a time."""
    files = [part for part in sorted(parts, key=lambda part: -part.first) if part.file]
    if sum(part.file_bytes for part in files) <= IN_MEMORY_BYTES_MAX:
        yield from _merge_in_memory(files)
        return
    streams = [read_file(part.file, order) for order, part in enumerate(files)]
    last: bytes | None = None
    held: Columns = ([], [], [])
    for row in heapq.merge(*streams, key=lambda row: row[:2]):
        if row[0] == last:
            continue
        last = row[0]
        held[0].append(row[0])
        held[1].append(row[2])
        held[2].append(row[3])
        if len(held[0]) >= ROWS_PER_BATCH:
            yield held
            held = ([], [], [])
    if held[0]:
        yield held


def _merge_in_memory(files: Sequence[Folded]) -> Iterator[Columns]:
    tables = []
    for order, part in enumerate(files):
        with open_file(part.file) as file, pa.ipc.open_stream(file) as reader:
            table = reader.read_all()
        tables.append(table.append_column("order", column([order] * table.num_rows, pa.int64())))
    if tables:
        table = pa.concat_tables(tables)
        table = _newest_first(table) if len(tables) > 1 else table
        for batch in table.to_batches(max_chunksize=ROWS_PER_BATCH):
            keys, indexes, values = (batch.column(name).to_pylist() for name in SCHEMA.names)
            yield keys, indexes, values


def read_file(path: str, order: int) -> Iterator[tuple[bytes, int, int, Any]]:
    """The rows of a file: key, ``order``, index, value."""
    with open_file(path) as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            keys, indexes, values = (column.to_pylist() for column in batch.columns)
            for key, index, value in zip(keys, indexes, values, strict=True):
                yield key, order, index, value


def total_digest(parts: Sequence[Folded]) -> int:
    """The digest that a target must have after all parts."""
    return sum(part.digest for part in parts) & _MASK

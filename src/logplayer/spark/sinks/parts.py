"""A micro-batch for targets as tasks leave it: for each target a file with its rows in the order of their indexes.

One target's part of a batch is spread over the files that the batch's partitions have for it. They are merged while
they are read, a few rows of each in memory, or read one after the other if their indexes say that this is the same.
"""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from logplayer.core.entry import Delivery
from logplayer.errors import Malformed, UserError
from logplayer.spark.folders import Folder
from logplayer.spark.sinks.rows import payloads_of

PART = pa.schema([("log_index", pa.int64()), ("payload", pa.binary())])


class Part(NamedTuple):
    """One partition's rows for one target: ``[first, last]`` are their indexes."""

    partition: int
    target: str
    file: str
    rows: int
    first: int
    last: int


@dataclass
class StagedParts(WriterCommitMessage):
    """What one task staged."""

    partition: int
    parts: list[Part]

    @property
    def files(self) -> list[str]:
        return [part.file for part in self.parts]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


# --- In the tasks that stage ---


@dataclass
class _Open:
    """A part that is being written."""

    file: str
    out: Any
    rows: int = 0
    first: int = 0
    last: int = 0
    ordered: bool = True


class PartsStage:
    """Keeps a task's rows, durably, in files that no other attempt uses. Rows that are in order are not held."""

    def __init__(self, folder: Folder, partition: int) -> None:
        self._folder = folder
        self._partition = partition
        self._files = ExitStack()
        self._opened: dict[str, _Open] = {}

    def __enter__(self) -> PartsStage:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows of a DataFrame, in the order of the partition."""
        for target, rows in _by_target(batch):
            if target not in self._opened:
                name = f"{uuid.uuid4().hex}.arrow"
                file = self._files.enter_context(self._folder.write_own(f"rows/{name}"))
                self._opened[target] = _Open(name, self._files.enter_context(pa.ipc.new_stream(file, PART)))
            _add(self._opened[target], rows)

    def finish(self) -> StagedParts:
        """All rows were added."""
        self._files.close()
        for part in self._opened.values():
            if not part.ordered:
                _sort(self._folder, part)
        parts = [Part(self._partition, name, o.file, o.rows, o.first, o.last) for name, o in self._opened.items()]
        return StagedParts(self._partition, parts)


def stage_parts(folder: Folder, partition: int, batches: Iterable[pa.RecordBatch]) -> StagedParts:
    """In a task: keep all rows of a partition."""
    with PartsStage(folder, partition) as stage:
        for batch in batches:
            stage.add(batch)
        return stage.finish()


def _by_target(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The batch's rows for each target, encoded, in their order."""
    names, indexes = batch.column("target"), batch.column("log_index")
    if names.null_count or indexes.null_count:
        bad = batch.filter(pc.or_(pc.is_null(names), pc.is_null(indexes))).slice(0, 1).to_pylist()[0]
        raise UserError(f"a row has no target or no log_index: {bad}; filter such rows out before the sink")
    plain = batch.select([name for name in batch.schema.names if name != "target"])
    for target in pc.unique(names).to_pylist():
        mine = plain.filter(pc.equal(names, target))
        yield (
            target,
            pa.RecordBatch.from_arrays(
                [mine.column("log_index").cast(pa.int64()), payloads_of(mine, delivered=True)], schema=PART
            ),
        )


def _add(part: _Open, rows: pa.RecordBatch) -> None:
    indexes = rows.column(0)
    low, high = (pc.min_max(indexes)[side].as_py() for side in ("min", "max"))
    rising = len(indexes) < 2 or pc.all(pc.greater_equal(indexes[1:], indexes[:-1])).as_py()
    part.ordered = part.ordered and rising and (not part.rows or low >= part.last)
    part.first = min(part.first, low) if part.rows else low
    part.last = max(part.last, high)
    part.rows += rows.num_rows
    part.out.write_batch(rows)


def _sort(folder: Folder, part: _Open) -> None:
    """Rewrite a part whose rows came in another order; what one entry holds stays in its order."""
    with folder.open(f"rows/{part.file}") as file, pa.ipc.open_stream(file) as reader:
        table = reader.read_all()
    part.file = f"{uuid.uuid4().hex}.arrow"
    with folder.write_own(f"rows/{part.file}") as file, pa.ipc.new_stream(file, PART) as out:
        out.write_table(_in_order(table), max_chunksize=4096)


def _in_order(table: pa.Table) -> pa.Table:
    """Sorted by index. Arrow's sort of a table is stable."""
    return table.take(pc.sort_indices(table, sort_keys=[("log_index", "ascending")]))


# --- Where they are delivered ---


def require_deliverable(parts: Sequence[Part], high: int, known: Sequence[str]) -> int:
    """The highest index of the batch. Raises UserError if a row is late or for a target without an address."""
    for part in parts:
        if part.target not in known:
            raise UserError(
                f"a row is for target {part.target!r}, which has no address; addresses has {', '.join(known)}"
            )
        if part.first <= high:
            raise UserError(
                f"a row for target {part.target} has log_index {part.first}, but everything up to {high} was delivered "
                "by an earlier batch: the rows of a later batch must have higher indexes"
            )
    return max((part.last for part in parts), default=high)


def messages_of(folder: Folder, target: str, parts: Sequence[Part]) -> Iterator[Delivery]:
    """A target's deliveries in the order of the log; rows with one index are one entry."""
    mine = sorted((part for part in parts if part.target == target), key=lambda part: part.partition)
    streams = [_rows(folder, part) for part in mine]
    apart = all(one.last < other.first for one, other in pairwise(mine))
    held, payload, headers = 0, b"", b""
    rows = (row for stream in streams for row in stream) if apart else heapq.merge(*streams, key=itemgetter(0))
    for index, more in rows:
        more, own = _without_headers(more)
        if index == held:
            payload += more
            headers += own if own != headers else b""  # The source gives every row the headers of its entry.
            continue
        if held:
            yield Delivery(held, payload + headers)
        held, payload, headers = index, more, own
    if held:
        yield Delivery(held, payload + headers)


def _without_headers(payload: bytes) -> tuple[bytes, bytes]:
    """The mutations of a transaction, and its headers."""
    from logplayer.wire.entries import split_headers, split_transaction  # Only who delivers takes them apart.

    try:
        mutations = b"".join(mutation.encoded for mutation in split_transaction(payload))
        return mutations, split_headers(payload) if len(mutations) < len(payload) else b""
    except Malformed:
        return payload, b""  # The target refuses it, and says why.


def _rows(folder: Folder, part: Part) -> Iterator[tuple[int, bytes]]:
    with folder.open(f"rows/{part.file}") as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)

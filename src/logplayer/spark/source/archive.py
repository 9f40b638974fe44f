"""The archive: the log in Parquet files, one for each range of indexes, each written exactly once.

_logplayer.json                          format, log id, entries per range, first index
first=00000000000000000001/entries.parquet    entries 1 to N
first=00000000000000010001/entries.parquet    entries N + 1 to 2 N

Ranges are aligned and only whole ones are archived, so a file never changes once it has its name: writing it again,
by a retried task or a second archiver, puts the same rows in the same place. The rename is the commit point (on an
object store the copy, see ``folders``); a crash before it leaves a file with a name that nobody reads. After the last
whole range is the live tail: the log has it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from logplayer.errors import CorruptEntry, LogFormatError, Trimmed, UserError
from logplayer.log.open import LogPlace
from logplayer.log.protocol import Info, Record
from logplayer.spark import event_loop
from logplayer.spark.arrow import column
from logplayer.spark.folders import Folder, LocalFolder, open_file, open_folder
from logplayer.spark.source import batches

FORMAT = 2  # Since 2 entries have chain values.
RANGE_ENTRIES = 10_000
ROW_GROUP_BYTES = 16 << 20
META = "_logplayer.json"
SCHEMA = batches.RAW_SCHEMA.append(pa.field("chain", pa.binary())).append(pa.field("crc", pa.int64()))


@dataclass(frozen=True)
class Archive:
    """An archive in a place that the driver and all executors reach."""

    folder: Folder
    log_id: str
    range_entries: int
    begin: int  # The log's first entry when the archive was made: nothing before it is here.

    def file(self, low: int) -> str:
        """Where the range that starts at ``low`` is, or will be."""
        return self.folder.file(file_name(low))

    def bounds(self, index: int) -> tuple[int, int]:
        """The aligned range that holds ``index``."""
        low = (index - 1) // self.range_entries * self.range_entries + 1
        return low, low + self.range_entries - 1

    def files(self) -> list[tuple[int, int, str]]:
        """(first, last, path) of the files from the beginning up to the first one that is missing."""
        found = []
        there = self.folder.names()
        low, high = self.bounds(self.begin)
        while file_name(low) in there:
            found.append((max(low, self.begin), high, self.file(low)))
            low, high = self.bounds(high + 1)
        return found

    @property
    def through(self) -> int:
        """Every entry from ``begin`` up to here is archived; ``begin - 1`` if none is."""
        files = self.files()
        return files[-1][1] if files else self.begin - 1

    def missing(self, info: Info) -> list[tuple[int, int]]:
        """The whole ranges of the log that are not archived yet."""
        low, high = self.bounds(self.begin)
        there = self.folder.names()
        todo = []
        while high <= info.last:
            if file_name(low) not in there:
                todo.append((max(low, self.begin), high))
            low, high = self.bounds(high + 1)
        if todo and todo[0][0] < info.first:
            raise Trimmed(
                f"entry {todo[0][0]} was trimmed before it was archived; start a new archive from {info.first} on",
                info.first,
            )
        return todo


def file_name(low: int) -> str:
    """The file of the range that starts at ``low``."""
    return f"first={low:020}/entries.parquet"


def open_archive(path: str | Path, log_id: str = "") -> Archive:
    """The archive at ``path``; with ``log_id`` it must be that log's."""
    root = open_folder(path)
    try:
        content = root.read(META)
        if content is None:
            raise UserError(f"there is no archive at {root}; `logplayer archive` makes one")
        meta = json.loads(content)
        found = Archive(root, meta["log_id"], int(meta["range_entries"]), int(meta["begin"]))
        version = int(meta["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise LogFormatError(f"{root.file(META)} cannot be read ({error}); restore it from a backup") from None
    if version != FORMAT:
        what = "upgrade" if version > FORMAT else "start a new archive"
        raise LogFormatError(f"the archive at {root} has format {version}, this version knows {FORMAT}: {what}")
    if log_id and found.log_id != log_id:
        raise UserError(f"the archive at {root} is of log {found.log_id}, not of {log_id}; name the right one")
    return found


def make_archive(path: str | Path, info: Info, range_entries: int = RANGE_ENTRIES) -> Archive:
    """The archive at ``path``, made if it is not there. Its ranges are fixed when it is made."""
    root = open_folder(path)
    root.require_exclusive()
    if isinstance(root, LocalFolder):
        root.path.mkdir(parents=True, exist_ok=True)
        if not os.access(root.path, os.W_OK | os.X_OK):
            raise UserError(f"this user may not write to the archive at {root}; check the directory's owner")
    if root.read(META) is None:
        meta = {"format": FORMAT, "log_id": info.log_id, "range_entries": range_entries, "begin": info.first}
        root.put_if_absent(META, json.dumps(meta).encode())  # If another writer was faster, its choice holds.
    return open_archive(path, info.log_id)


def write_file(log: LogPlace, kept: Archive, first: int, last: int) -> int:
    """Archive one whole range; returns the number of entries. Idempotent: see the module."""
    low, _ = kept.bounds(first)
    count = 0
    checked = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}
    with kept.folder.write(file_name(low)) as file, pq.ParquetWriter(file, SCHEMA, **checked) as out:
        for group in _groups(log, first, last):
            out.write_batch(group)
            count += group.num_rows
    return count


def _groups(log: LogPlace, first: int, last: int) -> Iterator[pa.RecordBatch]:
    held: list[Record] = []
    size = 0
    for records in event_loop.read_range(log, first, last):
        held += records
        size += sum(len(record.payload) for record in records)
        if size >= ROW_GROUP_BYTES:
            yield _whole(held)
            held, size = [], 0
    if held:
        yield _whole(held)


def _whole(records: list[Record]) -> pa.RecordBatch:
    raw = batches.raw_batch(records)
    chain = column([record.chain for record in records], pa.binary())
    crc = column([record.crc for record in records], pa.int64())
    return pa.RecordBatch.from_arrays([*raw.columns, chain, crc], schema=SCHEMA)


def read_file(path: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """The rows ``[first, last]`` of one file, in order, with page checksums verified."""
    at = first
    try:
        with open_file(path) as opened, pq.ParquetFile(opened, page_checksum_verification=True) as file:
            for batch in file.iter_batches(batch_size=4096):
                indexes = batch.column("log_index")
                whole = indexes[0].as_py() >= first and indexes[-1].as_py() <= last
                wanted = batch if whole else _within(batch, first, last)
                if wanted.num_rows:
                    yield wanted
                    at = wanted.column("log_index")[-1].as_py() + 1
    except (OSError, pa.ArrowException) as error:
        why = " ".join(str(error).split())[:200]
        raise CorruptEntry(
            f"entry {at} cannot be read: the archive's file {path} is damaged ({why}); restore it from a backup", at
        ) from None


def times_of(path: str) -> tuple[list[int], list[int]]:
    """The indexes of a file and their commit times in microseconds."""
    with open_file(path) as opened, pq.ParquetFile(opened) as file:
        table = file.read(["log_index", "committed_at"])
    return table.column("log_index").to_pylist(), table.column("committed_at").cast(pa.int64()).to_pylist()


def _within(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    import pyarrow.compute as pc

    indexes = batch.column("log_index")
    return batch.filter(pc.and_(pc.greater_equal(indexes, first), pc.less_equal(indexes, last)))

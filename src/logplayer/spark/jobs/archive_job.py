"""``logplayer archive``: every whole range of the log that is not archived yet, many at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logplayer.log.open import LogPlace
from logplayer.spark import event_loop
from logplayer.spark.folders import open_folder
from logplayer.spark.progress import ShowProgress, run_tasks, unseen
from logplayer.spark.source.archive import RANGE_ENTRIES, Archive, make_archive, write_file
from logplayer.wire.security import NONE, Security

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ArchiveResult(NamedTuple):
    """What a run of the job did."""

    entries: int
    files: int
    through: int  # Every entry up to here is in the archive: the log may be trimmed so far.
    last: int  # Where the log ended.


class Todo(NamedTuple):
    """An archive, and the ranges of the log that it lacks."""

    log: LogPlace
    archive: Archive
    ranges: list[tuple[int, int]]
    last: int


def archive_log(
    spark: SparkSession,
    log: str,
    path: str,
    range_entries: int = RANGE_ENTRIES,
    *,
    security: Security = NONE,
    show: ShowProgress = unseen,
) -> ArchiveResult:
    """Bring the archive up to date. Safe to run at any time, twice at once too."""
    return fill_archive(spark, prepare_archive(LogPlace(log, security), path, range_entries), show=show)


def prepare_archive(log: LogPlace, path: str, range_entries: int = RANGE_ENTRIES) -> Todo:
    """Look at the log, make the archive if it is new, and see what it lacks: for that Spark is not needed."""
    open_folder(path).require_exclusive()
    with event_loop.opened(log) as opened:
        info = event_loop.run(opened.info())
    kept = make_archive(path, info, range_entries)
    return Todo(log, kept, kept.missing(info), info.last)


def fill_archive(spark: SparkSession | None, todo: Todo, *, show: ShowProgress = unseen) -> ArchiveResult:
    """Write what is missing; ``spark`` may be None if nothing is."""
    counts: list[int] = []
    if todo.ranges:
        assert spark is not None
        counts = run_tasks(spark, "archive", todo.ranges, partial(_write, todo.log, todo.archive), show=show)
    return ArchiveResult(sum(counts), len(counts), todo.archive.through, todo.last)


def _write(log: LogPlace, kept: Archive, bounds: tuple[int, int]) -> int:
    return write_file(log, kept, *bounds)

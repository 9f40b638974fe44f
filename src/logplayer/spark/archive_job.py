"""``logplayer archive``: every whole range of the log that is not archived yet, many at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from logplayer.spark import loop
from logplayer.spark.archive import RANGE_ENTRIES, Archive, make_archive, write_file
from logplayer.spark.jobs import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Archived(NamedTuple):
    """What a run of the job did."""

    entries: int
    files: int
    through: int  # Every entry up to here is in the archive: the log may be trimmed so far.
    last: int  # Where the log ended.


def archive_log(
    spark: SparkSession, log: str, path: str, range_entries: int = RANGE_ENTRIES, *, show: bool = True
) -> Archived:
    """Bring the archive up to date. Safe to run at any time, twice at once too."""
    with loop.opened(log) as opened:
        info = loop.run(opened.info())
    kept = make_archive(path, info, range_entries)
    todo = kept.missing(info)
    counts = run_tasks(spark, "archive", todo, partial(_write, log, kept), show=show)
    return Archived(sum(counts), len(counts), kept.through, info.last)


def _write(log: str, kept: Archive, bounds: tuple[int, int]) -> int:
    return write_file(log, kept, *bounds)

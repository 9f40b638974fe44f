"""Runs one function over many items as Spark tasks, with a progress bar that counts the finished ones."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from logplayer.errors import CorruptEntry, Fenced, LogPlayerError, Malformed, Poison, Trimmed, UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
LOOK_SECONDS = 0.25
ATTEMPTS_MAX = 3  # Of what may mend itself, such as a log server that restarts.
FINAL = (UserError, CorruptEntry, Trimmed, Malformed, Poison, Fenced)


def run_tasks(
    spark: SparkSession, label: str, items: Sequence[T], work: Callable[[T], R], *, show: bool = True
) -> list[R]:
    """``[work(item) for item in items]``, one task for each item; a failed task is tried again by Spark.

    So ``work`` must be idempotent. The results are in the order of the items. An error of ours that another try does
    not change is raised here as it was raised there, and not as Spark's account of a failed stage.
    """
    if not items:
        return []
    context = spark.sparkContext
    group = f"logplayer-{uuid.uuid4().hex[:8]}"
    done = threading.Event()
    with click.progressbar(
        length=len(items), label=label, file=sys.stderr, hidden=not (show and sys.stderr.isatty())
    ) as bar:
        watcher = threading.Thread(target=_watch, args=(context, group, bar, done), daemon=True)
        watcher.start()
        try:
            context.setJobGroup(group, label, interruptOnCancel=True)
            results: list[R | LogPlayerError] = (
                context.parallelize(list(items), len(items)).map(_shipped(partial(attempt, work))).collect()
            )
        except BaseException:
            context.cancelJobGroup(group)
            raise
        finally:
            done.set()
            watcher.join()
            unset: Any = None
            context.setLocalProperty("spark.jobGroup.id", unset)
        bar.update(len(items) - bar.pos)
    return checked(results)


def _shipped(work: Callable[[T], R]) -> Callable[[T], R]:
    from logplayer.spark.shipped import ShippedFunction  # It needs PySpark, which this module's importers may lack.

    return ShippedFunction(work)


def attempt(work: Callable[[T], R], item: T) -> R | LogPlayerError:
    """In a task: the result, or the error if Spark need not try again."""
    try:
        return work(item)
    except LogPlayerError as error:
        if not isinstance(error, FINAL) and _attempts() < ATTEMPTS_MAX:
            raise
        return error


def checked(results: Sequence[R | LogPlayerError]) -> list[R]:
    """The results, if none of them is an error."""
    good: list[R] = []
    for result in results:
        if isinstance(result, LogPlayerError):
            raise result
        good.append(result)
    return good


def _attempts() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.attemptNumber() + 1 if context else ATTEMPTS_MAX


def _watch(context: Any, group: str, bar: Any, done: threading.Event) -> None:
    tracker = context.statusTracker()
    while not done.wait(LOOK_SECONDS):
        finished = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                stage_info = tracker.getStageInfo(stage)
                finished += stage_info.numCompletedTasks if stage_info else 0
        if finished > bar.pos:
            bar.update(finished - bar.pos)

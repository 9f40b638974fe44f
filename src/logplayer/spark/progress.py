"""Runs one function over many items as Spark tasks, and says how many of them have finished."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from logplayer.errors import CorruptEntry, Fenced, LogPlayerError, Malformed, Poison, Trimmed, UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")
CountDone = Callable[[int], None]
"""Gets how many more tasks have finished."""
ShowProgress = Callable[[str, int], AbstractContextManager[CountDone]]
"""Gets what is done and the number of tasks; while the context lasts, what it gives hears of each that has finished."""
LOOK_SECONDS = 0.25
ATTEMPTS_MAX = 3  # Of what may mend itself, such as a log server that restarts.
FINAL = (UserError, CorruptEntry, Trimmed, Malformed, Poison, Fenced)


class FinishedTasks:
    """How many finished tasks were reported: the watching thread writes it, and has ended when it is read."""

    count = 0


def unseen(label: str, count: int) -> AbstractContextManager[CountDone]:
    """Show nothing."""
    return nullcontext(lambda more: None)


def run_tasks(
    spark: SparkSession, label: str, items: Sequence[T], work: Callable[[T], R], *, show: ShowProgress = unseen
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
    seen = FinishedTasks()
    with show(label, len(items)) as count_done:
        watcher = threading.Thread(target=_watch, args=(context, group, count_done, seen, done), daemon=True)
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
        count_done(len(items) - seen.count)
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


def _watch(context: Any, group: str, count_done: CountDone, seen: FinishedTasks, done: threading.Event) -> None:
    tracker = context.statusTracker()
    while not done.wait(LOOK_SECONDS):
        finished = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                stage_info = tracker.getStageInfo(stage)
                finished += stage_info.numCompletedTasks if stage_info else 0
        if finished > seen.count:
            count_done(finished - seen.count)
            seen.count = finished

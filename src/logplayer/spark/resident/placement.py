"""Runs one task on a wished executor.

PySpark's ``parallelize`` takes no wishes; Spark's ``makeRDD`` does, in the JVM. A wish costs nothing when it cannot be
had: a task whose executor is gone runs anywhere at once, and one whose executor is full after ``spark.locality.wait``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")


def run_one(context: SparkContext, work: Callable[[Any], T], argument: Any, executor: str = "") -> T:
    """Run ``work(argument)`` in a task, on ``executor`` (as ``session.executors`` names it) if it can be had.

    Raises whatever Spark raises when the job fails.
    """
    rdd = _placed(context, argument, executor) if executor else context.parallelize([argument], 1)
    [result] = rdd.map(work).collect()
    return result


def warm(context: SparkContext, executor: str) -> None:
    """Let ``executor`` start its Python. It is only to be ready, so what goes wrong is left to the next task."""
    with contextlib.suppress(Exception):
        context.setJobGroup("logplayer-warm", "logplayer play, start Python on a new executor")
        run_one(context, _nothing, None, executor)


def cancel(context: SparkContext, group: str) -> None:
    """End the jobs of a job group. If Spark has ended, they have ended with it."""
    with contextlib.suppress(Exception):
        context.cancelJobGroup(group)


def _nothing(_: object) -> None:
    """In a task."""


def _placed(context: SparkContext, argument: Any, executor: str) -> Any:
    from pyspark.core.rdd import RDD
    from pyspark.serializers import CPickleSerializer

    jvm: Any = context._jvm
    serializer: Any = CPickleSerializer()
    pickled = bytearray(serializer.dumps(argument))
    pairs = jvm.PythonUtils.toSeq([jvm.scala.Tuple2(pickled, jvm.PythonUtils.toSeq([executor]))])
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    made = context._jsc.sc().makeRDD(pairs, kind)
    return RDD(jvm.org.apache.spark.api.java.JavaRDD(made, kind), context, serializer)

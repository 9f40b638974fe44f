"""The connector in the JVM: where its jar is, and that a Spark session has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logplayer.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "logplayer.realtime.LogSource"
SPARK = "4.3"  # Real-time mode is young: the connector calls parts of Spark that change between versions.


def jar() -> Path:
    """The jar beside this file. Raises ConfigError if it was not built."""
    found = Path(__file__).with_name("logplayer-realtime.jar")
    if not found.exists():
        raise ConfigError(
            f"the connector for Spark's real-time mode is not at {found}: install a wheel of logplayer that has it, or "
            "build it with tools/jvm in a copy of the sources (it needs Maven)"
        )
    return found


def load(spark: SparkSession) -> tuple[Any, Any]:
    """The connector's package in the driver's JVM, and the class loader that knows it.

    A session that was started without the jar gets it now. The loader belongs to the thread that calls: others
    :func:`use` it.
    """
    jvm: Any = getattr(spark, "_jvm", None)  # A session of Spark Connect raises an AttributeError.
    if jvm is None:
        raise ConfigError(
            "lp.spark.realtime runs in a driver of its own, and this session of Spark Connect has no driver here: make "
            'one with lp.make_session("NAME", "spark://HOST:PORT"), and unset SPARK_REMOTE'
        )
    if not spark.version.startswith(f"{SPARK}."):
        raise ConfigError(
            f"this is Spark {spark.version}, and real time is built and tested for {SPARK} only: install pyspark "
            f"{SPARK}, or use the micro-batches of format('logplayer')"
        )
    if not _has(jvm):
        spark.sql(f"ADD JAR '{jar()}'")
        if not _has(jvm):
            raise ConfigError(f"Spark does not load {jar()}: start the session with spark.jars={jar()}")
    return jvm.logplayer.realtime, jvm.java.lang.Thread.currentThread().getContextClassLoader()


def use(spark: SparkSession, loader: Any) -> None:
    """Let this thread, and what Spark starts from it, find the connector."""
    jvm: Any = spark._jvm
    jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)


def driver_host(spark: SparkSession) -> tuple[str, str]:
    """Where tasks reach the driver, and where it listens."""
    conf: Mapping[str, str] = dict(spark.sparkContext.getConf().getAll())
    host = conf.get("spark.driver.host") or "127.0.0.1"
    return host, conf.get("spark.driver.bindAddress") or host


def check_slots(spark: SparkSession, wanted: int) -> None:
    """Raises ConfigError if so many tasks never run at once. A cluster may get more executors: its status tells."""
    context = spark.sparkContext
    master = context.master or ""
    if master.startswith("local") and not master.startswith("local-cluster"):
        slots = context.defaultParallelism
        if wanted > slots:
            raise ConfigError(
                f"groups={wanted} needs {wanted} slots at once, and {master} has {slots}: use fewer groups, or "
                "another master"
            )


def _has(jvm: Any) -> bool:
    from py4j.java_gateway import JavaClass

    return isinstance(jvm.logplayer.realtime.Plan, JavaClass)

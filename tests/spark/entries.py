"""Every entry of Spark, against a log and targets with TLS and a token on an address that is not loopback.

Each step is one of them; tests/spark/standalone_entries_child.py runs them, in a network namespace.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException

from tests.namespaces import HOST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from logplayer.wire.security import Security
    from tests.spark.spark_support import FileWal, Shards

TOKEN = "s3cret-of-the-log"
NAMES = ("a", "b")


class World:
    """The servers, and what the steps share."""

    def __init__(self, folder: Path, spark: SparkSession, wal: FileWal, shards: Shards, security: Security) -> None:
        self.folder, self.spark, self.wal, self.shards = folder, spark, wal, shards
        self.log, self.security = wal.serve(HOST, security), security
        self.files = {
            "tlsCa": str(folder / "ca.pem"),
            "tlsCert": str(folder / "client.pem"),
            "tlsKey": str(folder / "client.key"),
            "tokenFile": str(folder / "token"),
        }
        targets = "".join(f'{name} = "{address}"\n' for name, address in shards.addresses.items())
        secure = 'ca = "ca.pem"\ncert = "client.pem"\nkey = "client.key"\ntoken_file = "token"\n'
        text = f'[log]\naddress = "{self.log}"\n[targets]\n{targets}[security]\n{secure}'
        (folder / "relative.toml").write_text(text)
        for name in ("ca.pem", "client.pem", "client.key", "token"):
            text = text.replace(f'"{name}"', f'"{folder / name}"')
        (folder / "logplayer.toml").write_text(text)

    def cli(self, *words: str) -> Any:
        from logplayer.cli.main import cli

        return CliRunner().invoke(cli, list(words), catch_exceptions=False)


def play(world: World) -> None:
    """Relative paths: only the driver's directory has the files, the tasks' does not."""
    from dataclasses import replace

    from logplayer.admin.http_client import ask
    from logplayer.config import SparkSettings, load
    from logplayer.errors import LogPlayerError
    from logplayer.player.ended import STOPPED
    from logplayer.spark import event_loop
    from logplayer.spark.resident.driver import Resident
    from logplayer.wire.security import Security
    from tests.spark.test_resident import puts

    config = replace(load("relative.toml"), spark=SparkSettings(groups=2))
    resident = Resident(world.spark, config)
    assert resident.start()
    try:
        world.shards.wait(puts(world.wal, 50), 120)
        port = resident._driver
        assert port.startswith(f"{HOST}:"), port
        with contextlib.suppress(LogPlayerError):  # Heartbeats are not read in plain text.
            event_loop.run(ask(port, "/beat", {}, Security(token=resident._token, insecure=True)))
            raise AssertionError("the driver's port answers in plain text")
    finally:
        assert resident.stop() == STOPPED


def read(world: World) -> None:
    rows = world.spark.read.format("logplayer").options(log=world.log, **world.files).load()
    assert rows.where("log_index > 0").count() > 100
    given = {**world.files, "token": TOKEN}
    del given["tokenFile"]
    rows = world.spark.read.format("logplayer").options(log=world.log, **given).load()
    assert rows.count() > 100
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        rows.explain("extended")
    assert "logplayer" in said.getvalue()
    assert TOKEN not in said.getvalue() + repr(rows)
    wrong = world.spark.read.format("logplayer").options(log=world.log, **{**given, "token": "not-" + TOKEN[::-1]})
    with pytest.raises(PySparkException, match="refused the token") as refused:
        wrong.load().count()
    assert TOKEN[::-1] not in str(refused.value)


def read_stream(world: World) -> None:
    stream = world.spark.readStream.format("logplayer").options(config=str(world.folder / "logplayer.toml")).load()
    query = stream.writeStream.format("memory").queryName("entries").trigger(availableNow=True).start()
    query.awaitTermination()
    assert world.spark.sql("select * from entries").count() > 100


def log_sink(world: World) -> None:
    rows = world.spark.sql("select 'k1' key, 'from a table' value")
    before = world.wal.last()
    options = {"log": world.log, **world.files, "staging": str(world.folder / "staging")}
    rows.write.format("logplayer").options(**options).mode("append").save()
    assert world.wal.last() == before + 1
    source = world.folder / "in"
    source.mkdir()
    (source / "rows.json").write_text('{"key": "k2", "value": "from a stream"}\n')
    stream = world.spark.readStream.schema("key STRING, value STRING").json(str(source))
    out = stream.writeStream.format("logplayer").options(log=world.log, **world.files)
    out.option("checkpointLocation", str(world.folder / "c1")).trigger(availableNow=True).start().awaitTermination()
    assert world.wal.last() == before + 2


def target_sink(world: World) -> None:
    world.shards.start("sunk", "tcp")
    stream = world.spark.readStream.format("logplayer").options(log=world.log, **world.files).load()
    rows = stream.where("op = 'put'").selectExpr("'sunk' target", "log_index", "key", "value", "op")
    out = rows.writeStream.format("logplayer").options(
        to="targets", addresses=f"sunk={world.shards.addresses['sunk']}", **world.files
    )
    out.option("checkpointLocation", str(world.folder / "c2")).trigger(availableNow=True).start().awaitTermination()
    assert world.shards.index("sunk") > 0


def several_logs(world: World) -> None:
    rows = world.spark.read.format("logplayer").options(logs=f"one={world.log},two={world.log}", **world.files).load()
    counts = {row["log"]: row["count"] for row in rows.groupBy("log").count().collect()}
    assert counts.keys() == {"one", "two"}, counts
    assert min(counts.values()) > 100


def once(world: World) -> None:
    """Into the log from the driver, into a target from tasks."""
    import logplayer as lp

    world.shards.start("handed", "grpc")
    before = world.wal.last()
    batch = world.spark.sql("select 'handed' target, 7L log_index, 'k' key, 'v' value, 'put' op")
    where = {"addresses": f"handed={world.shards.addresses['handed']}", "staging": str(world.folder / "once-targets")}
    for _ in range(2):
        into = {"log": world.log, "staging": str(world.folder / "once-log")}
        assert lp.spark.once(batch.select("key", "value"), 0, **into, **world.files) == 1
        assert lp.spark.once(batch, 0, to="targets", **where, **world.files) == 1
    assert world.wal.last() == before + 1
    assert world.shards.index("handed") == 7


def lease(world: World) -> None:
    from tests.spark.spark_support import until
    from tests.spark.test_resident import puts

    options = {"config": str(world.folder / "logplayer.toml"), "mode": "play", "leaseSeconds": "2", "driverHost": HOST}
    stream = world.spark.readStream.format("logplayer").options(**options).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(world.folder / "c3")).start()
    try:
        last = puts(world.wal, 20, 100)
        until(lambda: query.exception() or all(world.shards.index(name) >= last for name in NAMES))
        assert not query.exception(), query.exception()
    finally:
        query.stop()


def options_of(world: World) -> list[str]:
    names = {"tlsCa": "--tls-ca", "tlsCert": "--tls-cert", "tlsKey": "--tls-key", "tokenFile": "--token-file"}
    return ["--log", world.log, *(word for key, option in names.items() for word in (option, world.files[key]))]


def archive(world: World) -> None:
    said = world.cli("archive", *options_of(world), "--to", str(world.folder / "archive"), "--range-entries", "50")
    assert "archived 50 entries in 1 file" in said.output, said.output


def backfill(world: World) -> None:
    world.shards.start("new", "grpc")
    target = f"new={world.shards.addresses['new']}"
    said = world.cli("backfill", "--config", "relative.toml", "--target", target, "--no-register")
    assert said.exit_code == 0, said.output
    assert "handed over at index" in said.output, said.output


def audit(world: World) -> None:
    targets = [word for name in NAMES for word in ("--target", f"{name}={world.shards.addresses[name]}")]
    said = world.cli("audit", *options_of(world), *targets)
    assert said.output.count("right: it has index") == 2, said.output


STEPS: tuple[Callable[[World], None], ...] = (
    play,
    read,
    read_stream,
    log_sink,
    target_sink,
    several_logs,
    once,
    lease,
    archive,
    backfill,
    audit,
)


def run(folder: Path, spark: SparkSession, steps: Sequence[Callable[[World], None]]) -> dict[str, str]:
    """Each step, with new servers; what came of it."""
    os.chdir(folder)  # The JVM, and so the tasks, stay where they started.
    import logplayer.spark.session
    from logplayer.wire.security import Security
    from tests.spark.spark_support import FileWal, KeptSession, Shards

    logplayer.spark.session.make_session = lambda *_, **__: KeptSession(spark)  # type: ignore[assignment]
    own = Security(str(folder / "ca.pem"), str(folder / "server.pem"), str(folder / "server.key"), TOKEN)
    wal, shards = FileWal(folder / "wal"), Shards(folder, (), host=HOST, security=own)
    shards.start("a", "grpc")
    shards.start("b", "tcp")
    world = World(folder, spark, wal, shards, own)
    found = {}
    for step in steps:
        began = time.monotonic()
        try:
            step(world)
            found[step.__name__] = "right"
        except BaseException as error:  # noqa: BLE001 - one entry that fails must not hide the others.
            traceback.print_exc()
            found[step.__name__] = f"{type(error).__name__}: {error}"[:300]
        print(f"{step.__name__}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    return found

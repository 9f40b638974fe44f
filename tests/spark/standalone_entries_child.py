"""Every entry of Spark, with executors that have addresses of their own, and with files on S3.

    python -m tests.spark.standalone_entries_child FOLDER [STEP...]

Runs in a network namespace (tests/namespaces.py) whose /etc/hosts is :data:`HOSTS`, with certificates in FOLDER. A
standalone master and two workers (tests/spark/standalone.py) run the steps of tests/spark/entries.py, then
those of this file, then the command of the documentation, as it stands there. Executors get options and Spark's
configuration; from their environment they get a home directory, where AWS's tools look for credentials. Prints one line
of JSON: for each step "right", or what went wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from logplayer.admin.http_client import ask
from logplayer.spark import event_loop
from logplayer.testing.orphans import end_with_this_process
from logplayer.wire.security import Security
from tests import ROOT
from tests.docs.docs_document import blocks
from tests.namespaces import HOST
from tests.servers import QUICK_JAVA, s3_server
from tests.spark.entries import STEPS, World, options_of, run
from tests.spark.spark_support import FileWal, Shards, until
from tests.spark.standalone import Cluster
from tests.spark.test_resident import puts

NAMES = {
    **dict.fromkeys(("master", "log", "shard-a", "player-driver-0.player-driver"), HOST),
    "shard-b": "10.77.0.2",
    **{f"shard-{nth}.shards": f"10.77.0.{3 + nth}" for nth in range(4)},
}
HOSTS = f"127.0.0.1 localhost {socket.gethostname()}\n" + "".join(f"{at} {name}\n" for name, at in NAMES.items())
PAGE = ROOT / "docs" / "how-to" / "spark-cluster.md"
MANIFEST = ROOT / "deploy" / "kubernetes" / "player-spark.yaml"
CREDENTIALS = "[default]\naws_access_key_id = test\naws_secret_access_key = test\n"
SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.cores.max": "4",
    "spark.executor.extraJavaOptions": " ".join(QUICK_JAVA),
}


def executors_elsewhere(world: World) -> None:
    from logplayer.spark.session import executors

    until(lambda: len(executors(world.spark)) == 2)
    assert {name.split("_")[1] for name in executors(world.spark)} == {"10.77.0.11", "10.77.0.12"}


# --- Files on S3 ---


def on_s3(name: str) -> str:
    """A place in the bucket; its address is known once the server runs."""
    return f"s3a://bucket/{name}?endpoint_override={os.environ['S3_SERVER']}&scheme=http&region=us-east-1"


def archive_on_s3(world: World) -> None:
    said = world.cli("archive", *options_of(world), "--to", on_s3("archive"), "--range-entries", "40")
    assert "archived" in said.output, said.output
    assert event_loop.run(world.wal.log.trim(40)) == 40  # What follows needs the archive.


def backfill_on_s3(world: World) -> None:
    world.shards.start("later", "tcp")
    words = ["--target", f"later={world.shards.addresses['later']}", "--no-register"]
    said = world.cli(
        *("backfill", "--config", "logplayer.toml", *words),
        *("--archive", on_s3("archive"), "--scratch", on_s3("scratch")),
    )
    assert "handed over at index" in said.output, said.output


def audit_on_s3(world: World) -> None:
    stores = [word for name in ("a", "b") for word in ("--store", f"{name}=sqlite:{world.shards.paths[name]}")]
    places = ["--archive", on_s3("archive"), "--scratch", on_s3("scratch")]
    said = world.cli("audit", *options_of(world), *stores, *places)
    assert said.output.count("right: it has index") == 2, said.output
    from logplayer.spark.folders import open_folder

    assert open_folder(on_s3("scratch")).names() == {}


def target_sink_on_s3(world: World) -> None:
    world.shards.start("kept", "grpc")
    given = {"log": world.log, **world.files}
    stream = world.spark.readStream.format("logplayer").options(**given, archive=on_s3("archive")).load()
    rows = stream.where("op = 'put'").selectExpr("'kept' target", "log_index", "key", "value", "op")
    out = rows.writeStream.format("logplayer").options(
        to="targets", addresses=f"kept={world.shards.addresses['kept']}", staging=on_s3("targets"), **world.files
    )
    for _ in range(2):  # The second one is a restart that finds its state there.
        out.option("checkpointLocation", str(world.folder / "c4")).trigger(availableNow=True).start().awaitTermination()
    assert world.shards.read("kept")[0].keys() >= world.shards.read("a")[0].keys()
    from logplayer.spark.folders import open_folder

    assert "state.json" in open_folder(on_s3("targets")).names()


def log_sink_on_s3(world: World) -> None:
    source = world.folder / "more"
    source.mkdir()
    (source / "rows.json").write_text('{"key": "k3", "value": "by way of S3"}\n')
    before = world.wal.last()
    stream = world.spark.readStream.schema("key STRING, value STRING").json(str(source))
    out = stream.writeStream.format("logplayer").options(log=world.log, staging=on_s3("log"), **world.files)
    for _ in range(2):
        out.option("checkpointLocation", str(world.folder / "c5")).trigger(availableNow=True).start().awaitTermination()
    assert world.wal.last() == before + 1


# --- The command of the documentation ---


@contextlib.contextmanager
def _typed(
    world: World, mark: str, command: list[str], security: Security, shards: dict[str, str], **environment: str
) -> Iterator[None]:
    """Type a command where there are a log at ``log:7100`` and targets at port 7201 of the addresses in ``shards``.

    The block runs once everything in the log was delivered; the process must end well when it is asked to.
    """
    folder = world.folder / f"typed-{mark}"
    folder.mkdir()
    wal, served = FileWal(folder / "wal"), [Shards(folder, (), host=at, security=security) for at in shards.values()]
    for name, one in zip(shards, served, strict=True):
        one.start(name, "grpc", 7201)
    wal.serve(HOST, security, 7100)
    last = puts(wal, 20)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    output = folder / "output"
    playing = subprocess.Popen(
        command,
        cwd=folder if mark == "plain" else world.folder,  # That has a logplayer.toml with certificates.
        env={**os.environ, "SPARK_CONF_DIR": str(world.folder / "conf"), "PATH": path, **environment},
        stdout=output.open("wb"),
        start_new_session=True,
    )
    try:
        pairs = list(zip(shards, served, strict=True))
        until(lambda: playing.poll() is not None or all(one.index(name) >= last for name, one in pairs), 240)
        # Entries may arrive before the driver has heard all groups.
        until(lambda: playing.poll() is not None or "playing" in output.read_text(), 240)
        yield
        playing.send_signal(signal.SIGINT)
        playing.wait(timeout=60)
        said = output.read_text()
        assert (playing.returncode, "playing" in said) == (0, True), (playing.returncode, said)
    finally:
        if playing.poll() is None:
            os.killpg(playing.pid, signal.SIGKILL)
        for one in served:
            one.stop()
        wal.close()


def _of_page(mark: str) -> list[str]:
    """The command of the page that has this word."""
    [command] = [block.text for block in blocks(PAGE.read_text()) if mark in block.text]
    return shlex.split(command.replace("\\\n", " "))


def command_of_the_page(world: World) -> None:
    """With the names of the page, and the files and the configuration that the page asks for."""
    with _typed(world, "tls", _of_page("--token-file"), world.security, {"a": HOST}):
        pass


def plain_command_of_the_page(world: World) -> None:
    with _typed(world, "plain", _of_page("--insecure"), Security(insecure=True), {"a": HOST, "b": NAMES["shard-b"]}):
        pass


def driver_of_kubernetes(world: World) -> None:
    """The container of the manifest, with this cluster's master in place of Kubernetes."""
    objects = {item["kind"]: item for item in yaml.safe_load_all(MANIFEST.read_text())}
    folder = world.folder / "kubernetes"
    folder.mkdir()
    for name, text in objects["ConfigMap"]["data"].items():
        (folder / name).write_text(text)
    [container] = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    environment = {"POD_NAME": "player-driver-0"}
    for given in container["env"]:
        if "value" in given:
            value = given["value"].replace("$(POD_NAME)", environment["POD_NAME"])
            environment[given["name"]] = value.replace("/etc/logplayer", str(folder))
    words = [word.replace("/etc/logplayer", str(folder)) for word in container["command"]]
    words[words.index("--master") + 1] = world.spark.sparkContext.master
    shards = {f"shard-{nth}": NAMES[f"shard-{nth}.shards"] for nth in range(4)}
    [port] = [port["containerPort"] for port in container["ports"]]
    with _typed(world, "kubernetes", words, Security(insecure=True), shards, **environment):
        status = event_loop.run(ask(f"{HOST}:{port}", "/status", security=Security(insecure=True)))
        assert status["slots"] >= 4, status
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = container[probe]["httpGet"]["path"]
            assert urllib.request.urlopen(f"http://{HOST}:{port}{path}").status == 200


ALL = (
    executors_elsewhere,
    *STEPS,
    archive_on_s3,
    backfill_on_s3,
    audit_on_s3,
    target_sink_on_s3,
    log_sink_on_s3,
    command_of_the_page,
    driver_of_kubernetes,
    plain_command_of_the_page,
)
CI = [step.__name__ for step in ALL[:-1]]  # The last one is another start of an application.


def configure(folder: Path) -> None:
    """What the machines of the cluster have: a home with credentials for S3, and Spark's configuration."""
    home = folder / "home"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws" / "credentials").write_text(CREDENTIALS)
    os.environ["HOME"] = str(home)
    import logplayer.spark

    conf = folder / "conf"
    conf.mkdir()
    for quiet in (Path(logplayer.spark.__file__).parent / "conf").iterdir():
        (conf / quiet.name).write_bytes(quiet.read_bytes())
    (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in SETTINGS.items()))


def main(folder: Path, chosen: list[str]) -> None:
    from logplayer.spark.session import make_session

    began = time.monotonic()
    configure(folder)
    for address in set(NAMES.values()) - {HOST}:
        subprocess.run(["ip", "addr", "add", f"{address}/24", "dev", "lo"], check=True)
    with Cluster(folder, host="master") as cluster, s3_server(HOST) as server:
        os.environ["S3_SERVER"] = server
        spark = make_session("beyond loopback", cluster.master, SETTINGS)
        print(f"a session after {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        steps = [step for step in ALL if step.__name__ in (chosen or CI)]
        found = run(folder, spark, steps)
        spark.stop()
    print(f"{time.monotonic() - began:.1f} s in all", file=sys.stderr, flush=True)
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # By way of every `finally`.
    end_with_this_process()  # Daemons and players have sessions of their own.
    main(Path(sys.argv[1]), sys.argv[2:])

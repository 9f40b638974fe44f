"""Spark Connect: a real server, and a client in a process of its own, which has no driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from logplayer.errors import ConfigError
from logplayer.spark.session import _lean_home, make_session, prepare_java
from logplayer.wire.entries import decode_transaction
from tests import ROOT
from tests.servers import IN_CI, free_port, missing, wait_for_port
from tests.spark.connect_child import ENTRIES, STEPS
from tests.spark.spark_support import FileWal, Shards, transaction

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
LOCK = ROOT / "tests" / "spark" / "connect.lock"
PACKAGES = ROOT / ".cache" / "connect"


@pytest.fixture
def packages() -> Path:
    """Where the packages of the client are."""
    stamp = PACKAGES / "installed.lock"
    if not stamp.exists() or stamp.read_bytes() != LOCK.read_bytes():
        if not IN_CI:
            missing("the packages of Spark Connect's client are not in .cache/connect; `tools/connect` installs them")
        subprocess.run([ROOT / "tools" / "connect"], check=True, timeout=300)
    return PACKAGES


@pytest.fixture
def server(packages: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a Spark Connect server on loopback."""
    prepare_java(quiet=True)
    home, port = _lean_home(Path(pyspark.__file__).parent), free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    words = [str(home / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[2,4]"]
    words += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(packages)]),
    }
    with open(tmp_path / "server.log", "w") as said:
        process = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=said, stderr=subprocess.STDOUT)
    try:
        wait_for_port(port, process, 300)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(900)
def test_every_entry_works_for_a_client_of_spark_connect(
    server: str, packages: Path, wal: FileWal, tmp_path: Path
) -> None:
    other = FileWal(tmp_path / "other")
    for name in ("sink", "once"):
        (tmp_path / f"{name}-shards").mkdir()
    sink, once = (Shards(tmp_path / f"{name}-shards", ("a", "b")) for name in ("sink", "once"))
    wal.append([transaction((b"k%d" % (i % 7), b"v%d" % i, "ab"[i % 2])) for i in range(ENTRIES)])
    given = {
        "server": server,
        "log": wal.serve(),
        "other": other.serve(),
        "sink_targets": sink.option,
        "once_targets": once.option,
    }
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(packages)])}
    words = [sys.executable, "-m", "tests.spark.connect_child", str(tmp_path), json.dumps(given)]
    try:
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=800)
        assert done.returncode == 0, done.stderr[-3000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found == {step.__name__: "right" for step in STEPS}, "\n".join(found.values())
        # What was written, by other code than wrote it.
        keys = [b"k%d" % (i % 7) for i in range(ENTRIES)]
        expected = Counter([b"sql", *(prefix + key for prefix in (b"sink-", b"once-") for key in keys)])
        assert Counter(key for record in other.records() for key, _ in decode_transaction(record.payload)) == expected
        for shards in (sink, once):
            for nth, name in enumerate("ab"):
                content, index, _ = shards.read(name)
                assert content == {b"k%d" % (i % 7): b"v%d" % i for i in range(ENTRIES) if i % 2 == nth}
                assert index == ENTRIES
    finally:
        sink.stop()
        once.stop()
        other.close()


@pytest.mark.parametrize(("master", "remote"), [("sc://127.0.0.1:15002", ""), ("local[1]", "sc://127.0.0.1:15002")])
def test_what_needs_a_driver_says_so(monkeypatch: pytest.MonkeyPatch, master: str, remote: str) -> None:
    monkeypatch.setenv("SPARK_REMOTE", remote)
    with pytest.raises(ConfigError, match=r"give --master spark://HOST:PORT.* and unset SPARK_REMOTE"):
        make_session("x", master, quiet=True)

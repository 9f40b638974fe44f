"""A target that hangs, by SIGSTOP under load: its session is given up, also in a write and in a handshake."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import logplayer as lp
from logplayer.errors import LogPlayerError
from logplayer.spark import event_loop
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.wire.security import NONE, Security
from tests.servers import Authority, free_port
from tests.spark.real_time_judge import differences
from tests.spark.spark_support import FileWal, transaction, until
from tests.spark.test_real_time import connector
from tests.spark.written import note_writes

__all__ = ["connector"]

VALUE = b"x" * (256 << 10)
# More on its way than the buffers of two sockets hold: so the task is in a write when its target hangs.
LIMITS = lp.Limits(progress_ms_max=3000, flight_batches_max=256, flight_bytes_max=64 << 20)


class Served:
    """A target in a process of its own."""

    def __init__(self, folder: Path, scheme: str, authority: Authority | None) -> None:
        self.path = folder / "a.db"
        self.security, self.server, words = NONE, NONE, []
        if authority is not None:
            cert, key = authority.issue("server")
            self.security, self.server = Security(ca=authority.ca), Security(cert=cert, key=key)
            words = ["--tls-cert", cert, "--tls-key", key]
        where = f"127.0.0.1:{free_port()}"
        self.address = f"{scheme}://{where}"
        SqliteTarget(self.path, "a").close()
        note_writes(self.path)
        store = ["--store", "sqlite", "--path", str(self.path), "--id", "a"]
        listen = ["--listen" if scheme == "grpc" else "--listen-tcp", where]
        command = [sys.executable, "-m", "logplayer.cli", "target", "serve", *store, *listen, *words]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def index(self) -> int:
        with contextlib.suppress(LogPlayerError):
            return event_loop.run(lp.position(self.address, "a", security=self.security)).index
        return -1

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(params=["tcp", "grpc", "tcp with TLS"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    scheme, _, tls = request.param.partition(" ")
    made = Served(tmp_path, scheme, Authority(tmp_path) if tls else None)
    yield made
    made.end()


@pytest.mark.timeout(300)
def test_a_target_that_hangs_is_given_up_until_it_answers(spark: SparkSession, wal: FileWal, served: Served) -> None:
    log = wal.serve(security=served.server)
    config = lp.Config(log=log, targets={"a": served.address}, limits=LIMITS, security=served.security)
    running = lp.spark.realtime(spark, config=config, batch_seconds=120).start()
    try:
        wal.append([transaction((b"k%d" % nth, b"v", "")) for nth in range(20)])
        until(lambda: served.index() >= wal.last())
        served.signal(signal.SIGSTOP)
        for nth in range(120):
            wal.append([transaction((b"big%d" % nth, VALUE, ""))])
        until(lambda: running.status["state"] == "reconnecting")
        assert "no answer for 3000 ms" in running.status["reason"]
        # Its machine still takes connections. The next session is given up, too: at its Open, or in the handshake.
        until(lambda: "no answer for" not in running.status["reason"])
        assert any(what in running.status["reason"] for what in ("no answer to Open", "no connection to"))
        served.signal(signal.SIGCONT)
        until(lambda: served.index() >= wal.last())
        assert running.status["starts"] == 1
    finally:
        served.signal(signal.SIGCONT)
        running.stop()
    assert differences(wal.records(), {"a": served.path}, ["a"], lambda key, value: [(key, value)]) == []

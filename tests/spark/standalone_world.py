"""A log and targets with TLS and a token, `logplayer play` processes on a standalone cluster, and what they must keep.

The check of what was applied is independent of the product: a trigger in each store notes every row that is written, in
order. So it sees an entry that was applied twice in place, or out of order, where content and index would look right.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from logplayer.admin.http_client import ask
from logplayer.core.routing import owner_of
from logplayer.errors import LogPlayerError
from logplayer.spark import event_loop
from logplayer.wire.entries import decode_transaction, split_transaction
from logplayer.wire.security import Security
from tests.namespaces import HOST
from tests.servers import QUICK_JAVA
from tests.spark.beyond_loopback_child import TOKEN
from tests.spark.spark_support import FileWal, Shards, until
from tests.spark.test_resident import MAP, NAMES, check, puts

NOTES = """
CREATE TABLE IF NOT EXISTS written (nth INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB, value BLOB);
CREATE TRIGGER IF NOT EXISTS noted AFTER INSERT ON data BEGIN
  INSERT INTO written (key, value) VALUES (new.key, new.value); END;
CREATE TRIGGER IF NOT EXISTS noted_again AFTER UPDATE ON data BEGIN
  INSERT INTO written (key, value) VALUES (new.key, new.value); END;
"""
WAIT = 240.0


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Play:
    """A `logplayer play --master ...` process, and what it has said."""

    def __init__(self, folder: Path, master: str, *options: str) -> None:
        self.errors = folder / f"play-{time.monotonic_ns()}.err"
        command = [sys.executable, "-m", "logplayer.cli", "play", "--config", "logplayer.toml", "--json"]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*command, "--master", master, "--http", f"{HOST}:0", *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                start_new_session=True,
                env={**os.environ, "SPARK_CONF_DIR": str(folder / "conf")},
            )
        self.said: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(json.loads(line))

    @property
    def now(self) -> str:
        return str(self.said[-1]["event"]) if self.said else ""

    def says(self, event: str) -> None:
        until(lambda: self.now == event or self.process.poll() is not None, WAIT)
        assert self.now == event, (self.said, self.errors.read_text()[-3000:])

    def kill(self) -> None:
        """The whole application at once, as when its machine is lost."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(60)
        finally:
            if self.process.poll() is None:
                self.kill()


class World:
    """The servers, a producer that never stops, and the players."""

    def __init__(self, folder: Path, master: str, settings: dict[str, str] | None = None) -> None:
        self.folder, self.master = folder, master
        self.security = Security(str(folder / "ca.pem"), str(folder / "server.pem"), str(folder / "server.key"), TOKEN)
        self.wal, self.shards = FileWal(folder / "wal"), Shards(folder, NAMES, host=HOST, security=self.security)
        for path in self.shards.paths.values():
            with closing(sqlite3.connect(path)) as store:
                store.executescript(NOTES)
        self._configure(self.wal.serve(HOST, self.security), settings or {})
        self.plays: list[Play] = []
        self._count = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._producer = threading.Thread(target=self._produce, daemon=True)
        self._producer.start()

    def _configure(self, log: str, settings: dict[str, str]) -> None:
        targets = "".join(f'{name} = "{address}"\n' for name, address in self.shards.addresses.items())
        secure = 'ca = "ca.pem"\ncert = "server.pem"\nkey = "server.key"\ntoken_file = "token"\n'
        text = f'[log]\naddress = "{log}"\n[targets]\n{targets}[security]\n{secure}[spark]\ngroups = 2\n'
        (self.folder / "logplayer.toml").write_text(text)
        conf = self.folder / "conf"
        conf.mkdir()
        import logplayer.spark

        for quiet in (Path(logplayer.spark.__file__).parent / "conf").iterdir():
            (conf / quiet.name).write_bytes(quiet.read_bytes())
        own = {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.executor.extraJavaOptions": " ".join(QUICK_JAVA),
            **settings,
        }
        (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in own.items()))

    def put(self) -> int:
        """Append one entry; its index."""
        with self._lock:
            self._count += 1
            return puts(self.wal, 1, self._count)

    def _produce(self) -> None:
        while not self._stop.wait(0.02):
            self.put()

    @property
    def count(self) -> int:
        """How many entries were appended."""
        return self._count

    def play(self, *options: str) -> Play:
        self.plays.append(Play(self.folder, self.master, *options))
        return self.plays[-1]

    def status(self, play: Play) -> dict[str, Any]:
        """Raises LogPlayerError while it does not answer."""
        found: dict[str, Any] = event_loop.run(ask(play.said[-1]["http"], "/status", security=self.security))
        return found

    def all_play(self, play: Play) -> dict[int, int]:
        """The process that plays each group, once they all live, and the application has all its executors."""
        found: dict[int, int] = {}

        def healthy() -> bool:
            try:
                status = self.status(play)
            except LogPlayerError:
                return False
            found.clear()
            for group in status["groups"]:
                pid = int(group["worker"].rpartition(":")[2] or 0)
                if group["state"] == "playing" and lives(pid):
                    found[group["group"]] = pid
            return len(found) == 2 and status["slots"] == 2

        until(healthy, WAIT)
        return found

    def recover(self, fault: Callable[[], object], pids: Iterable[int]) -> float:
        """Do it; the seconds until every target has an entry that was appended when the players ``pids`` were gone.

        The Python worker of a killed executor plays on for a moment, and what it delivers is no recovery.
        """
        began = time.monotonic()
        fault()
        until(lambda: not any(lives(pid) for pid in pids), WAIT)
        self.shards.wait(self.put(), WAIT)
        return round(time.monotonic() - began, 2)

    def end(self) -> None:
        """Heal, stop the players in order, and compare."""
        self._stop.set()
        self._producer.join()
        try:
            self.shards.wait(self.wal.last(), WAIT)
            for play in self.plays:
                play.stop()
        finally:
            for play in self.plays:
                if play.process.poll() is None:
                    play.kill()
        self.shards.stop()
        check(self.wal, self.shards)
        self._check_writes()
        self.wal.close()

    def _check_writes(self) -> None:
        """Every row that the log has for a store was written to it once, and those of one key in the log's order."""
        owner = owner_of(MAP)
        wanted: dict[str, dict[bytes, list[bytes]]] = {name: {} for name in NAMES}
        for record in self.wal.records():
            for mutation in split_transaction(record.payload) if not record.kind else ():
                [(key, value)] = decode_transaction(mutation.encoded)
                wanted[mutation.target or owner(key)].setdefault(key, []).append(value or b"")
        for name in NAMES:
            with closing(sqlite3.connect(self.shards.paths[name])) as store:
                found: dict[bytes, list[bytes]] = {}
                for key, value in store.execute("SELECT key, value FROM written ORDER BY nth"):
                    found.setdefault(bytes(key), []).append(bytes(value))
            assert found == wanted[name], f"{name} was not written as the log says"

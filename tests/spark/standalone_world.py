"""A log and targets with TLS and a token, `logplayer play` processes on a standalone cluster, and what they must keep.

What was applied is judged by code that is independent of the product (tests/spark/written.py): triggers in each store
note every row that is written. So an entry that was applied twice in place is seen, or one out of order, where content
and index look right.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from logplayer.admin.http_client import ask
from logplayer.errors import LogPlayerError
from logplayer.spark import event_loop
from logplayer.wire.security import Security
from tests.namespaces import HOST
from tests.servers import QUICK_JAVA
from tests.spark.entries import TOKEN
from tests.spark.spark_support import FileWal, Shards, transaction, until
from tests.spark.test_resident import NAMES, check
from tests.spark.written import Load, Verdict, judge, note_writes

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
            note_writes(path)
        self._configure(self.wal.serve(HOST, self.security), settings or {})
        self.plays: list[Play] = []
        self._load = Load()
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
            "spark.executor.cores": "2",  # With room for the group of a lost executor.
            "spark.cores.max": "4",
            "spark.executor.extraJavaOptions": " ".join(QUICK_JAVA),
            **settings,
        }
        self.slots = int(own["spark.cores.max"])
        (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in own.items()))

    def put(self) -> int:
        """Append one entry, of rows for several shards; its index."""
        with self._lock:
            rows = self._load.entry()
            [index] = self.wal.append([transaction(*((key, value, "") for key, value in rows))])
        return index

    def _produce(self) -> None:
        while not self._stop.wait(0.02):
            self.put()

    @property
    def count(self) -> int:
        """How many entries were appended."""
        return self._load.count

    def play(self, *options: str) -> Play:
        self.plays.append(Play(self.folder, self.master, *options))
        return self.plays[-1]

    def status(self, play: Play) -> dict[str, Any]:
        """Raises LogPlayerError while it does not answer."""
        found: dict[str, Any] = event_loop.run(ask(play.said[-1]["http"], "/status", security=self.security))
        return found

    def all_play(self, play: Play, state: str = "playing") -> dict[int, int]:
        """The process of each group, once they all live, and there are all executors; ``state`` "": any."""
        found: dict[int, int] = {}
        seen = "no status"

        def healthy() -> bool:
            nonlocal seen
            try:
                status = self.status(play)
            except LogPlayerError as error:
                seen = str(error)
                return False
            seen = f"{status['slots']} slots, groups {status['groups']}"
            found.clear()
            for group in status["groups"]:
                pid = int(group["worker"].rpartition(":")[2] or 0)
                if state in ("", group["state"]) and lives(pid):
                    found[group["group"]] = pid
            return len(found) == 2 and status["slots"] == self.slots

        try:
            until(healthy, WAIT, 0.3)  # Each question is a handshake, on the loop that serves log and targets.
        except AssertionError as error:
            raise AssertionError(f"not all groups are {state or 'there'} with {self.slots} slots: {seen}") from error
        return found

    def recover(self, fault: Callable[[], object], pids: Iterable[int]) -> dict[str, float]:
        """Do it; the seconds until every target has an entry that was appended when the players ``pids`` were gone.

        The Python worker of a killed executor plays on for a moment, and what it delivers is no recovery. Returns when
        they were gone, when the last of the new players took over, and when all targets were ``fed``.
        """
        before, began, wall = self.wal.last(), time.monotonic(), time.time()
        fault()
        until(lambda: not any(lives(pid) for pid in pids), WAIT)
        gone = time.monotonic() - began
        self.shards.wait(self.put(), WAIT)
        fed = time.monotonic() - began
        times = [record.committed_at_us / 1e6 - wall for record in self.wal.records(before + 1) if record.kind]
        steps = {"gone": gone, "takeover": max(times, default=0.0), "fed": fed}
        return {step: round(seconds, 2) for step, seconds in steps.items()}

    def abandon(self) -> None:
        """Leave at once: an interrupted run judges nothing."""
        self._stop.set()
        for play in self.plays:
            if play.process.poll() is None:
                play.kill()

    def end(self) -> Verdict:
        """Heal, stop the players in order, and compare."""
        self._stop.set()
        self._producer.join()
        try:
            self.shards.wait(self.wal.last(), WAIT)
            for play in self.plays:
                play.stop()
        finally:
            self.abandon()
        self.shards.stop()
        verdict = judge(self.shards.paths, self._load.appended)
        assert verdict.right, verdict
        check(self.wal, self.shards)
        self.wal.close()
        return verdict

"""A throw-away PostgreSQL with two standbys, of which at least one has synced a commit before it is answered."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from logplayer.errors import UserError

STANDBYS = ("s1", "s2")
START_SECONDS = 60
# Default durability (fsync on, synchronous_commit on) and the memory of a small server.
_OPTIONS = "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c shared_buffers=64MB"


class Postgres:
    """The primary and its standbys, in a directory that is removed at the end."""

    def __init__(self, standbys: tuple[str, ...] = STANDBYS) -> None:
        self._standbys = standbys
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._running: list[Path] = []
        self.url = ""

    def start(self) -> None:
        programs = find_programs()
        self._folder = tempfile.TemporaryDirectory(prefix="lp-pg-")
        folder = Path(self._folder.name)
        if os.geteuid() == 0:
            folder.chmod(0o755)
        port = _free_port()
        primary = self._data(folder, "primary")
        _run(programs / "initdb", "-D", primary, "-U", "postgres", "-A", "trust", "-N")
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        self._start(programs, primary, port)
        for name in self._standbys:
            data = self._data(folder, name)
            source = f"host=127.0.0.1 port={port} user=postgres application_name={name}"
            _run(programs / "pg_basebackup", "-D", data, "-d", source, "-R", "-X", "stream", "-c", "fast")
            self._start(programs, data, _free_port())
        if self._standbys:
            self._wait_for_standbys()

    def _wait_for_standbys(self) -> None:
        """From now on a commit waits for one of them."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            names = ", ".join(self._standbys)
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 ({names})'")
            connection.execute("SELECT pg_reload_conf()")
            deadline = time.monotonic() + START_SECONDS
            while time.monotonic() < deadline:
                states = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchall()
                if states == [("quorum",)] * len(self._standbys):
                    return
                time.sleep(0.02)
        raise UserError(f"PostgreSQL: the standbys did not connect within {START_SECONDS} s")

    def _data(self, folder: Path, name: str) -> Path:
        data = folder / name
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(data, "postgres", "postgres")
        return data

    def _start(self, programs: Path, data: Path, port: int) -> None:
        control = (programs / "pg_ctl", "-D", data, "-w", "-t", START_SECONDS)
        _run(*control, "-l", data / "log", "-o", f"-p {port} {_OPTIONS}", "start")
        self._running.append(data)

    def stop(self) -> None:
        """Safe to call twice."""
        if self._folder is None:
            return
        programs = find_programs()
        for data in reversed(self._running):  # The primary last would wait for its standbys.
            _run(programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
        self._running.clear()
        self._folder.cleanup()
        self._folder = None


def find_programs() -> Path:
    """The directory of PostgreSQL's server programs."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not versions:
        raise UserError("PostgreSQL's server is not installed (Debian: `apt-get install postgresql`)")
    return versions[-1].parent


def _run(*command: object) -> None:
    # As root PostgreSQL refuses to run. Not runuser: it sets the limit by which orphans.py knows what a run started.
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.geteuid() == 0 else []
    done = subprocess.run([*as_user, *map(str, command)], capture_output=True, text=True, cwd="/", check=False)
    if done.returncode:
        raise UserError(f"PostgreSQL: {Path(str(command[0])).name} failed: {done.stderr.strip()[-300:]}")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])

"""Database servers that a campaign can crash and start again on the same data."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg

from tests.servers import as_user, find_postgres, free_port


class PostgresServer:
    """A PostgreSQL in a directory; ``of`` makes it a streaming standby of that one."""

    def __init__(self, directory: Path, *settings: str, of: PostgresServer | None = None) -> None:
        found = find_postgres()
        assert found is not None, "PostgreSQL is not installed"
        self._programs, self._data, self.port = found, directory / "data", free_port()
        self._as_user = as_user("postgres")
        self._data.mkdir(mode=0o700, parents=True)
        if self._as_user:
            shutil.chown(self._data, "postgres", "postgres")
        if of is None:
            self._run(self._programs / "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-N")
        else:
            program = (self._programs / "initdb").resolve().parent / "pg_basebackup"
            self._run(program, "-d", of.url("postgres"), "-R", "-X", "stream", "-c", "fast", "-N", "-D", self._data)
        self._options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        self._options += "".join(f" -c {setting}" for setting in settings)
        self.start()

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        self._control("-l", self._data / "log", "-o", self._options, "start")

    def crash(self) -> None:
        """End every process of it at once, without a checkpoint."""
        self._control("-m", "immediate", "stop")

    def stop(self) -> None:
        self._control("-m", "fast", "stop")

    def make_standby(self) -> None:
        """It starts as a standby, of nobody, until it is promoted."""
        self._run("touch", self._data / "standby.signal")

    def promote(self) -> None:
        """Make a standby the primary of a new timeline."""
        self._control("promote")

    def take_slot(self, other: PostgresServer, slot: str) -> None:
        """Copy another server's slot while this one is stopped, as programs that keep slots on standbys do."""
        with psycopg.connect(other.url("postgres"), autocommit=True) as db:
            db.execute("CHECKPOINT")
        words = ("cp", "-r", other._data / "pg_replslot" / slot, self._data / "pg_replslot")
        self._run(*words)

    def _control(self, *words: object) -> None:
        self._run(self._programs / "pg_ctl", "-D", self._data, "-w", "-t", "120", *words)

    def _run(self, *command: object) -> None:
        words = [*self._as_user, *map(str, command)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")

    def rows(self, database: str, *queries: str) -> list[list[tuple[Any, ...]]]:
        """What the queries give, all at one moment."""
        with psycopg.connect(self.url(database)) as db:
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return [list(db.execute(query.encode())) for query in queries]


class MariadbServer:
    """A MariaDB in a directory, at a socket."""

    def __init__(self, directory: Path) -> None:
        install, self._program = shutil.which("mariadb-install-db"), shutil.which("mariadbd")
        if not install or not self._program:
            raise RuntimeError("MariaDB is not installed")
        self._data, self._socket = directory / "data", directory / "s"
        self._as_user = as_user("nobody")
        self._data.mkdir(mode=0o700, parents=True)
        if self._as_user:
            for path in (directory, self._data):
                shutil.chown(path, "nobody")
        self._where = ["--no-defaults", f"--datadir={self._data}"]
        made = [*self._as_user, install, *self._where, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
        self._log = open(directory / "log", "ab")  # noqa: SIM115 - It lives as long as the server.
        self.start()
        with self.connect("") as db, db.cursor() as cursor:
            cursor.execute("CREATE DATABASE bank CHARACTER SET utf8mb4")

    @property
    def url(self) -> str:
        return f"mysql://root@localhost/bank?socket={self._socket}"

    def start(self) -> None:
        words = [f"--socket={self._socket}", f"--pid-file={self._data}/pid", "--innodb-buffer-pool-size=64M"]
        command = [*self._as_user, str(self._program), *self._where, "--skip-networking", *words]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, cwd="/")
        end = time.monotonic() + 120
        while time.monotonic() < end and self._process.poll() is None:
            with contextlib.suppress(Exception), self.connect(""):
                return
            time.sleep(0.1)
        raise RuntimeError("MariaDB did not start")

    def connect(self, database: str = "bank") -> Any:
        import pymysql

        chosen = {"database": database} if database else {}
        return pymysql.connect(unix_socket=str(self._socket), user="root", **chosen)

    def crash(self) -> None:
        """kill -9 of the server."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def rows(self, *queries: str) -> list[list[tuple[Any, ...]]]:
        """What the queries give, all at one moment."""
        with self.connect() as db, db.cursor() as cursor:
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            out = []
            for query in queries:
                cursor.execute(query)
                out.append(list(cursor.fetchall()))
            return out

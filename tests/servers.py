"""Real servers for tests: PostgreSQL and Redis, each started once for a test run, in a directory that is thrown away.

A server that is not installed skips its tests here with the reason, and fails them where CI=true; there, as root on
Debian, it is installed first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

IN_CI = os.environ.get("CI") == "true"


def missing(what: str) -> None:
    """Skip the test, or fail it where nothing may be missing."""
    if IN_CI:
        pytest.fail(f"{what}, and CI must not skip")
    pytest.skip(what)


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def debian(package: str) -> None:
    """Install a Debian package where CI=true and we may."""
    if IN_CI and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(install, env=environment, capture_output=True).returncode:
            subprocess.run(["apt-get", "update", "-qq"], env=environment, capture_output=True)
            subprocess.run(install, env=environment, capture_output=True)


def find_postgres() -> Path | None:
    """The directory of PostgreSQL's server programs."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server with its normal durability; gives the url."""
    programs = find_postgres()
    if programs is None:
        debian("postgresql")
        programs = find_postgres()
    if programs is None:
        missing("PostgreSQL is not installed")
    assert programs is not None
    port = free_port()
    # As root PostgreSQL refuses to run; its own user must be able to reach the directory.
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="lp-pg-") as directory:
        data = Path(directory) / "data"
        data.mkdir(mode=0o700)
        if as_user:
            Path(directory).chmod(0o755)
            shutil.chown(data, "postgres", "postgres")

        def run(*command: object) -> None:
            subprocess.run([*as_user, *map(str, command)], check=True, stdout=subprocess.DEVNULL, cwd="/")

        run(programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        control = (programs / "pg_ctl", "-D", data, "-w", "-t", "60")
        run(*control, "-l", data / "log", "-o", options, "start")
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            run(*control, "-m", "fast", "stop")


@contextlib.contextmanager
def redis_server(*options: str) -> Iterator[str]:
    """A Redis server that syncs before it answers, unless ``options`` say otherwise; gives the url."""
    if shutil.which("redis-server") is None:
        debian("redis-server")
    program = shutil.which("redis-server")
    if program is None:
        missing("Redis is not installed")
    assert program is not None
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="lp-redis-") as directory:
        durable = options or ("--appendonly", "yes", "--appendfsync", "always")
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--save", "", *durable]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _wait_for_port(port, process)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait(10)


def _wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens at port {port}: the server did not start")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url

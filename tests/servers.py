"""Real servers for tests: PostgreSQL and Redis, each started once for a test run in a directory that is thrown away,
and a certificate authority.

A server that is not installed skips its tests here with the reason, and fails them where CI=true. `make test` installs
them first where it may: see tools/servers.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

IN_CI = os.environ.get("CI") == "true"
QUICK_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # For a JVM that lives for a minute.


def missing(what: str) -> None:
    """Skip the test, or fail it where nothing may be missing."""
    if IN_CI:
        pytest.fail(f"{what}, and CI must not skip")
    pytest.skip(what)


def require(module: str) -> None:
    """Skip the test if a part that is installed apart is missing; fail in CI."""
    try:
        importlib.import_module(module)
    except ImportError:
        missing(f"{module} is not installed")


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def as_user(name: str) -> list[str]:
    """Words before a command that run it as another user, if this is root: most databases refuse to run as root."""
    if os.geteuid() != 0:
        return []
    # Not runuser, which sets all limits again: by one of them, a run that was killed finds its servers (orphans.py).
    return ["setpriv", f"--reuid={name}", f"--regid={pwd.getpwnam(name).pw_gid}", "--init-groups"]


def find_postgres() -> Path | None:
    """The directory of PostgreSQL's server programs."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return versions[-1].parent if versions else None


@contextlib.contextmanager
def postgres_server(*settings: str) -> Iterator[str]:
    """A PostgreSQL server with its normal durability, and ``settings`` such as "wal_level=logical"; gives the url."""
    programs = find_postgres()
    if programs is None:
        missing("PostgreSQL is not installed")
    assert programs is not None
    port = free_port()
    other_user = as_user("postgres")
    with tempfile.TemporaryDirectory(prefix="lp-pg-") as directory:
        data = Path(directory) / "data"
        data.mkdir(mode=0o700)
        if other_user:
            Path(directory).chmod(0o755)  # It must be able to reach its data.
            shutil.chown(data, "postgres", "postgres")

        def run(*command: object) -> None:
            subprocess.run([*other_user, *map(str, command)], check=True, stdout=subprocess.DEVNULL, cwd="/")

        run(programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        options += "".join(f" -c {setting}" for setting in settings)
        control = (programs / "pg_ctl", "-D", data, "-w", "-t", "60")
        run(*control, "-l", data / "log", "-o", options, "start")
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            run(*control, "-m", "fast", "stop")


@contextlib.contextmanager
def redis_server(*options: str) -> Iterator[str]:
    """A Redis server that syncs before it answers, unless ``options`` say otherwise; gives the url."""
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
            wait_for_port(port, process)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()  # Its data is thrown away.
            process.wait()


class Authority:
    """A CA in a directory, by the openssl program."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        if shutil.which("openssl") is None:
            missing("openssl is not installed")
        self._directory = directory
        self._name = name
        self.ca = str(directory / f"{name}.pem")
        self._key = str(directory / f"{name}.key")
        self._openssl("req", "-x509", "-keyout", self._key, "-out", self.ca, "-subj", f"/CN={name}")

    def _openssl(self, *command: str) -> None:
        more = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        subprocess.run(["openssl", *command, *more], check=True, capture_output=True)

    def issue(self, name: str, address: str = "IP:127.0.0.1") -> tuple[str, str]:
        """A certificate and its key, as files; a second time with the same name replaces them."""
        cert, key = (str(self._directory / f"{name}.{part}") for part in ("pem", "key"))
        signed = ["-CA", self.ca, "-CAkey", self._key, "-addext", f"subjectAltName={address}"]
        new = [f"{path}.new" for path in (cert, key)]
        extra = ["-addext", "basicConstraints=critical,CA:FALSE"]
        self._openssl("req", "-x509", "-keyout", new[1], "-out", new[0], "-subj", f"/CN={name}", *signed, *extra)
        Path(new[1]).replace(key)
        Path(new[0]).replace(cert)
        return cert, key


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    """Until the server listens, or has ended. The limit only ends a test that hangs."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens at port {port}: the server did not start")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server("wal_level=logical") as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with redis_server() as url:
        yield url


@contextlib.contextmanager
def s3_server(host: str = "127.0.0.1") -> Iterator[str]:
    """A server with the API of S3 (moto's), with a bucket called ``bucket``; gives HOST:PORT."""
    program = Path(sys.executable).parent / "moto_server"
    if not program.exists():
        missing("moto's server is not installed")
    port = free_port()
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    words = [sys.executable, str(program), "-H", host, "-p", str(port)]
    process = subprocess.Popen(words, env={**os.environ, **keys}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        import boto3
        from botocore.exceptions import BotoCoreError

        give = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", **give)
        deadline = time.monotonic() + 120
        while True:
            try:
                client.create_bucket(Bucket="bucket")
                break
            except BotoCoreError:
                assert process.poll() is None, "moto's server ended"
                assert time.monotonic() < deadline, "moto's server did not start"
                time.sleep(0.1)
        yield f"{host}:{port}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def mariadb_server() -> Iterator[str]:
    """A MariaDB server that listens at a socket only; gives the url of an empty database."""
    programs = [shutil.which(name) for name in ("mariadb-install-db", "mariadbd")]
    if not all(programs):
        missing("MariaDB is not installed")
    install, server = map(str, programs)
    other_user = as_user("nobody")
    with tempfile.TemporaryDirectory(prefix="lp-maria-") as directory:
        data, socket_path = Path(directory) / "data", Path(directory) / "s"
        data.mkdir(mode=0o700)
        if other_user:
            Path(directory).chmod(0o755)
            shutil.chown(directory, "nobody")
            shutil.chown(data, "nobody")
        where = ["--no-defaults", f"--datadir={data}"]
        made = [install, *where, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run([*other_user, *made], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
        quiet = [
            "--skip-networking",
            f"--socket={socket_path}",
            f"--pid-file={data}/pid",
            "--innodb-buffer-pool-size=64M",
        ]
        with open(Path(directory) / "log", "wb") as log:
            process = subprocess.Popen([*other_user, server, *where, *quiet], stdout=log, stderr=log, cwd="/")
            try:
                yield _mariadb_database(str(socket_path), process)
            finally:
                process.terminate()
                process.wait()


def _mariadb_database(socket_path: str, process: subprocess.Popen[bytes]) -> str:
    import pymysql

    end = time.monotonic() + 120  # It only ends a test that hangs.
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(pymysql.err.OperationalError):
            db = pymysql.connect(unix_socket=socket_path, user="root")
            with db.cursor() as cursor:
                cursor.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
            db.close()
            return f"mysql://root@localhost/shop?socket={socket_path}"
        time.sleep(0.05)
    raise RuntimeError("MariaDB did not start")


@pytest.fixture(scope="session")
def mysql_url() -> Iterator[str]:
    with mariadb_server() as url:
        yield url

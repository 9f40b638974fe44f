"""When a test run is killed, every server that it started ends too."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.rivals import jars
from tests import ROOT, child_environment
from tests.servers import IN_CI, find_postgres, missing

RUN = """
import asyncio, os, subprocess, sys, threading, time
from pathlib import Path

def test_that_never_ends(tmp_path):
    from logplayer.testing.conformance.log_harness import ServerProcess
    pids = []
    thread = threading.Thread(target=lambda: pids.append(subprocess.Popen(["sleep", "1000"]).pid))
    thread.start()
    thread.join()  # Its end must not end the child: the kernel's own way would.
    pids.append(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
    shell = subprocess.run(["sh", "-c", "sleep 1000 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True)
    pids.append(int(shell.stdout))  # An orphan already.
    server = ServerProcess(f"file://{tmp_path}/log")
    asyncio.run(server.start())
    pids.append(server.pid)
    pids.append(subprocess.Popen([sys.executable, "-c", "import os, time; os.fork(); time.sleep(1000)"]).pid)
    time.sleep(3)  # The guard, which looks every second, has looked.
    # It has not seen this one, which is an orphan at once, in a session of its own, with an empty environment.
    lost = ["env", "-i", "setsid", "--fork", "sh", "-c", "echo $$; exec sleep 300 >/dev/null"]
    pids.append(int(subprocess.run(lost, stdout=subprocess.PIPE, text=True).stdout))
    Path(os.environ["LP_TEST_PIDS"]).write_text(" ".join(map(str, pids)))
    time.sleep(1000)
"""
# Each of these starts servers; the run is killed as soon as the last one is there.
SERVERS = """
import contextlib, os, time
from pathlib import Path
from tests import servers

def test_that_never_ends(tmp_path, request):
    names = os.environ["LP_TEST_SERVERS"].split()
    with contextlib.ExitStack() as stack:
        for name in names:
            if name.endswith("_cluster"):
                request.getfixturevalue(name)
            elif name == "kafka_brokers":
                from tests.kafka_servers import kafka_brokers
                stack.enter_context(kafka_brokers(1))
            elif name == "spark":
                from logplayer.spark.session import make_session
                assert make_session(master="local[1]").range(3).count() == 3
            else:
                stack.enter_context(getattr(servers, name)())
        Path(os.environ["LP_TEST_PIDS"]).write_text(str(os.getpid()))
        time.sleep(1000)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def of_the_run(folder: Path) -> list[str]:
    """Command lines of what has the run's folder in its command line, in its environment, or as its current folder."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid() and alive(int(place.name)):
            try:
                texts = (place / "cmdline").read_bytes(), (place / "environ").read_bytes(), os.readlink(place / "cwd")
            except OSError:
                continue
            if any(str(folder) in os.fsdecode(text) for text in texts):
                found.append(texts[0].replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for the run that other users, as those of databases, can use."""
    if not Path("/proc/self/environ").exists():
        missing("/proc, to see what is left")
    with tempfile.TemporaryDirectory(prefix="lp-run-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o1777)
        yield Path(made)


@contextlib.contextmanager
def started(folder: Path, test: str, *words: str, servers: str = "") -> Iterator[tuple[int, list[int]]]:
    """A run of pytest that waits in ``test``: its pid, and those that the test has noted. It is killed at the end."""
    pids = folder / "pids"
    for path in (ROOT / "tests" / "conftest.py", ROOT / "tests" / "log" / "conftest.py"):
        (folder / "conftest.py").open("a").write(path.read_text().replace("from __future__ import annotations", ""))
    (folder / "test_run.py").write_text(test)
    environment = child_environment(LP_TEST_PIDS=str(pids), LP_TEST_SERVERS=servers, TMPDIR=str(folder))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "test_run.py", "--rootdir", ".", *words]
    with open(folder / "output", "wb") as output:
        run = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        _wait(lambda: (pids.exists() and pids.read_text() != "") or run.poll() is not None)
        assert pids.exists(), (folder / "output").read_text()
        yield run.pid, list(map(int, pids.read_text().split()))
    finally:
        run.kill()
        run.wait()


def test_a_killed_run_leaves_nothing_behind(folder: Path) -> None:
    with started(folder, RUN) as (_, pids):
        assert all(map(alive, pids))
        assert len(of_the_run(folder)) > len(pids)
    _wait(lambda: not any(map(alive, pids)) and not of_the_run(folder))


@pytest.mark.parametrize("killed", ["run", "controller", "worker"])
def test_a_killed_run_leaves_no_servers(folder: Path, killed: str) -> None:
    """Also if the one that started them is a worker, and the controller or the worker alone is killed."""
    if find_postgres() is None or not shutil.which("redis-server"):
        missing("PostgreSQL or Redis is not installed")
    servers, words = "redis_server postgres_server", ["-n", "1", "--max-worker-restart", "0"]
    if killed == "run":
        servers, words = f"mariadb_server nats_cluster etcd_cluster spark {servers}", ["-p", "no:xdist"]
    with started(folder, SERVERS, *words, servers=servers) as (run, pids):
        assert (run == pids[0]) == (killed == "run")
        told = " ".join(of_the_run(folder))
        programs = ["postgres", "redis-server"]
        if killed == "run":
            programs += ["nats-server", "etcd", "org.apache.spark.deploy.SparkSubmit"]
        assert [program for program in programs if program not in told] == []
        if killed == "worker":
            os.kill(pids[0], signal.SIGKILL)
            _wait(lambda: not any("postgres" in command for command in of_the_run(folder)))
    _wait(lambda: not of_the_run(folder))


def test_a_killed_run_leaves_no_brokers(folder: Path) -> None:
    if not IN_CI and not jars.fetched("kafka"):
        missing("Kafka's jars are not fetched; `tools/rivals fetch` does it")
    with started(folder, SERVERS, "-p", "no:xdist", servers="kafka_brokers"):
        assert "kafka.Kafka" in " ".join(of_the_run(folder))
    _wait(lambda: not of_the_run(folder))


def _wait(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)

"""When a test run is killed, every server that it started ends too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests import ROOT, child_environment
from tests.servers import missing

RUN = """
import asyncio, os, shutil, subprocess, sys, threading, time
from pathlib import Path

def test_that_never_ends(tmp_path, request):
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
    if shutil.which("redis-server"):
        from tests.servers import redis_server
        redis = redis_server()
        redis.__enter__()
    time.sleep(3)  # The guard, which looks every second, has looked.
    Path(os.environ["LP_TEST_PIDS"]).write_text(" ".join(map(str, pids)))
    time.sleep(1000)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def of_the_run(folder: Path) -> list[str]:
    """Command lines that name the run's folder, or have it in their environment."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid() and alive(int(place.name)):
            try:
                texts = (place / "cmdline").read_bytes(), (place / "environ").read_bytes()
            except OSError:
                continue
            if any(str(folder).encode() in text for text in texts):
                found.append(texts[0].replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_a_killed_run_leaves_nothing_behind(tmp_path: Path) -> None:
    if not Path("/proc/self/environ").exists():
        missing("/proc, to see what is left")
    folder, pids = tmp_path / "run", tmp_path / "pids"
    folder.mkdir()
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_run.py").write_text(RUN)
    environment = child_environment(LP_TEST_PIDS=str(pids), TMPDIR=str(folder))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "test_run.py", "--rootdir", "."]
    run = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        _wait(lambda: (pids.exists() and pids.read_text() != "") or run.poll() is not None)
        if not pids.exists():
            assert run.stdout is not None
            raise AssertionError(run.stdout.read().decode())
        started = list(map(int, pids.read_text().split()))
        assert all(map(alive, started))
        assert len(of_the_run(folder)) > len(started)
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    _wait(lambda: not any(map(alive, started)) and not of_the_run(folder))


def _wait(condition: object) -> None:
    end = time.monotonic() + 120
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)

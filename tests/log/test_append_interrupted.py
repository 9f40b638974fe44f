"""Ctrl-C ends ``logplayer log append`` at once, at a terminal and at an open pipe; nothing acknowledged is lost."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "logplayer.cli", "log"]
LINE = b'{"mutations": [{"key": "k", "value": "v"}]}\n'
PATIENCE_SECONDS = 120.0


def start(log: Path, stdin: int, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "append", "--log", f"file://{log}", *options],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def last_index(log: Path) -> int:
    done = subprocess.run([*COMMAND, "info", "--log", f"file://{log}", "--json"], capture_output=True, text=True)
    return int(json.loads(done.stdout)["last"]) if done.returncode == 0 else 0


def wait_for(log: Path, last: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while last_index(log) < last:
        assert time.monotonic() < end, "the lines are not in the log"
        time.sleep(0.05)


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_ctrl_c_ends_it_and_says_what_was_appended(tmp_path: Path, terminal: bool) -> None:
    ours, theirs = pty.openpty() if terminal else reversed(os.pipe())
    append = start(tmp_path / "log", theirs)
    try:
        os.write(ours, LINE * 3)
        wait_for(tmp_path / "log", 3)
        append.send_signal(signal.SIGINT)  # Stdin stays open: nothing more comes and it does not end.
        out, err = append.communicate(timeout=PATIENCE_SECONDS)
    finally:
        append.kill()
        os.close(ours)
        os.close(theirs)
    assert append.returncode == 130, err
    assert out == "appended 3 transactions, indexes 1 to 3 before it was interrupted\n"
    assert "Traceback" not in err
    assert "Fatal" not in err
    assert last_index(tmp_path / "log") == 3


def test_ctrl_c_under_load_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with (
        open("/dev/null", "rb") as nothing,
        subprocess.Popen(
            [sys.executable, "-c", f"import sys\nwhile True: sys.stdout.buffer.write({LINE!r} * 50)"],
            stdin=nothing,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as feeder,
    ):
        assert feeder.stdout is not None
        append = start(tmp_path / "log", feeder.stdout.fileno(), "--json")
        assert append.stdout is not None
        assert append.stderr is not None
        first = append.stdout.readline()
        append.send_signal(signal.SIGINT)
        lines, err = [first, *append.stdout], append.stderr.read()
        feeder.kill()
    assert append.wait(PATIENCE_SECONDS) == 130, err
    indexes = [json.loads(line)["index"] for line in lines]
    assert indexes == list(range(1, len(indexes) + 1))
    assert last_index(tmp_path / "log") == len(indexes)
    assert "Traceback" not in err


def test_stdin_may_hold_what_is_no_text(tmp_path: Path) -> None:
    for nonsense in (b'{"mutations": "\xff\xfe"}\n', b"[" * 100_000 + b"\n"):
        done = subprocess.run(
            [*COMMAND, "append", "--log", f"file://{tmp_path}/log"],
            input=LINE + nonsense,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 2
        assert b"line 2 is not JSON" in done.stderr
        assert b"Traceback" not in done.stderr

"""``logplayer demo`` as a user runs it: it proves its point, it can be interrupted, and it leaves nothing behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from logplayer.demo.screen import Screen

KEYS = {
    "appended",
    "delivered",
    "lost",
    "doubled",
    "out_of_order",
    "digests_match",
    "total_before",
    "total_after",
    "faults",
    "delay_ms",
}
SHORT = ("--engine", "in-process", "--seconds", "8", "--transactions", "400", "--json")


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "logplayer.cli", "demo", *arguments]
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def left_behind(folder: Path) -> list[str]:
    """The command lines that name the demo's directory: every child of a demo does."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in line:
                found.append(line)
    return found


def test_money_moves_while_things_break(tmp_path: Path) -> None:
    demo = start(tmp_path, *SHORT)
    output, _ = demo.communicate(timeout=300)
    assert demo.returncode == 0, output
    assert "PROVED" in output
    verdict = json.loads(output.splitlines()[-1])
    assert verdict.keys() >= KEYS
    assert (verdict["lost"], verdict["doubled"], verdict["out_of_order"]) == (0, 0, 0)
    assert verdict["digests_match"] is True
    assert verdict["total_before"] == verdict["total_after"] > 0
    assert verdict["appended"] >= 400
    assert verdict["delivered"] > verdict["appended"], "a transfer changes two accounts"
    assert verdict["faults"] == 4
    assert verdict["delay_ms"].keys() == {"p50", "p90", "p99", "max"}
    assert "\033[" not in output, "no terminal, no escape sequences"
    assert left_behind(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_whatever_ends_the_demo_ends_its_processes(number: signal.Signals, tmp_path: Path) -> None:
    demo = start(tmp_path, *SHORT, "--shards", "2")
    assert demo.stdout is not None
    seen = ""
    while "money moves" not in seen:
        line = demo.stdout.readline()
        assert line, f"the demo ended before it began: {seen}"
        seen += line
    assert left_behind(tmp_path), "the children are there and can be found"
    demo.send_signal(number)
    rest, _ = demo.communicate(timeout=120)
    assert "Traceback" not in rest
    assert "PROVED" not in rest
    if number is not signal.SIGKILL:
        assert demo.returncode == 130
        assert list(tmp_path.iterdir()) == []
    wait_until(lambda: left_behind(tmp_path) == [])


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(300):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come true")


def test_a_directory_that_is_in_use_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    demo = start(tmp_path, *SHORT, "--keep", str(tmp_path))
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert output == f"logplayer: --keep {tmp_path} is not empty; give a directory that is new or empty\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


STATUS = {
    "player": "p",
    "epoch": 1,
    "state": "playing",
    "current": 5,
    "log_last": 5,
    "entries_per_second": 1.0,
    "consistent_cut": 5,
    "unroutable": 0,
    "targets": [],
}


def test_a_terminal_is_drawn_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    screen = Screen(out)
    screen.show(STATUS, "1 of 9")
    screen.show(STATUS, "2 of 9")
    screen.say("killed it")
    text = out.getvalue()
    assert text.count("\033[3F\033[J") == 2, "each time the three lines are taken back"
    assert text.rindex("killed it") < text.rindex("2 of 9"), "the status stays below the account"


def test_no_color_means_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    screen = Screen(out)
    screen.show(STATUS, "1 of 9")
    screen.show(None, "2 of 9")
    screen.say("killed it")
    assert "\033" not in out.getvalue()
    assert "2 of 9" not in out.getvalue(), "without drawing in place it is shown now and then only"

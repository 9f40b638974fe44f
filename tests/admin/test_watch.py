"""``logplayer status --watch`` in a terminal: what the page shows, of the same status."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from typing import Any

from rich.console import Console

from logplayer.cli.watch_view import view
from tests.admin.page_face import a_target, faced, playing
from tests.player.player_support import PATIENCE

STUCK = {
    "state": "stuck",
    "log_error": "entry 7 is damaged: its checksum does not match",
    "stuck_seconds": 40.0,
    "log_bytes": 12_000_000,
    "trim_point": 500,
    "delay_p50_ms": 3.25,
    "delay_p90_ms": 12.4,
    "delay_p99_ms": 1500.0,
    "producers": ["web-1", "web-2", "web-3", "web-4"],
    "audit": {"right": False, "targets": 1, "wrong": ["a"], "at": 0},
    "groups": [
        {"group": 0, "worker": "spark w1", "state": "playing"},
        {"group": 1, "worker": "", "state": "waiting"},
    ],
}


def seen(status: dict[str, Any]) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(view(status, []))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_everything_that_the_page_shows_is_there() -> None:
    said = seen({**playing([a_target("a")]), **STUCK})
    assert "entry 7 is damaged: its checksum does not match (for 40 s)" in said
    assert re.search(r"delay +median 3.25 ms, p90 12 ms, p99 1.5 s", said)
    assert re.search(r"log +entries 1 to 1000, 11 MB; up to 500 nobody needs it any more", said)
    assert re.search(r"producers +web-1, web-2, web-3, and 1 more", said)
    assert re.search(r"groups +0: w1, 1: waiting", said)
    assert re.search(r"audit +WRONG, 1 target, \d\d:\d\d:\d\d: a", said)


def test_what_is_not_there_is_not_made_up() -> None:
    said = seen(playing([a_target("a")]))
    assert re.search(r"delay +nothing was acked just now", said)
    assert re.search(r"log +entries 1 to 1000\n", re.sub(" +\n", "\n", said))
    assert re.search(r"producers +none just now", said)
    assert re.search(r"audit +not run", said)
    assert "groups" not in said


def test_it_is_drawn_on_a_terminal() -> None:
    """A real one, until Ctrl-C."""
    with faced(lambda: {**playing([a_target("shard7")]), **STUCK}) as url:
        where = url.removeprefix("http://").rstrip("/")
        master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
        command = [sys.executable, "-m", "logplayer.cli", "status", "--watch", "--player", where]
        process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        try:
            drawn, end = b"", time.monotonic() + PATIENCE
            while not all(word in drawn for word in (b"shard7", b"median 3.25 ms", b"entry 7 is damaged", b"WRONG")):
                assert time.monotonic() < end, drawn
                drawn += os.read(master, 65_536)
            assert b"\x1b[" in drawn
            process.send_signal(signal.SIGINT)
            while drained(master):
                pass
            assert process.wait(PATIENCE) in (0, 130)
        finally:
            process.kill()
            process.wait()
            os.close(master)


def drained(master: int) -> bool:
    """Whether more came from the terminal; at its end Linux says EIO."""
    try:
        return bool(os.read(master, 65_536))
    except OSError:
        return False

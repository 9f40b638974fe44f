"""What the demo shows: a running account of what happens, and below it the state of every shard."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Any, TextIO

from logplayer.player.status_table import status_table

EVERY_SECONDS = 5.0  # Without a terminal: how often the status is printed.


class Screen:
    """On a terminal the status is drawn in place, below the account; elsewhere, or with NO_COLOR, now and then."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._in_place = self._out.isatty() and not os.environ.get("NO_COLOR")
        self._started = time.monotonic()
        self._shown = 0.0
        self._block: list[str] = []

    def say(self, line: str) -> None:
        """One more line of the account, with the time since the start."""
        block = self._block
        self._erase()
        self._write([f"[{time.monotonic() - self._started:5.1f} s] {line}"])
        self._draw(block)

    def show(self, status: dict[str, Any] | None, moved: str) -> None:
        """The state of everything now; ``status`` is None while the player is away."""
        now = time.monotonic()
        if not self._in_place and now - self._shown < EVERY_SECONDS:
            return
        self._shown = now
        text = status_table(status) if status else "the player is away"
        lines = [f"  {line}" for line in (moved, *text.splitlines())]
        self._erase()
        if self._in_place:
            self._draw(lines)
        else:
            self._write(lines)

    def end(self) -> None:
        """Nothing will be drawn in place any more."""
        self._block = []

    def _erase(self) -> None:
        if self._block:
            self._out.write(f"\033[{len(self._block)}F\033[J")  # Up to the block's first line, and clear from there.
            self._block = []

    def _draw(self, lines: list[str]) -> None:
        if lines:
            width = shutil.get_terminal_size().columns - 1  # A wrapped line would take two to erase.
            self._block = [line[:width] for line in lines]
            self._write(self._block)

    def _write(self, lines: list[str]) -> None:
        self._out.write("".join(f"{line}\n" for line in lines))
        self._out.flush()

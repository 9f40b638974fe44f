"""Named places at which a test may kill the process, so that every crash step of the log and of the stores is taken."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

armed: str | None = None
"""Set by a test's child process only: a place, or ``place:3`` for the third time that it is passed."""

_passed: dict[str, int] = {}


def crashpoint(name: str) -> None:
    """Nothing, unless a test armed this place: then ``kill -9`` of this process."""
    if armed is None:
        return
    place, _, nth = armed.partition(":")
    if place == name:
        _passed[name] = _passed.get(name, 0) + 1
        if _passed[name] >= int(nth or 1):
            _kill()


_kill: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731

"""The threads that gRPC itself has in this process, which a fork must not meet."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

NAMES = ("grpc", "event_engine", "lifeguard")  # How gRPC names them, as /proc shows it.


def wait_for_end(seconds: float) -> None:
    """Return once gRPC's own threads are gone, or after ``seconds``.

    They end some milliseconds after its last object. A fork in between copies a mutex that one of them holds, and the
    child waits for it for ever. Threads of a gRPC that the program itself uses do not end; that fork is the program's.
    """
    deadline = time.monotonic() + seconds
    while running() and time.monotonic() < deadline:
        time.sleep(0.001)


def running() -> list[str]:
    """The names of gRPC's threads in this process; empty where the system does not show threads."""
    names = []
    for task in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # It has just ended.
            names.append(task.read_text().strip())
    return [name for name in names if name.startswith(NAMES)]

"""The threads that gRPC itself has in this process, which a fork must not meet."""

from __future__ import annotations

import contextlib
import gc
import time
from pathlib import Path

NAMES = ("grpc", "event_engine", "lifeguard")  # How gRPC names them, as /proc shows it.
COLLECT_SECONDS = 0.03  # A little more than they need to end once their last object is gone.


def wait_for_end(seconds: float) -> None:
    """Return once gRPC's own threads are gone, or after ``seconds``.

    They end some milliseconds after its last object. A fork in between copies a mutex that one of them holds, and the
    child waits for it for ever. Threads of a gRPC that the program itself uses do not end; that fork is the program's.

    Its objects are in cycles: an error with its traceback, a future with its callbacks. Another thread may still have
    such a cycle in hand, so the garbage is collected more than once.
    """
    deadline = time.monotonic() + seconds
    gc.collect()
    collected = time.monotonic()
    while running() and time.monotonic() < deadline:
        time.sleep(0.001)
        if time.monotonic() - collected > COLLECT_SECONDS:
            gc.collect()
            collected = time.monotonic()


def running() -> list[str]:
    """The names of gRPC's threads in this process; empty where the system does not show threads."""
    names = []
    for task in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # It has just ended.
            names.append(task.read_text().strip())
    return [name for name in names if name.startswith(NAMES)]

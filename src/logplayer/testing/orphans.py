"""Whatever a process starts ends when the process does, however it ends: a killed test run leaves no servers.

One call is enough, and nobody who starts a server has to think of it. A guard, a small process of its own, waits for
the end of the one that it guards. Then it ends everything that descends from it: what it saw among the descendants, and
what has the run's mark (a server that was started a moment ago, or that left its family by a double fork). They get
SIGTERM first and SIGKILL after a moment.

The mark stands in the environment, and in a limit that Linux has not used since 2.4.25 and that every child inherits,
the number of file locks. Redis and PostgreSQL write over their environment, and PostgreSQL's parent is init as soon as
it runs: only the limit is left of its family. ``runuser`` and ``su`` set all limits again, ``setpriv`` does not.

A process that this one starts may have a guard of its own (a worker of pytest-xdist). Guards let each other live: the
inner one knows what the outer one does not.

To ask the kernel instead (``PR_SET_PDEATHSIG``) needs code between fork and exec in every place that starts a process,
and ends the child with the *thread* that started it. Needs Linux; elsewhere nothing is guarded.
"""

import contextlib
import os
import random
import resource
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

MARK = "LOGPLAYER_RUN"
FILE_LOCKS = 10  # RLIMIT_LOCKS of Linux, which Python does not name.
LOOK_SECONDS = 1.0
MERCY_SECONDS = 3.0
Process = tuple[int, int]  # The pid, and when it was started: a pid alone may be somebody else's by now.


def end_with_this_process() -> None:
    """From now on, what this process starts does not outlive it."""
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/environ").exists():
        return
    mark, outer = uuid.uuid4().hex, os.environ.get(MARK, "")
    locks = random.SystemRandom().randrange(1 << 40, 1 << 62)
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark, str(locks)]
    quiet = subprocess.DEVNULL
    guard = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    guard.returncode = 0  # Nobody waits for it, and Popen must not complain.
    os.environ[MARK] = f"{outer}:{mark}" if outer else mark
    with contextlib.suppress(OSError, ValueError):  # The environment is enough for most.
        resource.setrlimit(FILE_LOCKS, (locks, resource.getrlimit(FILE_LOCKS)[1]))


def _all() -> dict[Process, int]:
    """Every process of this machine, with its parent's pid."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                if fields[0] not in b"ZX":
                    found[int(name), int(fields[19])] = int(fields[1])
    return found


def _descendants(roots: set[int], everybody: dict[Process, int]) -> set[Process]:
    found: set[Process] = set()
    while True:
        more = {process for process, parent in everybody.items() if parent in roots} - found
        if not more:
            return found
        found |= more
        roots = roots | {pid for pid, _ in more}


def _marked(mark: bytes, locks: bytes, everybody: dict[Process, int]) -> set[Process]:
    found = set()
    for process in everybody:
        place = Path(f"/proc/{process[0]}")
        with contextlib.suppress(OSError):
            if mark in (place / "environ").read_bytes() or locks in (place / "limits").read_bytes().split():
                found.add(process)
    return found


def _is_guard(process: Process) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process[0]}/cmdline").read_bytes().split(b"\0")
        return any(word.endswith(b"logplayer/testing/orphans.py") for word in words[1:4])
    return False


def guard(parent: int, mark: str, locks: str) -> None:
    """Wait for the end of ``parent``, then end what it left."""
    try:
        end = os.pidfd_open(parent)
    except ProcessLookupError:
        end = -1
    seen: set[Process] = set()
    while end >= 0 and os.getppid() == parent and not select.select([end], [], [], LOOK_SECONDS)[0]:
        everybody = _all()
        seen = (seen & everybody.keys()) | _descendants({parent}, everybody)
    started = time.monotonic()
    while time.monotonic() < started + 4 * MERCY_SECONDS:
        everybody = _all()
        left = (seen & everybody.keys()) | _marked(mark.encode(), locks.encode(), everybody)
        seen = left | _descendants({pid for pid, _ in left}, everybody)
        seen = {process for process in seen if not _is_guard(process)}
        if not seen:
            return
        number = signal.SIGTERM if time.monotonic() < started + MERCY_SECONDS else signal.SIGKILL
        for pid, _ in seen:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        time.sleep(0.2)


if __name__ == "__main__":
    guard(int(sys.argv[1]), *sys.argv[2:])

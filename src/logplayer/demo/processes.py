"""The demo's processes: real ones, started through the command line, and gone when the demo is."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from logplayer.errors import LogPlayerError

START_SECONDS_MAX = 60.0
FORK_SETTING = "GRPC_ENABLE_FORK_SUPPORT"  # The demo forks while it uses gRPC itself; its children do not.


class DemoProcess:
    """One ``logplayer`` command in a process of its own, with its output in a file."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        self.name = name
        self.arguments = list(arguments)
        self.output = folder / f"{name}.out"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again after it was killed; the output is appended."""
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "logplayer.cli.child", str(os.getpid()), *self.arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={key: value for key, value in os.environ.items() if key != FORK_SETTING},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def _code(self) -> str:
        return f"exit code {self._process.returncode}" if self._process else "never started"

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the output shows the pattern; say what it showed instead if the process ends."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            text = self.output.read_text(errors="replace") if self.output.exists() else ""
            found = re.search(pattern, text)
            if found:
                return found
            if not self.running:
                said = self.output.read_text(errors="replace").strip()  # All of it: it may have spoken meanwhile.
                if re.search(pattern, said) is None:
                    raise LogPlayerError(f"{self.name} did not start: {said[-500:] or f'{self._code} and no word'}")
            time.sleep(0.05)
        raise LogPlayerError(f"{self.name} was not ready within {START_SECONDS_MAX:.0f} s; see {self.output}")

    def wait_for_end(self, seconds: float = 180.0) -> int:
        """Its exit code; one that takes longer is ended."""
        assert self._process is not None
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            return 1

    def signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        if self.running and self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """``kill -9``, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self, seconds: float = 15.0) -> None:
        """Ask it to end; after a while, make it. Whatever it started goes with it."""
        if self._process is None:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)


class Family:
    """All children of one demo; leaving the block ends them, all at once, also after Ctrl-C."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: list[DemoProcess] = []

    def __enter__(self) -> Family:
        return self

    def __exit__(self, *_: object) -> None:
        with ThreadPoolExecutor(max(1, len(self._children))) as pool:
            list(pool.map(DemoProcess.stop, reversed(self._children)))

    def add(self, name: str, *arguments: str) -> DemoProcess:
        """Start a child that ends with the family."""
        child = DemoProcess(name, arguments, self.folder)
        self._children.append(child)
        child.start()
        return child


def descendants(pid: int) -> list[tuple[int, str]]:
    """(pid, command line) of every process below ``pid``, read from /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        for child in parents.get(queue.pop(), []):
            queue.append(child)
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append((child, line))
    return found

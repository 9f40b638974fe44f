"""Sees what a process syncs, renames and removes, in order, and makes its syncs fail: a layer between it and libc.

A child process runs with :attr:`SyncLayer.environment`; whatever it links to, SQLite and RocksDB too, calls libc
through the layer. The child may write marks of its own between the calls, for example before it acknowledges something:

    layer.run("from tests.sync_layer import mark; ...; store.apply(change); mark('acked 1')")
    layer.events()  # [Event("fdatasync", "/tmp/x.db-wal"), Event("mark", "acked 1")]

A machine without gcc skips the test with the reason, and fails it where CI=true. ``sync_file_range`` starts the writing
and makes nothing durable, so :meth:`SyncLayer.synced` does not count it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import child_environment
from tests.servers import missing

SOURCE = Path(__file__).with_name("sync_layer.c")
DURABLE = ("fsync", "fdatasync")
_EVENTS, _FAIL = "LP_SYNC_EVENTS", "LP_SYNC_FAIL"


class Event(NamedTuple):
    kind: str  # fsync, fdatasync, sync_file_range; the same after "failed-"; rename, unlink, mark.
    what: str  # The path; of a rename both, with a space between; of a mark its text.


class SyncLayer:
    """See the module. One for each test: its files are in ``directory``."""

    def __init__(self, library: Path, directory: Path) -> None:
        self._events = directory / "events"
        self._fail = directory / "fail"
        files = {_EVENTS: str(self._events), _FAIL: str(self._fail)}
        self.environment = child_environment(LD_PRELOAD=str(library), **files)

    def run(self, code: str, *arguments: object, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run Python ``code`` under the layer until it ends."""
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=timeout, check=False
        )

    def fail(self, part: str) -> None:
        """From now on, syncs of files with ``part`` in their path fail with EIO."""
        _demand(self._fail, part)

    def heal(self) -> None:
        """Syncs work again."""
        self._fail.unlink(missing_ok=True)

    def events(self) -> list[Event]:
        """What happened so far, in order."""
        lines = self._events.read_text().splitlines() if self._events.exists() else []
        return [Event(*line.split(" ", 1)) for line in lines]

    def synced(self, part: str = "") -> list[str]:
        """The paths, with ``part`` in them, of all that was made durable so far."""
        return [event.what for event in self.events() if event.kind in DURABLE and part in event.what]

    def synced_before(self, mark: str, after: str = "") -> list[str]:
        """The paths of what was made durable before the mark, and after the mark ``after`` if that is given."""
        events = self.events()
        start = events.index(Event("mark", after)) if after else 0
        end = events.index(Event("mark", mark))
        return [event.what for event in events[start:end] if event.kind in DURABLE]


def mark(text: str) -> None:
    """For the child: write ``text`` between the calls that the layer writes down."""
    with open(os.environ[_EVENTS], "a", encoding="utf-8") as events:
        events.write(f"mark {text}\n")


def fail_syncs(part: str) -> None:
    """For the child: as :meth:`SyncLayer.fail`."""
    _demand(Path(os.environ[_FAIL]), part)


def _demand(path: Path, part: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(part)
    new.replace(path)  # Never half written.


@pytest.fixture(scope="session")
def sync_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layer, compiled once for a test run."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        missing("no C compiler is installed to build the layer that counts syncs")
    assert compiler is not None
    library = tmp_path_factory.mktemp("sync-layer") / "sync_layer.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", library, SOURCE, "-ldl"], check=True)
    return library


@pytest.fixture
def sync_layer(sync_library: Path, tmp_path_factory: pytest.TempPathFactory) -> SyncLayer:
    return SyncLayer(sync_library, tmp_path_factory.mktemp("sync-events"))

"""Exit code 2 is the user's mistake, and a restart does not help; 1 means unreachable or busy, and a restart may.

Supervisors restart after 1 and not after 2: see deploy/systemd. Each case is a real command in a process of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import pkgutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import logplayer
from logplayer.errors import Unavailable, UserError
from tests.servers import require

DEAD = "127.0.0.1:1"  # Nobody may listen there without asking, and nobody does.
SQLITE = ("--store", "sqlite", "--path", "a.db", "--id", "a")
HERE = ("--id", "a", "--listen", "127.0.0.1:0")


def run(where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logplayer.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=where)


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    [line] = done.stderr.splitlines()
    assert line.startswith("logplayer: ")
    return line


def name(value: object) -> str:
    return " ".join(value[:4]) if isinstance(value, tuple) else ""


@pytest.fixture(scope="module")
def busy() -> Iterator[str]:
    """An address where somebody else listens, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


PORTS = [
    ("log", "serve", "--log", "file://{here}/wal", "--listen", "{busy}"),
    ("target", "serve", *SQLITE, "--listen", "{busy}"),
    ("target", "serve", *SQLITE, "--listen-tcp", "{busy}"),
    ("play", "--in-process", "--log", "file://{here}/wal", "--target", f"a=tcp://{DEAD}", "--http", "{busy}"),
]


@pytest.mark.parametrize("command", PORTS, ids=lambda command: f"{command[0]} {command[-2]}")
def test_a_port_in_use_is_said_in_one_way(command: tuple[str, ...], busy: str, tmp_path: Path) -> None:
    done = run(tmp_path, *(word.format(busy=busy, here=tmp_path) for word in command))
    said = f"cannot listen at {busy}: the port is in use; stop what uses it, or choose another with {command[-2]}"
    assert (done.returncode, one_line(done)) == (1, f"logplayer: {said}")


AWAY = [
    (("status", "--player", DEAD), "no player answers"),
    (("target", "retry", "a", "--player", DEAD), "no player answers"),
    (("target", "serve", "--store", "postgres", "--url", f"postgresql://{DEAD}/x", *HERE), "no PostgreSQL"),
    (("target", "serve", "--store", "redis", "--url", f"redis://{DEAD}/0", *HERE), "no Redis"),
    (("target", "position", f"tcp://{DEAD}"), f"no connection to tcp://{DEAD}: Connection refused"),
    (("target", "position", f"grpc://{DEAD}"), f"no connection to grpc://{DEAD}: Connection refused"),
    (("log", "info", "--log", f"grpc://{DEAD}"), "cannot be reached"),
]


@pytest.mark.parametrize(("command", "word"), AWAY, ids=name)
def test_what_is_away_may_come_back(command: tuple[str, ...], word: str, tmp_path: Path) -> None:
    done = run(tmp_path, *command)
    assert (done.returncode, word in one_line(done)) == (1, True), done.stderr


@pytest.mark.parametrize("command", [("log", "serve", "--listen", "127.0.0.1:0"), ("log", "append")], ids=name)
def test_a_log_that_another_process_writes_is_busy(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "wal").mkdir()
    with open(tmp_path / "wal" / "LOCK", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = run(tmp_path, *command, "--log", f"file://{tmp_path}/wal")
    assert (done.returncode, "is written by process" in one_line(done)) == (1, True)


def test_a_rocksdb_that_another_process_has_open_is_busy(tmp_path: Path) -> None:
    require("rocksdict")
    from logplayer.target.stores.open import open_store

    held = open_store("rocksdb", "a", path=str(tmp_path / "a"))
    done = run(tmp_path, "target", "serve", "--store", "rocksdb", "--path", "a", *HERE)
    held.close()
    assert (done.returncode, "is open in another process" in one_line(done)) == (1, True)


MISTAKES = [
    (("target", "serve", "--store", "postgres", "--url", "postgresql://x?nonsense=1", *HERE), "--url"),
    (("target", "serve", "--store", "redis", "--url", "http://127.0.0.1:1", *HERE), "check --url"),
    (("target", "serve", "--store", "rocksdb", "--path", "/proc/none", *HERE), "/proc/none"),
    (("target", "serve", *SQLITE, "--listen", "nonsense"), "HOST:PORT"),
    (("log", "serve", "--log", "file:///proc/none"), "/proc/none"),
    (("log", "info", "--log", "ftp://x"), "scheme"),
    (("play", "--in-process", "--log", "file:///tmp/x", "--target", "a"), "NAME=ADDRESS"),
    (("status", "--player", "nonsense"), "HOST:PORT"),
]


@pytest.mark.parametrize(("command", "word"), MISTAKES, ids=name)
def test_a_mistake_stays_one(command: tuple[str, ...], word: str, tmp_path: Path) -> None:
    done = run(tmp_path, *command)
    assert (done.returncode, word in one_line(done)) == (2, True), done.stderr


def test_nothing_is_a_mistake_and_may_come_back_as_well() -> None:
    """The exit code is decided by the class, so a class must not say both."""
    for module in pkgutil.walk_packages(logplayer.__path__, "logplayer."):
        with contextlib.suppress(ImportError):  # An extra that is not installed.
            if not module.name.endswith("__main__") and ".v1." not in module.name:
                importlib.import_module(module.name)
    both = [kind for kind in below(Unavailable) if issubclass(kind, UserError)]
    assert len(list(below(Unavailable))) >= 4
    assert both == []


def below(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    for one in kind.__subclasses__():
        yield one
        yield from below(one)

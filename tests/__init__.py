"""The tests, as a package: what they share is imported by its full name."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]


def child_environment(**more: str) -> dict[str, str]:
    """The environment of a child process that imports from ``tests``, wherever it runs."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}

"""What every part that keeps files needs of the file system."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Make a file durable, whoever wrote it; of a directory, the names in it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

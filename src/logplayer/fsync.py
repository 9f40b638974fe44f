"""What every part that keeps files needs of the file system."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700


def make_private_file(path: Path) -> None:
    """Make an empty file that its owner alone can read, if nothing is there: what is in it is nobody else's business.

    SQLite gives the files beside a database the database's mode.
    """
    with contextlib.suppress(FileExistsError):  # Its owner may have opened it to others on purpose.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE))


def make_private_directory(path: Path) -> None:
    """Make a directory, and those above it, if they are not there; what is in it only its owner can reach."""
    path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)


def sync(path: Path) -> None:
    """Make a file durable, whoever wrote it; of a directory, the names in it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Logs and targets that are real files and servers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pyspark = pytest.importorskip("pyspark") if os.environ.get("CI", "").lower() != "true" else __import__("pyspark")

from spark_support import FileWal  # noqa: E402


@pytest.fixture
def wal(tmp_path: Path) -> Iterator[FileWal]:
    """A log in a directory of its own."""
    log = FileWal(tmp_path / "wal")
    yield log
    log.close()

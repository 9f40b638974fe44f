"""Logs and targets that are real files and servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark") if os.environ.get("CI", "").lower() != "true" else __import__("pyspark")

from tests.spark.spark_support import FileWal  # noqa: E402


@pytest.fixture
def wal(tmp_path: Path) -> Iterator[FileWal]:
    """A log in a directory of its own."""
    log = FileWal(tmp_path / "wal")
    yield log
    log.close()

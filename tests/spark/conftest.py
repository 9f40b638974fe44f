"""One Spark session for the whole run, and logs and targets that are real files and servers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pyspark = pytest.importorskip("pyspark") if os.environ.get("CI", "").lower() != "true" else __import__("pyspark")

from pyspark.sql import SparkSession  # noqa: E402
from spark_support import FileWal  # noqa: E402

from logplayer.spark.session import make_session  # noqa: E402


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = make_session("tests", "local[4]", {"spark.sql.streaming.minBatchesToRetain": "5"})
    yield session
    session.stop()


@pytest.fixture
def wal(tmp_path: Path) -> Iterator[FileWal]:
    """A log in a directory of its own."""
    log = FileWal(tmp_path / "wal")
    yield log
    log.close()

"""One Spark session for the whole run: a JVM that is warm costs a fraction of a second one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.servers import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Shared; a test that needs another one, or stops it, does so in a process of its own."""
    require("pyspark")
    from logplayer.spark.session import make_session

    session = make_session("tests", "local[4]", {"spark.sql.streaming.minBatchesToRetain": "5"})
    yield session
    session.stop()

"""One PostgreSQL for the capture's tests, and a database of its own for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import pytest

from tests.capture.capture_support import Source, new_source
from tests.servers import postgres_server

_numbers = count(1)


@pytest.fixture(scope="session")
def source_server() -> Iterator[str]:
    with postgres_server("wal_level=logical", "max_replication_slots=30", "max_wal_senders=30", "fsync=off") as url:
        yield url


@pytest.fixture
def source(source_server: str) -> Iterator[Source]:
    with new_source(source_server, f"source_{os.getpid()}_{next(_numbers)}") as made:
        yield made

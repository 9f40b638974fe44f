"""Lets the tests of this folder import log_support, and gives them a cluster of real servers."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def nats_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Three servers for all tests; a test that stops one must start it again."""
    from log_support import missing

    from logplayer.errors import UserError

    try:
        from logplayer.log.cluster import Cluster, find_server, free_cluster_port

        find_server()
    except (ImportError, UserError) as error:
        missing(str(error))
    cluster = Cluster(tmp_path_factory.mktemp("nats"), free_cluster_port(1))
    cluster.up()
    yield cluster
    cluster.down()


@pytest.fixture
def log_name() -> str:
    return f"t{uuid.uuid4().hex[:10]}"

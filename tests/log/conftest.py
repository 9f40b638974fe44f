"""A cluster of real servers for the tests of this folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.log.log_support import missing


@pytest.fixture(scope="session")
def nats_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Three servers for all tests; a test that stops one must start it again."""
    from logplayer.errors import UserError

    try:
        from logplayer.log.nats.local_cluster import Cluster, find_server, free_cluster_port

        find_server()
    except (ImportError, UserError) as error:
        missing(str(error))
    cluster = Cluster(tmp_path_factory.mktemp("nats"), free_cluster_port(1))
    cluster.up()
    yield cluster
    cluster.down()


@pytest.fixture(scope="session")
def etcd_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Three servers for all tests; a test that stops one must start it again."""
    from logplayer.errors import UserError
    from logplayer.log.etcd.local_cluster import EtcdCluster, free_etcd_port

    try:
        EtcdCluster.find_server()
    except UserError as error:
        missing(str(error))
    cluster = EtcdCluster(tmp_path_factory.mktemp("etcd"), free_etcd_port(2))
    cluster.options = (f"quota-backend-bytes={96 * 1024**2}",)  # So that one test can fill it.
    cluster.up()
    yield cluster
    cluster.down()


@pytest.fixture
def log_name() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture(params=["nats", "etcd"])
def harness(request: pytest.FixtureRequest, log_name: str) -> object:
    """A log on each of the engines that replicate."""
    from logplayer.testing.conformance.log_etcd import EtcdHarness
    from logplayer.testing.conformance.log_nats import NatsHarness

    kind = {"nats": NatsHarness, "etcd": EtcdHarness}[request.param]
    return kind(request.getfixturevalue(f"{request.param}_cluster"), log_name)

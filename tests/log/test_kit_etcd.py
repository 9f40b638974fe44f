"""The conformance kit on a log in etcd: three real servers, and the log server over them."""

from __future__ import annotations

import pytest

from logplayer.log.etcd.local_cluster import EtcdCluster
from logplayer.testing.conformance import logs
from logplayer.testing.conformance.log_etcd import EtcdHarness
from logplayer.testing.conformance.log_harness import ServedHarness
from tests.log.log_support import run_check


@pytest.mark.parametrize("check", logs.CHECKS, ids=logs.name)
async def test_etcd(check: logs.LogCheck, etcd_cluster: EtcdCluster, log_name: str) -> None:
    await run_check(check, EtcdHarness(etcd_cluster, log_name))


@pytest.mark.parametrize("check", logs.CHECKS, ids=logs.name)
async def test_server_over_etcd(check: logs.LogCheck, etcd_cluster: EtcdCluster, log_name: str) -> None:
    inner = EtcdHarness(etcd_cluster, log_name)
    await run_check(check, ServedHarness(inner, inner.address))

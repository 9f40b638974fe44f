"""The conformance kit on the replicated log: three real servers, and the log server over them."""

from __future__ import annotations

import pytest

from logplayer.log.nats.local_cluster import Cluster
from logplayer.testing.conformance import logs
from logplayer.testing.conformance.log_harness import ServedHarness
from logplayer.testing.conformance.log_nats import NatsHarness
from tests.log.log_support import run_check


@pytest.mark.parametrize("check", logs.CHECKS, ids=logs.name)
async def test_nats(check: logs.LogCheck, nats_cluster: Cluster, log_name: str) -> None:
    await run_check(check, NatsHarness(nats_cluster, log_name))


@pytest.mark.parametrize("check", logs.CHECKS, ids=logs.name)
async def test_server_over_nats(check: logs.LogCheck, nats_cluster: Cluster, log_name: str) -> None:
    inner = NatsHarness(nats_cluster, log_name)
    await run_check(check, ServedHarness(inner, inner.address))

"""The conformance kit on the replicated log: three real servers, and the log server over them."""

from __future__ import annotations

import pytest
from log_support import run_check

from logplayer.log.cluster import Cluster
from logplayer.testing import log_kit
from logplayer.testing.log_harness import ServedHarness
from logplayer.testing.log_nats import NatsHarness


@pytest.mark.parametrize("check", log_kit.CHECKS, ids=log_kit.name)
async def test_nats(check: log_kit.Check, nats_cluster: Cluster, log_name: str) -> None:
    await run_check(check, NatsHarness(nats_cluster, log_name))


@pytest.mark.parametrize("check", log_kit.CHECKS, ids=log_kit.name)
async def test_server_over_nats(check: log_kit.Check, nats_cluster: Cluster, log_name: str) -> None:
    inner = NatsHarness(nats_cluster, log_name)
    await run_check(check, ServedHarness(inner, inner.address))

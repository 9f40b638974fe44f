"""Shared by the log's tests: run a check of the kit on a harness."""

from __future__ import annotations

import os
import socket
from typing import NoReturn, Protocol

import pytest

from logplayer.testing.conformance import logs


class DiskHarness(Protocol):
    def use_small_disk(self) -> None: ...


def missing(reason: str) -> NoReturn:
    """What a machine lacks is skipped locally, with the reason, and is a failure in CI."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """A port on which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def run_check(check: logs.LogCheck, harness: logs.Harness) -> None:
    try:
        if check is logs.check_full_disk and hasattr(harness, "use_small_disk"):
            harness.use_small_disk()
        async with harness:
            await check(harness)
    except logs.NotApplicable as reason:
        missing(str(reason))

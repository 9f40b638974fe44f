"""Shared by the log's tests: run a check of the kit on a harness."""

from __future__ import annotations

import os
from typing import NoReturn, Protocol

import pytest

from logplayer.testing import log_kit


class DiskHarness(Protocol):
    def use_small_disk(self) -> None: ...


def missing(reason: str) -> NoReturn:
    """What a machine lacks is skipped locally, with the reason, and is a failure in CI."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason)
    pytest.skip(reason)


async def run_check(check: log_kit.Check, harness: log_kit.Harness) -> None:
    try:
        if check is log_kit.check_full_disk and hasattr(harness, "use_small_disk"):
            harness.use_small_disk()
        async with harness:
            await check(harness)
    except log_kit.NotApplicable as reason:
        missing(str(reason))

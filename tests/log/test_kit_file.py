"""The conformance kit on the embedded file log, on real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from logplayer.testing.conformance import logs
from logplayer.testing.conformance.log_harness import FileHarness
from tests.log.log_support import run_check


@pytest.mark.parametrize("check", logs.CHECKS, ids=logs.name)
async def test_file(check: logs.LogCheck, tmp_path: Path) -> None:
    await run_check(check, FileHarness(tmp_path))


async def test_file_with_one_large_segment(tmp_path: Path) -> None:
    """The default size of a segment, for the checks in which segments matter."""
    for nth, check in enumerate((logs.check_trim, logs.check_retry_after_trim, logs.check_reopen)):
        await run_check(check, FileHarness(tmp_path / str(nth), segment_bytes=64 << 20))

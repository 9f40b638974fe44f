"""The conformance kit on the embedded file log, on real files."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_support import run_check

from logplayer.testing import log_kit
from logplayer.testing.log_harness import FileHarness


@pytest.mark.parametrize("check", log_kit.CHECKS, ids=log_kit.name)
async def test_file(check: log_kit.Check, tmp_path: Path) -> None:
    await run_check(check, FileHarness(tmp_path))


async def test_file_with_one_large_segment(tmp_path: Path) -> None:
    """The default size of a segment, for the checks in which segments matter."""
    for nth, check in enumerate((log_kit.check_trim, log_kit.check_retry_after_trim, log_kit.check_reopen)):
        await run_check(check, FileHarness(tmp_path / str(nth), segment_bytes=64 << 20))

"""The conformance kit on a real log server process over the file log."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_support import run_check

from logplayer.testing import log_kit
from logplayer.testing.log_harness import FileHarness, ServedHarness


@pytest.mark.parametrize("check", log_kit.CHECKS, ids=log_kit.name)
async def test_server_over_file(check: log_kit.Check, tmp_path: Path) -> None:
    inner = FileHarness(tmp_path)
    if check is log_kit.check_full_disk:
        try:
            inner.use_small_disk()
        except log_kit.NotApplicable as reason:
            from log_support import missing

            missing(str(reason))
    await run_check(check, ServedHarness(inner, f"file://{inner.path}"))

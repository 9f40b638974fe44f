"""The conformance kit on a real log server process over the file log."""

from __future__ import annotations

from pathlib import Path

import pytest

from logplayer.testing.conformance import logs
from logplayer.testing.conformance.log_harness import FileHarness, ServedHarness
from tests.log.log_support import run_check


@pytest.mark.parametrize("check", [*logs.CHECKS, *logs.SERVED_CHECKS], ids=logs.name)
async def test_server_over_file(check: logs.LogCheck, tmp_path: Path) -> None:
    inner = FileHarness(tmp_path)
    if check is logs.check_full_disk:
        try:
            inner.use_small_disk()
        except logs.NotApplicable as reason:
            from tests.log.log_support import missing

            missing(str(reason))
    await run_check(check, ServedHarness(inner, f"file://{inner.path}"))

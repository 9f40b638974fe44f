"""A few kills of the campaign, so that it keeps working; ``python -m tests.campaign.realtime`` is the long one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.namespaces import require_namespaces
from tests.spark.test_real_time import connector

__all__ = ["connector"]


@pytest.mark.timeout(900)
def test_a_few_kills_on_a_standalone_cluster() -> None:
    require_namespaces()
    command = [sys.executable, "-m", "tests.campaign.realtime", "--kills", "4", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert sum(report["kills"].values()) == 4
    assert (report["problems"], report["missing"]) == ([], [])

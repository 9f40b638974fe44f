"""The measurement of a row's way from one PostgreSQL to another runs, both ways, for a moment."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests import ROOT
from tests.servers import find_postgres, missing

pytestmark = pytest.mark.bench


def test_it_reports_both_ways() -> None:
    if find_postgres() is None:
        missing("PostgreSQL is not installed")
    command = [sys.executable, "-m", "bench.parts.capture_bench", "--json"]
    command += ["--rate", "50", "--seconds", "1", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [turn["way"] for turn in result["turns"]] == ["logplayer", "postgres"]
    for turn in result["turns"]:
        assert turn["rows"] > 0
        assert 0 < turn["p50_ms"] <= turn["p99_ms"]

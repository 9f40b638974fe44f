"""The measurement of what a target in tables costs runs, both sides, for each store."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.parts.tables_bench import BOUND, COMMITS, PLACES
from tests import ROOT

pytestmark = pytest.mark.bench


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.parts.tables_bench", "--scale", "0.001", "--json", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)


@pytest.mark.parametrize("store", PLACES)
def test_it_reports_both_sides_and_judges_only_if_asked(store: str) -> None:
    done = run("--stores", store)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert [(one["store"], one["rows_per_commit"]) for one in results] == [(store, count) for count in COMMITS]
    for one in results:
        assert min(one["plain_rows_s"], one["ours_rows_s"], one["ratio"]) > 0


def test_it_fails_below_the_bound_if_asked() -> None:
    done = run("--stores", "sqlite-tables", "--bounds")
    assert done.returncode == any(one["ratio"] < BOUND for one in json.loads(done.stdout)), done.stderr

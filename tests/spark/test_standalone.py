"""`play --master spark://...` on a standalone cluster of several addresses, with TLS and a token, under kills."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.namespaces import inside, require_namespaces
from tests.spark.standalone import prepare


def run(folder: Path, *words: str) -> dict[str, Any]:
    """What the child says. It fails by itself if anything is lost, applied twice or out of order."""
    require_namespaces()
    prepare(folder)
    done = subprocess.run(
        inside([sys.executable, "-m", "tests.spark.standalone_child", str(folder), *words]),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stderr[-3000:], file=sys.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(600)
def test_killed_workers_executors_and_daemons_cost_nothing(tmp_path: Path) -> None:
    found = run(tmp_path, "worker", "executor", "daemon")
    assert set(found["seconds"]) == {"worker", "executor", "daemon"}


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_standby_application_replaces_a_killed_driver(tmp_path: Path) -> None:
    assert len(run(tmp_path, "driver", "driver")["seconds"]["driver"]) == 2


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_decommissioned_executor_hands_its_group_over(tmp_path: Path) -> None:
    assert run(tmp_path, "decommission")["seconds"]["decommission"]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_decommissioned_machine_plays_its_groups_until_it_ends(tmp_path: Path) -> None:
    """Its Worker daemon is asked to leave, and is killed afterwards."""
    assert run(tmp_path, "retire")["seconds"]["retire"]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_dynamic_allocation_adds_executors_for_groups_and_keeps_those_that_play(tmp_path: Path) -> None:
    """It begins with no executor; those that play are not idle, however short the idle timeout is."""
    settings = {
        "spark.executor.cores": "1",
        "spark.cores.max": "2",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "3s",
    }
    words = [f"{name}={value}" for name, value in settings.items()]
    found = run(tmp_path, *words, "rest", "executor")
    assert set(found["seconds"]) == {"rest", "executor"}

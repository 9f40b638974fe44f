"""The workloads of the experiments: as many transactions count as were asked for, whatever warms up before."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import delay_steps
from bench.contest import Workload
from bench.raw import Raw
from bench.steps import Bench, Options

SHORTER = Options(rate=25.0, count=200, rounds=1, points=(10,), only=("ours_tcp",))


def workloads(experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """What one turn of an experiment would run."""
    seen: list[Workload] = []
    monkeypatch.setattr(delay_steps, "_turn", lambda bench, name, who, nth, given: seen.extend(given))
    for step in getattr(delay_steps, experiment)(Bench(SHORTER, Raw(tmp_path, "run"))):
        step.act()
    return seen


def test_a_point_is_warm_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [workload] = workloads("targets", tmp_path, monkeypatch)
    assert (workload.targets, workload.warm_up, len(list(workload.counted()))) == (10, 100, 200)


def test_a_backlog_counts_from_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [workload] = workloads("backlog", tmp_path, monkeypatch)
    assert (workload.targets, workload.warm_up, len(list(workload.counted()))) == (10, 0, 200)

"""``python -m bench`` as a user runs it: what runs, how it reports what is missing, and mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import cli, steps
from bench.contest import Sample, Workload
from bench.experiments import EXPERIMENTS
from bench.raw import Raw
from logplayer.errors import UserError
from tests import ROOT


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": path}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, cwd=folder, env=environment
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("run", "--experiment", "target"), "did you mean 'targets'?"),
        (("run", "--rivals", "cassandra"), "no rival is called 'cassandra'"),
        (("run", "--log", "tape"), "no log is called 'tape'"),
        (("run", "--points", "many"), "write numbers"),
        (("run", "--run", "../up"), "is no name for a run"),
        (("collect", "nothing"), "no run is called 'nothing'"),
        (("report", "--results", "nowhere"), "bench run"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_command_knows_every_experiment() -> None:
    assert list(EXPERIMENTS) == list(cli.EXPERIMENTS)


class Rival:
    """A contestant for tests."""

    name = "made_up"
    guarantee = "at least once"

    def __init__(self, trouble: Exception | None = None) -> None:
        self.trouble = trouble
        self.closed = 0

    def open(self) -> None:
        if isinstance(self.trouble, UserError):
            raise self.trouble

    def run(self, workload: Workload) -> list[Sample]:
        if self.trouble:
            raise self.trouble
        return [Sample(number, 0, number, number, number + 5) for number in workload.counted()]

    def close(self) -> None:
        self.closed += 1


def bench(folder: Path, rivals: dict[str, Any], **options: Any) -> steps.Bench:
    return steps.Bench(steps.Options(log="file", quick=True, **options), Raw(folder, "run"), rivals)


def test_who_is_missing_is_left_out_and_who_fails_is_told(tmp_path: Path) -> None:
    away, broken, well = Rival(UserError("start it with: make rivals")), Rival(ValueError("broken")), Rival()
    session = bench(tmp_path, {"away": lambda: away, "broken": lambda: broken, "well": lambda: well}, rounds=2)
    for step in EXPERIMENTS["targets"](session):
        if step.contestant in session.rivals:
            session.do(step)
    assert session.missing == {"away": "start it with: make rivals"}
    assert set(session.failed.values()) == {"ValueError: broken"}
    assert session.took_part == {"well"}
    assert (away.closed, broken.closed, well.closed) == (1, 2, 2)
    assert len(list(session.raw.samples_folder.glob("targets-well-*.parquet"))) == 2


def test_each_round_begins_with_another_contestant(tmp_path: Path) -> None:
    session = bench(tmp_path, {}, rounds=3)
    turns = list(session.turns(["a", "b", "c"]))
    assert [name for nth, name in turns if nth == 1] == ["a", "b", "c"]
    assert [turns[0][1], turns[3][1], turns[6][1]] == ["a", "b", "c"]
    assert {name for nth, name in turns if nth == 3} == {"a", "b", "c"}


def test_points_choose_and_quick_is_small() -> None:
    assert steps.Options(points=(10, 20)).chosen((2, 10, 20), (2,)) == [10, 20]
    assert steps.Options(quick=True).chosen((2, 10, 20), (2,)) == [2]
    assert steps.Options().chosen((2, 10, 20), (2,)) == [2, 10, 20]


def test_trouble_is_measured(tmp_path: Path) -> None:
    """Kill real processes, once each and in little time; the figures are there and make sense."""
    session = bench(tmp_path, {}, rounds=1)
    for name in ("failover", "catchup"):
        for step in EXPERIMENTS[name](session):
            if step.contestant == "ours_tcp":
                session.do(step)
    assert session.failed == {}
    found = session.raw.measures()
    kills = {line["what"] for line in found if line["experiment"] == "failover"}
    assert kills == {"target", "player, a new process", "player, one that waits"}
    [catchup] = [line for line in found if line["experiment"] == "catchup"]
    assert catchup["entries"] > 200
    assert catchup["factor"] > 1
    assert all(line.get("seconds", 1) > 0 for line in found)


@pytest.mark.parametrize("log", ["nats", "file"])
def test_what_every_run_needs_is_asked_for_first(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None if module == "pyarrow" else object())
    with pytest.raises(UserError, match=r"logplayer\[bench\]"):
        cli._require_parts(log)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    monkeypatch.setattr("logplayer.log.nats.local_cluster.shutil.which", lambda _: None)
    monkeypatch.setattr("logplayer.log.nats.local_cluster.sys.executable", "/nowhere/python")
    if log == "nats":
        with pytest.raises(UserError, match="nats-server"):
            cli._require_parts(log)
    else:
        cli._require_parts(log)

"""``logplayer sim``: what it prints, what a script reads, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from logplayer.testing.sim.options import options_for


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "logplayer.cli", "sim", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_one_seed_prints_seed_and_options_first() -> None:
    done = run("7")
    assert done.returncode == 0, done.stderr
    first, second, *rest = done.stdout.splitlines()
    assert first.startswith("sim: seeds 7..7 ")
    assert second == f"sim: {options_for(7)}"
    assert "seed=7" in second
    assert "queue_count_max=" in second
    assert rest[-1] == "sim: every promise held"


def test_json_is_one_object_with_the_promised_keys() -> None:
    done = run("--runs", "50", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["runs"] == 50
    assert told["violations"] == 0
    assert told["runs_per_second"] > 0
    assert told["failures"] == []
    assert done.stderr.startswith("sim: seeds 1..50 ")


def test_a_trace_is_written(tmp_path: Path) -> None:
    path = tmp_path / "trace.ndjson"
    assert run("3", "--trace", str(path)).returncode == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0]["ev"] == "config"
    assert {"start", "send", "ack"} <= {line["ev"] for line in lines}


@pytest.mark.parametrize(
    "arguments",
    [("seven",), ("-1",), ("--runs", "0"), ("--runs", "many"), ("--world", "flat"), ("--jobs", "0"), ("--moons",)],
)
def test_bad_input_is_a_clear_line_and_code_2(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("logplayer: ")
    assert len(done.stderr.splitlines()) == 1

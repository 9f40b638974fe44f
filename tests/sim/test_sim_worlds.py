"""The worlds of Spark's driver and of feeds: every promise holds, and a seed always takes the same steps."""

from __future__ import annotations

import json

import pytest

from logplayer.testing.sim.runner import run_campaign, run_seed
from tests.sim.test_sim_cli import run

SEEDS = {"driver": 300, "feed": 60}


@pytest.mark.parametrize("world", SEEDS)
def test_every_promise_holds(world: str) -> None:
    campaign = run_campaign(range(1, SEEDS[world] + 1), world)
    assert [(failure.seed, failure.violation) for failure in campaign.failures] == []
    assert campaign.faults > SEEDS[world]


@pytest.mark.parametrize("world", SEEDS)
def test_a_seed_is_a_run(world: str) -> None:
    outcomes = {run_seed(seed, world) for seed in (7, 7, 8)}
    assert len(outcomes) == len({outcome.digest for outcome in outcomes}) == 2


@pytest.mark.parametrize("world", SEEDS)
def test_the_command_runs_it(world: str) -> None:
    done = run("7", "--runs", "20", "--world", world, "--json")
    assert (done.returncode, json.loads(done.stdout)["violations"]) == (0, 0), done.stderr
    one = run("7", "--world", world)
    assert one.stdout.splitlines()[1].startswith("sim: seed=7 ")
    assert one.stdout.splitlines()[-1] == "sim: every promise held"


def test_only_a_pipeline_has_a_trace() -> None:
    done = run("7", "--world", "feed", "--trace", "/tmp/never")
    assert (done.returncode, "--world small or large" in done.stderr) == (2, True)

"""The simulator is deterministic: a seed is a world, and replaying it ends in the same state."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from logplayer.core import events, player
from logplayer.core.effects import Effect, SendBatch
from logplayer.testing.sim.options import options_for
from logplayer.testing.sim.runner import run_campaign, run_seed
from logplayer.testing.sim.simulation import Simulation


@pytest.mark.parametrize("seed", [1, 7, 248, 549, 4711])
def test_two_runs_of_a_seed_end_in_the_same_state(seed: int) -> None:
    assert run_seed(seed) == run_seed(seed)


def test_two_seeds_are_two_worlds() -> None:
    assert run_seed(1).digest != run_seed(2).digest


def test_processes_with_different_hash_seeds_agree() -> None:
    script = (
        "from logplayer.testing.sim.runner import run_seed\n"
        "for seed in range(1, 13): print(run_seed(seed))\n"
        "print(run_seed(3, 'large'))\n"
    )
    told = []
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        told.append(done.stdout)
    assert told[0] == told[1]
    assert told[0].count("violation=''") == 13


def test_a_trace_does_not_change_the_run() -> None:
    options = options_for(5, plain=True)
    silent, traced = Simulation(options), Simulation(options, trace=True)
    silent.run()
    traced.run()
    assert silent.state_digest() == traced.state_digest()
    assert traced.trace


def test_a_failing_seed_replays_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a core that loses the last entry of every batch, seeds fail, and each fails in the same way again."""
    honest = player.Player._send

    def lossy(self: player.Player, queue: object) -> None:
        request = self._request

        def lose(effect: Effect) -> None:
            if isinstance(effect, SendBatch) and len(effect.messages) > 1:
                effect.messages.pop()
            request(effect)

        self._request = lose
        honest(self, queue)  # type: ignore[arg-type]
        self._request = request

    monkeypatch.setattr(player.Player, "_send", lossy)
    campaign = run_campaign(range(1, 60))
    assert campaign.failures
    for failure in campaign.failures[:5]:
        assert run_seed(failure.seed) == failure
        assert failure.violation
        assert "crash" not in failure.violation


def test_a_short_campaign_finds_nothing() -> None:
    campaign = run_campaign(range(1, 3001), jobs=2)
    assert campaign.runs == 3000
    assert campaign.failures == []
    assert campaign.faults > 3000
    assert campaign.steps > 100_000


def test_large_worlds_find_nothing() -> None:
    campaign = run_campaign(range(1, 25), world="large", jobs=2)
    assert campaign.failures == []


def test_a_crash_of_the_core_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fall(self: player.Player, fact: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setitem(player.Player._handlers, events.Acked, fall)
    assert run_seed(1).violation.startswith("crash: KeyError")

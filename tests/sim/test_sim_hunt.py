"""The simulator catches every deliberate break of the core. `make mutants` hunts them, with those of tests/mutants."""

from __future__ import annotations

import pytest

from logplayer.testing.sim.mutants import MUTANTS, SEEDS_MAX, run_mutant


@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS])
def test_the_mutant_is_caught(name: str) -> None:
    outcome = run_mutant(name)
    assert outcome.caught
    assert 1 <= outcome.seeds <= SEEDS_MAX

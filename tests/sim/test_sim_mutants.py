"""The hunt for deliberate breaks of the core is sound: none is stale, and a break that breaks nothing is not caught."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import logplayer
from logplayer.testing.sim import mutants
from logplayer.testing.sim.mutants import MUTANTS, Edit, Mutant, run_mutant

PRODUCT = Path(logplayer.__file__).parent


def test_there_are_enough_of_them_and_they_touch_every_part() -> None:
    assert len(MUTANTS) >= 20
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    touched = {edit.module for mutant in MUTANTS for edit in mutant.edits}
    parts = "fence target_queue window player catch_up tail_buffer trim routing deadlines"
    assert touched >= set(parts.split())
    for world in ("driver", "feed"):
        assert len([mutant for mutant in MUTANTS if mutant.world == world]) >= 2


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_no_mutant_is_stale(mutant: Mutant) -> None:
    for edit in mutant.edits:
        source = (PRODUCT.joinpath(*edit.full.split(".")[1:]).with_suffix(".py")).read_text()
        assert source.count(edit.old) == 1, edit.old
        assert edit.new != edit.old
        compile(source.replace(edit.old, edit.new), edit.module, "exec")


def hunt(monkeypatch: pytest.MonkeyPatch, edit: Edit, seeds: int) -> str:
    """Hunt a mutant that is in no table, in a process of its own."""
    monkeypatch.setattr(mutants, "MUTANTS", (Mutant("made-up", "for this test", (edit,)),))
    script = (
        "import json; from logplayer.testing.sim import mutants as m\n"
        f"m.MUTANTS = (m.Mutant('made-up', '', (m.Edit(*{tuple(edit)!r}),)),)\n"
        f"print(json.dumps(m._hunt('made-up', {seeds})))"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return str(json.loads(done.stdout)["caught"]) if done.returncode == 0 else done.stderr


OFFER = "return False\n        "  # Where an entry is queued.


def test_a_break_that_breaks_nothing_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the hunt would be true of any text."""
    edit = Edit("target_queue", f"{OFFER}if index <= self.covered:", f"{OFFER}if self.covered >= index:")
    assert hunt(monkeypatch, edit, 150) == ""


def test_the_same_edit_with_a_real_break_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    edit = Edit("target_queue", f"{OFFER}if index <= self.covered:", f"{OFFER}if index > self.covered:")
    assert hunt(monkeypatch, edit, 150)


def test_an_edit_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "LookupError" in hunt(monkeypatch, Edit("target_queue", "no such text", ""), 1)
    assert "LookupError" in hunt(monkeypatch, Edit("target_queue", "self", "this"), 1)


def test_a_seed_that_fails_without_the_mutant_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from logplayer.testing.sim import runner

    unsound = replace(MUTANTS[0])
    real = runner.run_seed
    monkeypatch.setattr(runner, "run_seed", lambda seed, world: real(seed, world)._replace(violation="fails anyway"))
    with pytest.raises(RuntimeError, match="fails without any mutant"):
        run_mutant(unsound.name)

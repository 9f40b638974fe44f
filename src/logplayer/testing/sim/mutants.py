"""Deliberate breaks of the core and of Spark's driver, each of which the simulator must catch.

A mutant is one or more edits of the core's source text, listed in ``mutants.toml``. It runs in a process of its own,
whose import system makes the edits while it loads the modules, so the break is exactly what the table says and the
installed package stays untouched. An edit whose old text is not found exactly once is an error: no mutant goes stale.
A seed that catches a mutant must pass without it, or the catch would prove nothing.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple


class Edit(NamedTuple):
    module: str  # Below logplayer.core, or with a dot below logplayer.
    old: str
    new: str

    @property
    def full(self) -> str:
        """The module's full name."""
        return f"logplayer.{self.module}" if "." in self.module else f"logplayer.core.{self.module}"


@dataclass(frozen=True, slots=True)
class Mutant:
    """What is broken, in words and in text."""

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    world: str = "small"  # Where it must be caught.


def _load() -> tuple[Mutant, ...]:
    table = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text())
    return tuple(
        Mutant(
            row["name"],
            row["breaks"],
            tuple(Edit(e["module"], e["old"], e["new"]) for e in row["edit"]),
            row.get("world", "small"),
        )
        for row in table["mutant"]
    )


MUTANTS = _load()
SEEDS_MAX = 20000


class MutantOutcome(NamedTuple):
    """How a mutant ended: ``caught`` says by what; ``seeds`` is how many it took."""

    name: str
    breaks: str
    caught: str
    seeds: int


def run_mutant(name: str, seeds_max: int = SEEDS_MAX) -> MutantOutcome:
    """Run the simulator on the mutant in a process of its own, seed by seed, until something catches it."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    command = [sys.executable, "-m", "logplayer.testing.sim.mutants", name, str(seeds_max)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"mutant {name} did not run: {done.stderr.strip()[-2000:]}")
    result = json.loads(done.stdout)
    if result["caught"]:
        from logplayer.testing.sim.runner import run_seed

        sound = run_seed(result["seeds"], mutant.world)
        if sound.violation:
            raise RuntimeError(f"seed {sound.seed} fails without any mutant: {sound.violation}")
    return MutantOutcome(name, mutant.breaks, result["caught"], result["seeds"])


class _Finder(importlib.abc.MetaPathFinder):
    """Loads the mutant's modules with its edits made."""

    def __init__(self, mutant: Mutant) -> None:
        self.edits: dict[str, list[Edit]] = {}
        for edit in mutant.edits:
            self.edits.setdefault(edit.full, []).append(edit)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        edits = self.edits.get(fullname)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if edits else None
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(fullname, spec.origin, edits or [])
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, edits: list[Edit]) -> None:
        super().__init__(fullname, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        for edit in self._edits:
            if source.count(edit.old) != 1:
                raise LookupError(f"{fullname} has {source.count(edit.old)} times, not once: {edit.old!r}")
            source = source.replace(edit.old, edit.new)
        return compile(source, self.path, "exec")


def _hunt(name: str, seeds_max: int) -> dict[str, object]:
    """In the child: install the mutant, then run seeds until one is caught."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    sys.meta_path.insert(0, _Finder(mutant))
    from logplayer.testing.sim.runner import run_seed

    for seed in range(1, seeds_max + 1):
        outcome = run_seed(seed, mutant.world)
        if outcome.violation:
            return {"caught": outcome.violation, "seeds": seed}
    return {"caught": "", "seeds": seeds_max}


if __name__ == "__main__":
    print(json.dumps(_hunt(sys.argv[1], int(sys.argv[2]))))

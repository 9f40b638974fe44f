"""Runs seeds: one, or many on all cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple

from logplayer.core.invariants import InvariantViolation
from logplayer.testing.sim.driver_world import DriverWorld
from logplayer.testing.sim.feed_world import FeedWorld
from logplayer.testing.sim.options import options_for
from logplayer.testing.sim.simulation import Simulation
from logplayer.testing.sim.violation import Violation

CHUNK = 100
WORLDS = ("small", "large", "driver", "feed")
SimWorld = Simulation | DriverWorld | FeedWorld


def world_of(seed: int, world: str = "small") -> SimWorld:
    """What ``seed`` stands for in this world."""
    if world == "driver":
        return DriverWorld(seed)
    if world == "feed":
        return FeedWorld(seed)
    return Simulation(options_for(seed, world=world))


def describe(seed: int, world: str) -> str:
    """The options of a seed, in one line."""
    made = world_of(seed, world)
    return str(made.options if isinstance(made, Simulation) else f"seed={seed} {made}")


class SeedOutcome(NamedTuple):
    """How one seed ended. ``violation`` is empty if every promise held."""

    seed: int
    violation: str
    digest: str
    steps: int
    faults: int


class Campaign(NamedTuple):
    """How a range of seeds ended."""

    runs: int
    failures: list[SeedOutcome]
    steps: int
    faults: int
    seconds: float

    @property
    def runs_per_second(self) -> float:
        return self.runs / self.seconds if self.seconds else 0.0


def run_seed(seed: int, world: str = "small") -> SeedOutcome:
    """Run one seed to its end. Anything that the core or a checker raises is a violation, and so is a crash."""
    sim = world_of(seed, world)
    violation = ""
    try:
        sim.run()
    except Violation as error:
        violation = str(error)
    except InvariantViolation as error:
        violation = str(error)
    except Exception as error:  # noqa: BLE001  # A crash of the core is a finding, not an accident of the run.
        violation = f"crash: {type(error).__name__}: {error}"
    return SeedOutcome(seed, violation, sim.state_digest(), sim.steps, sim.faults)


def _run_chunk(chunk: tuple[list[int], str]) -> list[SeedOutcome]:
    seeds, world = chunk
    return [run_seed(seed, world) for seed in seeds]


def run_campaign(
    seeds: Iterable[int], world: str = "small", jobs: int = 1, progress: Callable[[int], None] | None = None
) -> Campaign:
    """Run all seeds on ``jobs`` processes; ``progress`` gets how many more are done."""
    started = time.perf_counter()
    chunks = ((chunk, world) for chunk in _chunks(seeds))
    runs = steps = faults = 0
    failures: list[SeedOutcome] = []
    for outcomes in _map(chunks, jobs):
        runs += len(outcomes)
        steps += sum(outcome.steps for outcome in outcomes)
        faults += sum(outcome.faults for outcome in outcomes)
        failures += [outcome for outcome in outcomes if outcome.violation]
        if progress:
            progress(len(outcomes))
    return Campaign(runs, failures, steps, faults, time.perf_counter() - started)


def _map(chunks: Iterable[tuple[list[int], str]], jobs: int) -> Iterator[list[SeedOutcome]]:
    if jobs == 1:
        yield from map(_run_chunk, chunks)
        return
    # Fresh processes: a fork of a large one drags its heap along, and walks it at every collection.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_run_chunk, chunks)


def _chunks(seeds: Iterable[int]) -> Iterator[list[int]]:
    rest = iter(seeds)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk

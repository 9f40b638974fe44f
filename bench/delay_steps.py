"""Delay against the number of targets and the transaction's size, and over time: the paper's own figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.contest import Workload
from bench.steps import Bench, Step

TARGETS = (2, 5, 10, 15, 20)
KEYS = (1, 2, 5, 10)
SIZE_TARGETS = 20  # As in the paper.
WARM_UP_COUNT, WARM_UP_RATE = 100, 50.0
WARM_UP_SECONDS = 4.0  # At each point: new topics of a rival, for one, take seconds until they are quick.
BACKLOG_RIVAL = "kafka_two_level"


def targets(bench: Bench) -> Iterator[Step]:
    """Player delay and apply delay against the number of targets, at 10 KB."""
    points = bench.options.chosen(TARGETS, (2,))
    yield from _steps(bench, "targets", [_workload(bench, targets=point) for point in points])


def size(bench: Bench) -> Iterator[Step]:
    """Player delay and apply delay against the transaction's size, with 20 targets."""
    points = bench.options.chosen(KEYS, (2,))
    many = 4 if bench.options.quick else SIZE_TARGETS
    names = [name for name in bench.contestants() if not name.startswith("served")]
    yield from _steps(bench, "size", [_workload(bench, targets=many, keys=point) for point in points], names)


def backlog(bench: Bench) -> Iterator[Step]:
    """The apply delay over time: ours, and Kafka with two levels of topics at the same rate."""
    names = [name for name in ("ours_grpc", "ours_tcp", BACKLOG_RIVAL) if name in bench.contestants()]
    workload = _workload(bench, targets=2 if bench.options.quick else 10)
    workload = replace(workload, count=workload.count - workload.warm_up, warm_up=0)  # It shows the beginning.
    yield from _steps(bench, "backlog", [workload], names)


def _workload(bench: Bench, targets: int = 10, keys: int = 10) -> Workload:
    options = bench.options
    if options.quick:
        return Workload(targets, keys, options.rate, count=60, warm_up=6)
    warm_up = round(options.rate * WARM_UP_SECONDS)
    return Workload(targets, keys, options.rate, warm_up + options.count, warm_up)


def _steps(bench: Bench, experiment: str, workloads: list[Workload], names: list[str] | None = None) -> Iterator[Step]:
    for nth, name in bench.turns(names or list(bench.contestants())):

        def act(nth: int = nth, name: str = name) -> None:
            _turn(bench, experiment, name, nth, workloads)

        yield Step(experiment, name, nth, act)


def _turn(bench: Bench, experiment: str, name: str, nth: int, workloads: list[Workload]) -> None:
    """Open, run everything, close: so that nobody idles beside the others and takes their time."""
    contestant = bench.contestants()[name]()
    try:
        contestant.open()
        bench.guarantees[name] = contestant.guarantee
        if not bench.options.quick:  # What compiles or caches at its first use may do so before it counts.
            contestant.run(replace(workloads[0], count=WARM_UP_COUNT, warm_up=WARM_UP_COUNT - 1, rate=WARM_UP_RATE))
        for workload in workloads:
            bench.raw.note_samples(experiment, name, nth, workload, contestant.run(workload))
    finally:
        contestant.close()

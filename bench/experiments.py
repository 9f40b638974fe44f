"""The experiments by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.cost_steps import cost, profile
from bench.delay_steps import backlog, size, targets
from bench.speed_steps import catchup, players, throughput
from bench.steps import Bench, Step
from bench.trouble_steps import failover, frozen

EXPERIMENTS: dict[str, Callable[[Bench], Iterator[Step]]] = {
    "targets": targets,
    "size": size,
    "throughput": throughput,
    "players": players,
    "catchup": catchup,
    "frozen": frozen,
    "failover": failover,
    "cost": cost,
    "backlog": backlog,
    "profile": profile,
}

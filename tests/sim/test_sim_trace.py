"""TLC accepts a run of the real core as a behaviour of the spec, and rejects a tampered trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from logplayer.testing.sim.options import options_for
from logplayer.testing.sim.simulation import Simulation

Lines = list[dict[str, Any]]

try:
    from logplayer.java import find_java
    from logplayer.testing.spec.tlc import Tlc, spec_dir
    from logplayer.testing.spec.trace_check import check

    TLC: Any = Tlc(find_java(), spec_dir())
    MISSING = ""
except Exception as error:  # noqa: BLE001  # Whatever is missing is told below.
    MISSING = f"no TLC here: {error}"

pytestmark = pytest.mark.skipif(bool(MISSING) and os.environ.get("CI") != "true", reason=MISSING or "TLC is here")


def recorded(seed: int) -> Lines:
    simulation = Simulation(options_for(seed, plain=True), trace=True)
    simulation.run()
    return [dict(line) for line in simulation.trace_lines()]


def verdict(lines: Lines) -> Any:
    assert not MISSING, MISSING
    return check(lines, tlc=TLC)


# Short runs in which much goes wrong: crashes, cuts, takeovers, overflow, trim.
SEEDS = (102, 162, 347)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_of_the_core_is_a_behaviour_of_the_spec(seed: int) -> None:
    lines = recorded(seed)
    told = verdict(lines)
    assert told.accepted, str(told)
    assert told.matched == told.total == len(lines) - 1


def test_the_accepted_runs_show_most_of_what_can_happen() -> None:
    seen = {line["ev"] for seed in SEEDS for line in recorded(seed)}
    assert seen >= {"start", "open", "opened", "dispatch", "read", "join", "send", "ack", "suspend", "trim", "stepdown"}
    assert seen >= {"accept", "apply", "refuse", "reject", "crash"}


# --- Tampering --------------------------------------------------------------------------------------------


def where(lines: Lines, event: str, fits: Callable[[Mapping[str, Any]], bool] = lambda line: True) -> int:
    return next(at for at, line in enumerate(lines) if line["ev"] == event and fits(line))


def entry_twice(lines: Lines) -> None:
    """The target applies the same batch again."""
    at = where(lines, "apply")
    lines.insert(at + 1, dict(lines[at]))


def sends_swapped(lines: Lines) -> None:
    """Two batches of one session leave in the wrong order."""
    for at, first in enumerate(lines):
        if first["ev"] == "send":
            for later in range(at + 1, len(lines)):
                second = lines[later]
                if second["ev"] == "send" and all(second[k] == first[k] for k in ("node", "target", "term")):
                    lines[at], lines[later] = second, first
                    return
    raise AssertionError("this trace has no two sends of one session")


def entry_skipped(lines: Lines) -> None:
    """A batch claims a range and leaves one of its entries out."""
    at = where(lines, "send", lambda line: bool(line["indexes"]))
    lines[at]["indexes"] = lines[at]["indexes"][:-1]


def ack_of_a_dead_session(lines: Lines) -> None:
    """An ack is taken although its session is over."""
    keys = ("node", "target", "epoch", "term")
    acks = [line for line in lines if line["ev"] == "ack"]
    end = where(lines, "suspend", lambda line: any(all(line[k] == ack[k] for k in keys) for ack in acks))
    ack = next(ack for ack in acks if all(lines[end][k] == ack[k] for k in keys))
    lines.insert(end + 1, dict(ack))


def join_too_early(lines: Lines) -> None:
    """A target joins before it has read what it lacks."""
    join = where(lines, "join", lambda line: _reads_before(lines, line))
    moved = lines.pop(join)
    keys = ("node", "target", "epoch", "term")
    opened = where(lines, "opened", lambda line: all(line[k] == moved[k] for k in keys))
    lines.insert(opened + 1, moved)


def _reads_before(lines: Lines, join: Mapping[str, Any]) -> bool:
    keys = ("node", "target", "epoch", "term")
    return any(line["ev"] == "read" and all(line[k] == join[k] for k in keys) for line in lines)


@pytest.mark.parametrize("tamper", [entry_twice, sends_swapped, entry_skipped, ack_of_a_dead_session, join_too_early])
def test_a_tampered_trace_is_rejected(tamper: Callable[[Lines], None]) -> None:
    lines = recorded(SEEDS[0])
    before = [dict(line) for line in lines]
    tamper(lines)
    assert lines != before
    told = verdict(lines)
    assert not told.accepted
    assert told.matched < told.total
    assert told.unexplained or told.broken

"""An experiment is a list of steps; a step is one turn of one contestant.

Contestants alternate round by round, and each round begins with another one, so that noise of the machine meets all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.bare import SHARED
from bench.contest import Contestant
from bench.logs import make_host
from bench.ours import SCHEMES, Bare, Fdatasync, Ours
from bench.raw import Raw
from logplayer.errors import UserError

Make = Callable[[], Contestant]


@dataclass(frozen=True)
class Options:
    """What ``python -m bench run`` was told."""

    log: str = "nats"
    quick: bool = False
    rounds: int = 3
    rate: float = 100.0
    count: int = 1000
    points: tuple[int, ...] = ()
    only: tuple[str, ...] = ()

    def chosen(self, points: Sequence[int], quick: Sequence[int]) -> list[int]:
        """Which points of an experiment to measure."""
        found = [point for point in points if point in self.points] if self.points else list(points)
        return list(quick) if self.quick and not self.points else found


class Step(NamedTuple):
    """One turn. ``act`` does it and notes what it found."""

    experiment: str
    contestant: str
    nth: int
    act: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.experiment}: {self.contestant}, round {self.nth}"


def own_contestants(log: str) -> dict[str, Make]:
    """This product and its limits; each player beside its bare streams. ``served``: with a log server before NATS."""
    makes: dict[str, Make] = {}
    for scheme in SCHEMES:
        makes[f"ours_{scheme}"] = lambda scheme=scheme: Ours(scheme, make_host(log))  # type: ignore[misc]
        makes[f"bare_{scheme}"] = lambda scheme=scheme: Bare(scheme, make_host(log))  # type: ignore[misc]
        if log == "nats":
            makes[f"served_{scheme}"] = lambda scheme=scheme: Ours(scheme, make_host("served"))  # type: ignore[misc]
    makes[f"bare_{SHARED}"] = lambda: Bare(SHARED, make_host(log))
    makes["fdatasync"] = Fdatasync
    return makes


def known_rivals() -> dict[str, Make]:
    """The rivals that this installation knows, by name."""
    try:
        from bench import rivals
    except ImportError:
        return {}
    found: dict[str, Make] = getattr(rivals, "rivals", dict)()
    return found


@dataclass
class Bench:
    """A run as it goes on: who takes part, who could not, where results go."""

    options: Options
    raw: Raw
    rivals: dict[str, Make] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # A rival that cannot be started here, and what to do.
    failed: dict[str, str] = field(default_factory=dict)  # A step that went wrong.
    took_part: set[str] = field(default_factory=set)
    guarantees: dict[str, str] = field(default_factory=dict)

    def contestants(self) -> dict[str, Make]:
        return {**own_contestants(self.options.log), **self.rivals}

    def turns(self, names: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Round and name; each round, of this piece of the run and of the next, begins with another contestant."""
        names = [name for name in names if not self.options.only or name in self.options.only]
        for nth in range(1, self.options.rounds + 1):
            shift = (self.raw.piece + nth - 2) % max(1, len(names))
            for name in [*names[shift:], *names[:shift]]:
                yield nth, name

    def do(self, step: Step) -> None:
        """One step; what goes wrong is noted and does not end the run."""
        if step.contestant in self.missing:
            return
        try:
            step.act()
            self.took_part.add(step.contestant)
        except Exception as error:  # noqa: BLE001 - a rival may fail in any way, and the others go on.
            if isinstance(error, UserError) and step.contestant in self.rivals:
                self.missing[step.contestant] = str(error)
            else:
                self.failed[str(step)] = f"{type(error).__name__}: {error}"

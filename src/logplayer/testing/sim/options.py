"""What a seed stands for: the size of the world, the limits of the core, and which faults happen how often."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace

from logplayer.core.limits import Limits

CLOCK = {  # Simulated milliseconds; small, so that deadlines pass within a few ticks.
    "idle_ms_max": 40,
    "heartbeat_ms": 60,
    "silence_ms_max": 250,
    "progress_ms_max": 400,
    "open_ms_max": 200,
    "backoff_ms_min": 5,
    "backoff_ms_max": 60,
    "blocked_ms": 150,
    "tick_ms_max": 120,
}


@dataclass(frozen=True, slots=True)
class SimOptions:
    """One world. ``plain`` worlds have no membership changes and no poison: the spec's trace check covers those."""

    seed: int
    targets: int
    entries: int
    players: int  # Takeovers on top of the first player.
    steps: int  # Length of the fault phase.
    map: str  # hash, range or explicit
    sparse: float  # How often an index is skipped.
    fault: float  # Chance of a fault at each step of the fault phase.
    tick: float
    late_log: float  # Share of the entries that is appended while the players run.
    plain: bool
    membership: bool
    poison: bool
    trim: bool
    archive: bool
    restore: bool  # The log may be replaced by an older state of itself, once.
    limits: Limits

    def __str__(self) -> str:
        told = asdict(self)
        limits = told.pop("limits")
        changed = {key: value for key, value in limits.items() if key not in CLOCK}
        return " ".join(f"{key}={value}" for key, value in {**told, **changed}.items())


def small_limits(rng: random.Random) -> Limits:
    """Limits so small that every bound is hit in a short run."""
    batch_bytes = rng.choice((24, 64, 1000))
    return Limits(
        queue_count_max=rng.choice((1, 2, 3, 6)),
        queue_bytes_max=rng.choice((30, 100, 1000)),
        batch_count_max=rng.choice((1, 2, 4)),
        batch_bytes_max=batch_bytes,
        flight_batches_max=rng.choice((1, 2, 4)),
        flight_bytes_max=max(batch_bytes, rng.choice((40, 200, 2000))),
        idle_entries_max=rng.choice((1, 3, 1000)),
        trim_entries_min=rng.choice((1, 2, 5)),
        **CLOCK,
    )


def options_for(seed: int, *, world: str = "small", plain: bool | None = None) -> SimOptions:
    """The world that ``seed`` stands for."""
    rng = random.Random(seed * 2654435761 % 2**32)
    restores = random.Random(seed)  # Of its own, so that the other choices of a seed stay what they were.
    large = world == "large"
    plain = rng.random() < 0.4 if plain is None else plain
    made = SimOptions(
        seed=seed,
        targets=rng.choice((2, 3, 5, 8) if large else (1, 2, 2, 3)),
        entries=rng.randrange(60, 200) if large else rng.randrange(4, 16),
        players=rng.choice((0, 1, 2, 4) if large else (0, 0, 1, 2)),
        steps=rng.randrange(600, 2500) if large else rng.randrange(40, 130),
        map=rng.choice(("hash", "range", "explicit")),
        sparse=rng.choice((0.0, 0.3)),
        fault=rng.choice((0.0, 0.02, 0.06, 0.12)),
        tick=rng.choice((0.05, 0.15)),
        late_log=rng.choice((0.0, 0.5, 1.0)),
        plain=plain,
        membership=not plain and rng.random() < 0.5,
        poison=not plain and rng.random() < 0.5,
        trim=rng.random() < 0.6,
        archive=not plain and rng.random() < 0.2,
        restore=False,
        limits=small_limits(rng),
    )
    calm = not (made.plain or made.membership or made.poison or made.archive)
    return replace(made, restore=calm and restores.random() < 0.6)

"""A player's status: what an operator sees, per target and for the player as a whole."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from logplayer.core.player import Player
from logplayer.core.queue import State, TargetQueue
from logplayer.player.progress import Progress

RATE_WINDOW_S = 5.0

ON_THE_WAY_SECONDS = 1.0  # What a LIVE target lacks for less than this is on its way, not a lag.


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target, as its player sees it."""

    target: str
    address: str
    state: str  # LIVE, CATCHING_UP, SUSPENDED, or BLOCKED with the reason in ``error``
    session: str
    index: int  # Durable at the target, by its own word; -1 if it has not been heard yet.
    lag_entries: int  # Indexes of the log that it does not cover yet, its own and others'.
    lag_bytes: int  # The log's payload bytes behind its index; an estimate for what this player did not read itself.
    lag_seconds: float  # The age of the oldest entry that it does not cover yet.
    queued: int
    in_flight: int
    entries_per_second: float
    eta_seconds: float | None  # Until it has caught up: 0 when it has, None when it will not at this rate.
    attempts: int
    digest: str
    error: str


@dataclass(frozen=True, slots=True)
class PlayerStatus:
    """One player."""

    group: str
    player: str
    epoch: int
    current: int
    log_last: int
    consistent_cut: int
    entries_per_second: float
    unroutable: int
    state: str
    targets: tuple[TargetStatus, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Rates:
    """Index positions over the last few seconds, per name."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def note(self, name: str, index: int) -> None:
        """Called at every tick; keeps about two samples a second."""
        now = time.monotonic()
        seen = self._seen.setdefault(name, [])
        if not seen or now - seen[-1][0] >= 0.5:
            seen.append((now, index))
            while len(seen) > 2 and now - seen[0][0] > RATE_WINDOW_S:
                seen.pop(0)

    def per_second(self, name: str, index: int) -> float:
        """Indexes per second since the oldest sample that is kept."""
        seen = self._seen.get(name)
        if not seen:
            return 0.0
        then, before = seen[0]
        elapsed = time.monotonic() - then
        return max(0.0, (index - before) / elapsed) if elapsed > 0.2 else 0.0

    def keep(self, names: Collection[str]) -> None:
        """Forget whoever is gone; the player's own samples, without a name, stay."""
        if len(self._seen) > len(names) + 1:
            self._seen = {name: seen for name, seen in self._seen.items() if not name or name in names}


def target_status(queue: TargetQueue, core: Player, address: str, progress: Progress, rates: Rates) -> TargetStatus:
    """The status of one target."""
    health = queue.health
    # A LIVE target with nothing queued and nothing in flight has all that is for it, wherever its index stands.
    caught_up = queue.state is State.LIVE and queue.idle()
    behind = 0 if caught_up else max(0, core.current - queue.acked)
    rate = rates.per_second(queue.name, queue.acked)
    gain = rate - rates.per_second("", core.current)
    age = progress.seconds_behind(queue.acked, time.time_ns() // 1000) if behind else 0.0
    if behind == 0 or (queue.state is State.LIVE and age < ON_THE_WAY_SECONDS):
        eta: float | None = 0.0
    else:
        eta = behind / gain if gain > 0 and queue.state is not State.SUSPENDED else None
    return TargetStatus(
        target=queue.name,
        address=address,
        state="BLOCKED" if health.blocked and queue.state is State.SUSPENDED else queue.state.value,
        session=str(queue.session) if queue.session else "",
        index=queue.acked if queue.known else -1,
        lag_entries=behind,
        lag_bytes=progress.bytes_behind(queue.acked) if behind else 0,
        lag_seconds=round(age, 3),
        queued=len(queue.messages),
        in_flight=queue.window.count,
        entries_per_second=round(rate, 1),
        eta_seconds=None if eta is None else round(eta, 1),
        attempts=health.attempts,
        digest=f"{queue.digest:032x}",
        error=health.last_error if queue.state is State.SUSPENDED else "",
    )

"""A player's status: what an operator sees, per target and for the player as a whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from logplayer.core.player import Player
from logplayer.core.reconnect import Blocked
from logplayer.core.target_queue import State, TargetQueue
from logplayer.observe.instruments import Percentiles
from logplayer.player.log_watch import LogWatch
from logplayer.player.news import News, state_of
from logplayer.player.outlook import ON_THE_WAY_SECONDS, outlook_of, whether, why
from logplayer.player.progress import PlayerProgress
from logplayer.player.redriven import Redriven

RATE_WINDOW_S = 5.0
INDEXES_MAX = 20  # Of quarantined entries, in a status.


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """One target, as its player sees it."""

    target: str
    address: str
    state: str  # LIVE, CATCHING_UP, SUSPENDED, or BLOCKED with the reason in ``error``; on Spark also SILENT
    session: str
    index: int  # Durable at the target, by its own word; -1 if it has not been heard yet.
    lag_entries: int  # Indexes up to the log's end that it does not have yet, its own and others'.
    lag_bytes: int  # The log's payload bytes after its index; an estimate for what this player did not read itself.
    lag_seconds: float  # The age of the oldest entry that it does not have yet.
    queued: int
    in_flight: int
    entries_per_second: float
    eta_seconds: float | None  # Until it has caught up: 0 when it has, None when that is not known or never.
    attempts: int
    digest: str
    error: str
    state_seconds: float  # How long it has been in this state.
    blocked: Blocked | None
    quarantined: int  # Entries that are decided to be quarantined at it, and were not redriven.
    quarantined_ahead: int  # Those of them that it does not have yet: they will be missing when it gets there.
    quarantined_indexes: tuple[int, ...]  # The first of them, in the order of the log.
    queue_fill: float  # How full its queue is, by count or bytes: 1 is full.
    window_fill: float  # How much of what may be sent and not acked is: 1 is all.
    sessions: int  # How many this player has begun with it.
    retry_seconds: float | None  # Until the next session is tried; None if there is one, or none will be by itself.
    outlook: str  # What becomes of it if nobody acts.
    why: str  # Why it is not well, in one sentence; empty if it is.
    whether: str  # Whether and when it will catch up, in a few words.


@dataclass(frozen=True, slots=True)
class PlayerStatus:
    """One player."""

    group: str
    player: str
    log_id: str
    epoch: int
    current: int
    chain: str
    log_first: int
    log_last: int
    log_bytes: int
    trim_point: int
    consistent_cut: int
    entries_per_second: float
    unroutable: int
    state: str
    log_error: str
    stuck_seconds: float
    delay_p50_ms: float
    delay_p90_ms: float
    delay_p99_ms: float
    producers: tuple[str, ...]
    targets: tuple[TargetStatus, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Rates:
    """Index positions over the last few seconds, per name."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, int]]] = {}

    def look(self, core: Player) -> None:
        """Called at every tick: note where the main stream and each target are."""
        self.note("", core.current)
        for queue in core.queues.values():
            if queue.known:
                self.note(queue.name, queue.acked)
        self.keep(core.queues)

    def note(self, name: str, index: int) -> None:
        """Keeps about two samples a second."""
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


class View(NamedTuple):
    """What the shell knows beside the core: where the log ends, what was said about targets, and how fast they are."""

    log: LogWatch
    news: News
    progress: PlayerProgress
    rates: Rates
    redriven: Redriven = Redriven()


class _Lag(NamedTuple):
    entries: int = 0
    bytes: int = 0
    seconds: float = 0.0


def _lag(queue: TargetQueue, core: Player, view: View) -> _Lag:
    """What lies between the target and the end of the log."""
    end = max(core.current, view.log.last)
    # A LIVE target with nothing queued and nothing in flight has all that is for it, as far as the main stream came.
    has = core.current if queue.state is State.LIVE and queue.idle() else queue.acked
    if has >= end:
        return _Lag()
    age = view.progress.seconds_behind(has, time.time_ns() // 1000)
    return _Lag(end - has, view.progress.bytes_behind(has, end), max(age, view.log.seconds()))


def _eta(queue: TargetQueue, lag: _Lag, gain: float) -> float | None:
    if lag.entries == 0 or (queue.state is State.LIVE and lag.seconds < ON_THE_WAY_SECONDS):
        return 0.0
    if queue.state is State.SUSPENDED or gain <= 0:
        return None
    return round(lag.entries / gain, 1)


def target_status(queue: TargetQueue, core: Player, address: str, view: View) -> TargetStatus:
    """The status of one target."""
    health = queue.reconnect
    quarantined = view.redriven.waiting(queue.name, core.control.quarantined)
    lag = _lag(queue, core, view)
    rate, log_rate = view.rates.per_second(queue.name, queue.acked), view.rates.per_second("", core.current)
    state = state_of(queue) if queue.state is State.SUSPENDED else queue.state.value
    eta = _eta(queue, lag, rate - log_rate)
    state_seconds = round(view.news.state_seconds(queue.name, time.monotonic()), 1)
    error = health.last_error if queue.state is State.SUSPENDED else queue.read_error
    retry = _retry_seconds(queue, core)
    outlook = outlook_of(state, lag.entries, lag.seconds, eta, state_seconds)
    return TargetStatus(
        target=queue.name,
        address=address,
        state=state,
        session=str(queue.session) if queue.session else "",
        index=queue.acked if queue.known else -1,
        lag_entries=lag.entries,
        lag_bytes=lag.bytes,
        lag_seconds=round(lag.seconds, 3),
        queued=len(queue.messages),
        in_flight=queue.window.count,
        entries_per_second=round(rate, 1),
        eta_seconds=eta,
        attempts=health.attempts,
        digest=f"{queue.digest:032x}",
        error=error,
        state_seconds=state_seconds,
        blocked=health.blocked,
        quarantined=len(quarantined),
        quarantined_ahead=sum(index > queue.acked for index in quarantined),
        quarantined_indexes=tuple(quarantined[:INDEXES_MAX]),
        queue_fill=_fill(len(queue.messages), core.limits.queue_count_max, queue.bytes, core.limits.queue_bytes_max),
        window_fill=_fill(
            len(queue.window.flight), queue.window.batches_max, queue.window.bytes, queue.window.bytes_max
        ),
        sessions=queue.term,
        retry_seconds=retry,
        outlook=outlook.value,
        why=why(outlook, state, error, lag.entries, rate, log_rate),
        whether=whether(outlook, eta, retry),
    )


def _fill(count: int, count_max: int, size: int, bytes_max: int) -> float:
    return round(max(count / count_max, size / bytes_max), 3)


def _retry_seconds(queue: TargetQueue, core: Player) -> float | None:
    health = queue.reconnect
    if queue.session is not None or (health.blocked is not None and health.blocked.stays):
        return None
    return round(max(0, health.retry_at - core.now) / 1000, 1)


class PlayerFacts(NamedTuple):
    """What is known of a player beside its core and its view."""

    player: str
    log_id: str
    address: Callable[[str], str]
    delays: Percentiles = Percentiles()
    producers: tuple[str, ...] = ()


def player_status(core: Player, facts: PlayerFacts, view: View) -> PlayerStatus:
    """The status of the player and of all its targets."""
    queues = core.queues.values()
    return PlayerStatus(
        group=core.group,
        player=facts.player,
        log_id=facts.log_id,
        epoch=core.epoch,
        current=core.current,
        chain=core.chain.hex(),
        log_first=max(view.log.first, core.trimmed + 1),
        log_last=max(view.log.last, core.current),
        log_bytes=view.log.bytes,
        trim_point=core.trim_point(),
        consistent_cut=min((queue.acked for queue in queues), default=0),
        entries_per_second=round(view.rates.per_second("", core.current), 1),
        unroutable=core.unroutable,
        state=_player_state(core, view.log),
        log_error=view.log.error,
        stuck_seconds=round(view.log.seconds(), 1),
        delay_p50_ms=facts.delays.p50,
        delay_p90_ms=facts.delays.p90,
        delay_p99_ms=facts.delays.p99,
        producers=facts.producers,
        targets=tuple(target_status(queue, core, facts.address(queue.name), view) for queue in queues),
    )


def _player_state(core: Player, log: LogWatch) -> str:
    if core.draining:
        return "stopping"
    if core.stopped:
        return "stopped"
    return "stuck" if log.error else "playing"

"""What is shown of a query in real time: the status of a player, put together from what its tasks report.

The tasks say which index each target has, what they lack and since when. The driver adds where the log ends and what
the query itself does. The states of a target are those of a player's: a target is BLOCKED if it has ended the query,
SUSPENDED while its group has no sessions, SILENT while its task does not report.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from logplayer.core.reconnect import Blocked
from logplayer.player.outlook import ON_THE_WAY_SECONDS, outlook_of, whether, why
from logplayer.player.status import INDEXES_MAX, Rates, TargetStatus
from logplayer.spark.real_time.beats import SILENT_SECONDS, BeatListener, TaskEnded, TaskNews
from logplayer.spark.real_time.log_end import LogEnd
from logplayer.spark.real_time.plan import Decided, dealt
from logplayer.spark.resident.groups import GroupPlan
from logplayer.spark.resident.silence import SILENT

OVER = ("new", "failed", "stopped", "superseded")


@dataclass(slots=True)
class QueryFacts:
    """What the driver knows beside the reports of its tasks."""

    group: str
    groups: int  # How many tasks are wanted.
    state: str = "new"
    reason: str = ""
    epoch: int = 0
    starts: int = 0
    decided: Decided | None = None
    log: LogEnd | None = None
    blocked: TaskEnded | None = None  # Why a target has ended it, while it waits.
    retry_at: float = 0.0  # When it starts again, if it waits; of the monotonic clock.

    def quarantined(self) -> Mapping[str, Collection[int]]:
        """What is decided to be quarantined, by target."""
        return self.decided.control.quarantined if self.decided is not None else {}

    def waiting(self, target: str) -> list[int]:
        """The entries that are quarantined at the target and were not redriven."""
        if self.log is None:
            return sorted(self.quarantined().get(target, ()))
        return self.log.redriven.waiting(target, self.quarantined())

    @property
    def seats(self) -> GroupPlan:
        """Which task delivers to which target."""
        return dealt(self.groups, self.decided) if self.decided is not None else GroupPlan(self.groups)


class _Seen(NamedTuple):
    """How a target is, and why."""

    state: str
    error: str = ""
    blocked: Blocked | None = None
    retry_seconds: float | None = None


class QueryOverview:
    """Makes the status, and remembers since when each target has been in its state."""

    def __init__(self, listener: BeatListener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._log_rate = Rates()
        self._since: dict[str, tuple[str, float]] = {}

    def status(self, query: QueryFacts) -> dict[str, Any]:
        """The query as one player, in the shape that ``logplayer status`` shows; ``groups`` has each of its tasks."""
        heard, decided, log, seats = self._listener.heard(), query.decided, query.log, query.seats
        state, reason = self._listener.state() if query.state == "playing" else (query.state, query.reason)
        known = (decided.last if decided else 0, log.last if log else 0, *heard.acked.values(), *heard.through.values())
        last = max(known)
        names = sorted(decided.addresses) if decided is not None else []
        with self._lock:
            self._log_rate.note("", last)
            targets = [self._target(name, seats.group_of(name), query, heard, last) for name in names]
        cut = min((max(0, target["index"]) for target in targets), default=0)
        return {
            "group": query.group,
            "player": f"spark in real time, {seats.groups} groups",
            "log_id": decided.log_id if decided else "",
            "epoch": query.epoch,
            "current": min(heard.through.values(), default=0),
            "chain": "",
            "log_first": log.first if log else 0,
            "log_last": last,
            "log_bytes": log.bytes if log else 0,
            "trim_point": 0,
            "consistent_cut": cut,
            "entries_per_second": round(heard.rates[""], 1),
            "unroutable": 0,
            "state": state,
            "reason": reason,
            "log_error": heard.log_error,
            "stuck_seconds": round(self._listener.stuck_seconds(heard), 1),
            **dict.fromkeys(("delay_p50_ms", "delay_p90_ms", "delay_p99_ms"), 0.0),
            "producers": [],
            "rows_in": sum(heard.rows_in.values()),
            "rows_out": sum(heard.rows_out.values()),
            "starts": query.starts,
            "targets": targets,
            "groups": [self._group(nth, query, heard) for nth in range(seats.groups if decided else 0)],
            "notes": [],
        }

    def _target(self, name: str, nth: int, query: QueryFacts, heard: TaskNews, last: int) -> dict[str, Any]:
        decided = query.decided
        assert decided is not None
        index, rate, log_rate = (
            heard.acked.get(name, -1),
            heard.rates.get(name, 0.0),
            self._log_rate.per_second("", last),
        )
        lag = max(0, last - max(0, index))
        age = query.log.seconds_behind(max(0, index)) if query.log is not None and lag else 0.0
        seen = self._seen(name, nth, query, heard, age)
        state_seconds = self._seconds_in(name, seen.state)
        moves = seen.state in ("LIVE", "CATCHING_UP")
        fine = lag == 0 or (seen.state == "LIVE" and age < ON_THE_WAY_SECONDS)
        eta = 0.0 if fine else round(lag / (rate - log_rate), 1) if moves and rate > log_rate else None
        outlook = outlook_of("SUSPENDED" if seen.state == SILENT else seen.state, lag, age, eta, state_seconds)
        quarantined = query.waiting(name)
        row = TargetStatus(
            target=name,
            address=decided.addresses[name],
            state=seen.state,
            session=str(query.epoch) if moves else "",
            index=index,
            lag_entries=lag,
            lag_bytes=query.log.bytes_of(lag) if query.log is not None else 0,
            lag_seconds=round(age, 3),
            queued=0,
            in_flight=max(0, heard.sent.get(name, 0) - index) if moves else 0,
            entries_per_second=round(rate, 1),
            eta_seconds=eta,
            attempts=0,
            digest="",
            error=seen.error,
            state_seconds=round(state_seconds, 1),
            blocked=seen.blocked,
            quarantined=len(quarantined),
            quarantined_ahead=sum(one > index for one in quarantined),
            quarantined_indexes=tuple(quarantined[:INDEXES_MAX]),
            queue_fill=0.0,
            window_fill=0.0,
            sessions=heard.sessions.get(nth, 0),
            retry_seconds=seen.retry_seconds,
            outlook=outlook.value,
            why=why(outlook, seen.state, seen.error, lag, rate, log_rate),
            whether=whether(outlook, eta, seen.retry_seconds),
        )
        return {**asdict(row), "group": f"{query.group}/{nth}"}

    def _seen(self, name: str, nth: int, query: QueryFacts, heard: TaskNews, age: float) -> _Seen:
        if query.state in OVER:
            return _Seen(SILENT, query.reason or f"the query is {query.state}")
        retry = round(max(0.0, query.retry_at - time.monotonic()), 1)
        if (end := query.blocked) is not None:
            if end.target in ("", name):
                return _Seen("BLOCKED", end.detail, Blocked(end.kind.value, end.detail, end.index), retry)
            return _Seen("SUSPENDED", f"the query waits for target {end.target}: {end.detail}", None, retry)
        if query.state != "playing":
            return _Seen("SUSPENDED", query.reason or "the query starts", None, retry)
        silence = self._listener.silence(heard, nth)
        if silence is None:
            return _Seen(SILENT, "its task has not reported yet")
        if silence > SILENT_SECONDS:
            return _Seen(SILENT, f"its task has not reported for {silence:.0f} s")
        if lost := heard.lost.get(nth):
            return _Seen("SUSPENDED", lost)
        if nth not in heard.open:
            return _Seen("SUSPENDED", "its task opens its sessions")
        return _Seen("LIVE" if age < ON_THE_WAY_SECONDS else "CATCHING_UP", heard.log_errors.get(nth, ""))

    def _seconds_in(self, name: str, state: str) -> float:
        now = time.monotonic()
        before, since = self._since.get(name, ("", now))
        if before != state:
            self._since[name] = (state, now)
            return 0.0
        return now - since

    def _group(self, nth: int, query: QueryFacts, heard: TaskNews) -> dict[str, Any]:
        """A task."""
        silence = self._listener.silence(heard, nth)
        state = "playing" if nth in heard.open else "starting"
        if silence is not None and silence > SILENT_SECONDS:
            state = "silent"
        elif heard.lost.get(nth):
            state = "reconnecting"
        return {
            "group": nth,
            "state": state if query.state == "playing" else query.state,
            "worker": f"task {heard.attempts[nth]}" if nth in heard.attempts else "",
            "starts": heard.tasks.get(nth, 0),
            "seconds_since_heard": None if silence is None else round(silence, 1),
        }


def receipts(status: Mapping[str, Any], said_at: Mapping[str, float]) -> list[dict[str, Any]]:
    """One row for each target that was heard of, with the fields of the receipts of ``mode=play``."""
    return [
        {
            "group": target["group"],
            "target": target["target"],
            "state": target["state"],
            "log_index": target["index"],
            "lag_entries": target["lag_entries"],
            "lag_seconds": target["lag_seconds"],
            "epoch": status["epoch"],
            "error": target["error"],
            "at": datetime.fromtimestamp(said_at[target["target"]], UTC),
        }
        for target in status["targets"]
        if target["target"] in said_at
    ]

"""What tasks report to the driver: how far each target has come, and why a task ends."""

from __future__ import annotations

import copy
import enum
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from logplayer.errors import Malformed
from logplayer.player.status import Rates
from logplayer.spark.resident.heartbeat import whole_number

SILENT_SECONDS = 3.0  # A task reports four times a second; between two batches of Spark nobody does.


class TaskEnd(enum.Enum):
    """Why a task cannot go on; the names are those of the connector's ``Ending.Kind``."""

    SUPERSEDED = "SUPERSEDED"
    CHANGED = "CHANGED"
    FENCED = "FENCED"
    POISON = "POISON"
    DIVERGED = "DIVERGED"
    RESEED = "RESEED"
    REFUSED = "REFUSED"
    LOST = "LOST"
    LOG = "LOG"
    UNSAFE = "UNSAFE"
    BAD_ROW = "BAD_ROW"


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """The end of a task. ``index`` is an epoch after FENCED, else of the log."""

    kind: TaskEnd
    target: str
    index: int
    detail: str


@dataclass(slots=True)
class TaskNews:
    """What the tasks of the query that runs now have said so far: of each target first, then of each partition."""

    acked: dict[str, int] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    said_at: dict[str, float] = field(default_factory=dict)  # When its index was last reported, since 1970.
    rates: dict[str, float] = field(default_factory=dict)  # Indexes per second; "" is what the tasks have read.
    through: dict[int, int] = field(default_factory=dict)
    rows_in: dict[int, int] = field(default_factory=dict)
    rows_out: dict[int, int] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)  # Why its group has no sessions now.
    log_errors: dict[int, str] = field(default_factory=dict)  # Why its task does not read the log now.
    stuck_at: dict[int, float] = field(default_factory=dict)  # Since when.
    heard_at: dict[int, float] = field(default_factory=dict)  # When its task reported last.
    open: set[int] = field(default_factory=set)  # Those that have had sessions with all of their targets.
    attempts: dict[int, int] = field(default_factory=dict)  # Spark's number of the task.
    sessions: dict[int, int] = field(default_factory=dict)  # How often its group has opened them, over all queries.
    tasks: dict[int, int] = field(default_factory=dict)  # How many tasks it has had, over all queries.
    partitions: int = 0  # How many tasks there must be.
    ended: TaskEnded | None = None

    @property
    def log_error(self) -> str:
        """Why some task does not read the log now; what several say alike stands once."""
        return _said(self.log_errors)


class BeatListener:
    """Takes the beats, on the background loop; read from the supervisor's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._clock, self._wall = clock, wall
        self._rates = Rates()
        self._lock = threading.Lock()
        self._heard = TaskNews()
        self._run = 0
        self.news = threading.Event()  # A task has said that it ended.

    def begin(self, partitions: int = 1) -> int:
        """A query of so many tasks starts; they report under its number. What those of an earlier one still say does
        not count.

        Indexes stay, as they only rise, and so do counts.
        """
        with self._lock:
            self._run += 1
            was = self._heard
            self._heard = TaskNews(acked=was.acked, said_at=was.said_at, partitions=partitions)
            self._heard.sessions, self._heard.tasks = was.sessions, was.tasks
            self.news.clear()
            return self._run

    def heard(self) -> TaskNews:
        with self._lock:
            self._heard.rates = {name: self._rates.per_second(name, index) for name, index in self._heard.acked.items()}
            self._heard.rates[""] = self._rates.per_second("", min(self._heard.through.values(), default=0))
            return copy.deepcopy(self._heard)

    def silence(self, heard: TaskNews, partition: int) -> float | None:
        """For how many seconds the task has not reported; None if it never has."""
        at = heard.heard_at.get(partition)
        return None if at is None else self._clock() - at

    def stuck_seconds(self, heard: TaskNews) -> float:
        """For how long some task has not read the log."""
        return self._clock() - min(heard.stuck_at.values()) if heard.stuck_at else 0.0

    def state(self) -> tuple[str, str]:
        """What the tasks do, and why: starting, playing, stuck, reconnecting or silent."""
        now, heard = self._clock(), self.heard()
        silent = {nth: now - at for nth, at in sorted(heard.heard_at.items()) if now - at > SILENT_SECONDS}
        if silent:
            said = "; ".join(f"task {nth} has not reported for {seconds:.0f} s" for nth, seconds in silent.items())
            return "silent", said
        if heard.log_error:
            return "stuck", heard.log_error
        if lost := _said(heard.lost):
            return "reconnecting", lost
        if unheard := heard.partitions - len(heard.heard_at):
            return "starting", f"{unheard} of {heard.partitions} tasks have not reported; each needs a slot of Spark"
        if closed := heard.partitions - len(heard.open):
            return "starting", f"{closed} of {heard.partitions} tasks open their sessions"
        return "playing", ""

    def take(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """A beat, as it came. Raises Malformed."""
        partition = whole_number(question, "partition")
        through, rows_in, rows_out = (whole_number(question, name) for name in ("current", "rows_in", "rows_out"))
        targets = question.get("targets")
        if not isinstance(targets, list) or not all(isinstance(row, dict) for row in targets):
            raise Malformed("targets is not a list of objects")
        indexes = {str(row.get("target")): (whole_number(row, "index"), whole_number(row, "sent")) for row in targets}
        attempt = whole_number(question, "attempt")
        ended = _ended(question["ended"]) if question.get("ended") is not None else None
        with self._lock:
            now = self._heard
            if question.get("do") != str(self._run):
                return {}
            self._about_task(partition, attempt, question)
            # Before its sessions are open, a task does not know which index a target has.
            for name, (index, sent) in indexes.items() if partition in now.open else ():
                now.acked[name] = max(index, now.acked.get(name, 0))
                if not now.lost[partition]:
                    now.sent[name], now.said_at[name] = sent, self._wall()
                self._rates.note(name, now.acked[name])
            now.through[partition] = through
            self._rates.note("", min(now.through.values()))
            now.rows_in[partition], now.rows_out[partition] = rows_in, rows_out
            if ended is not None and now.ended is None:
                now.ended = ended
                self.news.set()
        return {}

    def _about_task(self, partition: int, attempt: int, said: Mapping[str, Any]) -> None:
        """How the task is; what it counts is given at its first beat and after each loss."""
        now, at = self._heard, self._clock()
        another = now.attempts.get(partition) != attempt
        had = partition in now.open and not now.lost.get(partition) and not another
        now.heard_at[partition] = at
        now.attempts[partition] = attempt
        now.tasks[partition] = now.tasks.get(partition, 0) + another
        if said.get("open"):
            now.open.add(partition)
        now.lost[partition] = str(said.get("lost", ""))
        now.sessions[partition] = now.sessions.get(partition, 0) + (
            partition in now.open and not now.lost[partition] and not had
        )
        now.log_errors[partition] = str(said.get("log_error", ""))
        if not now.log_errors[partition]:
            now.stuck_at.pop(partition, None)
        else:
            now.stuck_at.setdefault(partition, at)


def _said(reasons: Mapping[int, str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, reasons.values())))


def _ended(fields: Any) -> TaskEnded:
    if not isinstance(fields, dict) or fields.get("kind") not in TaskEnd.__members__:
        raise Malformed("ended is not how a task ends")
    target, detail = str(fields.get("target", "")), str(fields.get("detail", ""))
    return TaskEnded(TaskEnd[fields["kind"]], target, whole_number(fields, "index"), detail)

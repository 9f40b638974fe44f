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
    """What the tasks of the query that runs now have said so far; all but ``acked`` is by partition."""

    acked: dict[str, int] = field(default_factory=dict)
    through: dict[int, int] = field(default_factory=dict)
    rows_in: dict[int, int] = field(default_factory=dict)
    rows_out: dict[int, int] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)  # Why its group has no sessions now.
    log_errors: dict[int, str] = field(default_factory=dict)  # Why its task does not read the log now.
    heard_at: dict[int, float] = field(default_factory=dict)  # When its task reported last.
    open: set[int] = field(default_factory=set)  # Those that have had sessions with all of their targets.
    partitions: int = 0  # How many tasks there must be.
    ended: TaskEnded | None = None

    @property
    def log_error(self) -> str:
        """Why some task does not read the log now; what several say alike stands once."""
        return _said(self.log_errors)


class BeatListener:
    """Takes the beats, on the background loop; read from the supervisor's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heard = TaskNews()
        self._run = 0
        self.news = threading.Event()  # A task has said that it ended.

    def begin(self, partitions: int = 1) -> int:
        """A query of so many tasks starts; they report under its number. What those of an earlier one still say does
        not count.

        Indexes stay: they only rise.
        """
        with self._lock:
            self._run += 1
            self._heard = TaskNews(dict(self._heard.acked), partitions=partitions)
            self.news.clear()
            return self._run

    def heard(self) -> TaskNews:
        with self._lock:
            return copy.deepcopy(self._heard)

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
        indexes = {str(row.get("target")): whole_number(row, "index") for row in targets}
        ended = _ended(question["ended"]) if question.get("ended") is not None else None
        with self._lock:
            now = self._heard
            if question.get("do") != str(self._run):
                return {}
            for name, index in indexes.items():
                now.acked[name] = max(index, now.acked.get(name, 0))
            now.heard_at[partition] = self._clock()
            if question.get("open"):
                now.open.add(partition)
            now.through[partition] = through
            now.rows_in[partition], now.rows_out[partition] = rows_in, rows_out
            now.lost[partition] = str(question.get("lost", ""))
            now.log_errors[partition] = str(question.get("log_error", ""))
            if ended is not None and now.ended is None:
                now.ended = ended
                self.news.set()
        return {}


def _said(reasons: Mapping[int, str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, reasons.values())))


def _ended(fields: Any) -> TaskEnded:
    if not isinstance(fields, dict) or fields.get("kind") not in TaskEnd.__members__:
        raise Malformed("ended is not how a task ends")
    target, detail = str(fields.get("target", "")), str(fields.get("detail", ""))
    return TaskEnded(TaskEnd[fields["kind"]], target, whole_number(fields, "index"), detail)

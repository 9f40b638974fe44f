"""Events: facts that the shell tells the core. Past tense, frozen; every session event carries its session.

An event of an older session may arrive at any time after the session ended; the core drops it and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logplayer.core.entry import Entry, Refusal, Session
from logplayer.core.membership import Control

# Events of the hot path are slotted but not frozen: freezing would triple the cost of making one. Nobody changes them.


@dataclass(slots=True)
class Fetched:
    """The main stream read these entries; their indexes rise and lie behind everything it read before."""

    entries: Sequence[Entry]


@dataclass(slots=True)
class Written:
    """The stream took the last batch and is ready for the next one. It says nothing about delivery."""

    target: str
    session: Session


@dataclass(slots=True)
class Acked:
    """The target durably applied every entry up to ``index``. Answers to a probe may repeat an index."""

    target: str
    session: Session
    index: int
    digest: int = 0


@dataclass(slots=True)
class CaughtUp:
    """The catch-up reader read every entry of ``(after, through]`` for a session that may be gone by now."""

    target: str
    session: Session
    after: int
    through: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class CatchUpTrimmed:
    """The catch-up reader asked for an entry that is trimmed; the log now begins at ``first``."""

    target: str
    session: Session
    first: int


@dataclass(frozen=True, slots=True)
class CatchUpFailed:
    """The catch-up reader could not read the log for now; it is asked again after a while."""

    target: str
    session: Session
    error: str


@dataclass(frozen=True, slots=True)
class MainTrimmed:
    """The main stream fell behind the trim point: the log begins at ``first``, and ``control`` is what it decided."""

    first: int
    control: Control


@dataclass(frozen=True, slots=True)
class Opened:
    """The target accepted the session, fenced all older ones, and stood at ``index`` in the same step."""

    target: str
    session: Session
    index: int
    digest: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The target refused the session or a batch, and the stream is over."""

    target: str
    session: Session
    reason: Refusal
    detail: str = ""
    index: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream ended or could not be opened. What was on it may or may not have been applied."""

    target: str
    session: Session
    error: str = ""


@dataclass(frozen=True, slots=True)
class Ticked:
    """The monotonic clock stands at ``now`` milliseconds."""

    now: int


@dataclass(frozen=True, slots=True)
class LogTrimmed:
    """The log no longer holds entries up to ``up_to``; whoever trimmed it."""

    up_to: int


@dataclass(frozen=True, slots=True)
class Archived:
    """The archive holds every entry up to ``up_to``; with an archive policy the log is trimmed no further."""

    up_to: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Deliver what is queued, then stop."""


@dataclass(frozen=True, slots=True)
class RetryRequested:
    """An operator asks to try a blocked or waiting target again at once."""

    target: str


Event = (
    Fetched
    | Written
    | Acked
    | CaughtUp
    | CatchUpTrimmed
    | CatchUpFailed
    | MainTrimmed
    | Opened
    | Refused
    | Lost
    | Ticked
    | LogTrimmed
    | Archived
    | StopRequested
    | RetryRequested
)

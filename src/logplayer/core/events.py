"""Events: facts that the shell tells the core. Past tense, frozen; every session event carries its session.

An event of an older session may arrive at any time after the session ended; the core drops it and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logplayer.core.control_state import ControlState
from logplayer.core.entry import Decision, Delivery, Entry, Refusal, Session

# Events of the hot path are slotted but not frozen: freezing would triple the cost of making one. Nobody changes them.


@dataclass(slots=True)
class Fetched:
    """The main stream read these entries; their indexes rise and come after everything it read before."""

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
    chain: bytes = b""  # The log's chain value at ``through``.


@dataclass(slots=True)
class DeliveriesRead:
    """The same as ``CaughtUp``, from a source that has the target's deliveries and not the entries: see core.feed."""

    target: str
    session: Session
    after: int
    through: int
    messages: Sequence[Delivery]
    chain: bytes = b""  # The source's chain value at ``through``; empty if it has none.


@dataclass(frozen=True, slots=True)
class CatchUpTrimmed:
    """The catch-up reader asked for an entry that is trimmed; the log now begins at ``first``."""

    target: str
    session: Session
    first: int


@dataclass(frozen=True, slots=True)
class CatchUpDiverged:
    """What the log has after the target's coverage does not continue the chain value that is there."""

    target: str
    session: Session
    error: str


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
    control: ControlState
    chain: bytes = b""  # The value that the log keeps at its trim point.


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Every entry up to ``through``, which is not after our takeover, was looked at; these were the last of them.

    They are for no target any more: only those that reach nobody matter.
    """

    through: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Opened:
    """The target accepted the session, fenced all older ones, and had ``index`` in the same step."""

    target: str
    session: Session
    index: int
    digest: int = 0
    chain: bytes = b""  # The chain value that it stored with the index.


@dataclass(frozen=True, slots=True)
class Refused:
    """The target refused the session or a batch, and the stream is over."""

    target: str
    session: Session
    reason: Refusal
    detail: str = ""
    index: int = 0
    epoch: int = 0  # The target's, by its own word: whoever fenced us has it.
    chain: bytes = b""  # The chain value that the target stored with its index.


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The log holds ``[first, last]``, read after the question was asked.

    ``record`` is the control record at ``index``: None where that lies outside, or holds something else, or nothing.
    """

    target: str
    index: int
    first: int
    last: int
    record: Decision | None = None
    chain: bytes | None = None  # The log's chain value at ``index``; None if it has none there, or has it no more.


@dataclass(frozen=True, slots=True)
class LookUpFailed:
    """The log could not be asked for now."""

    target: str
    index: int
    error: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream ended or could not be opened. What was on it may or may not have been applied."""

    target: str
    session: Session
    error: str = ""


@dataclass(frozen=True, slots=True)
class Ticked:
    """The monotonic clock shows ``now`` milliseconds."""

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


@dataclass(frozen=True, slots=True)
class HoldRequested:
    """An operator asks to leave a target alone until a retry is requested for it, or this player ends."""

    target: str


Event = (
    Fetched
    | Written
    | Acked
    | CaughtUp
    | DeliveriesRead
    | CatchUpTrimmed
    | CatchUpDiverged
    | CatchUpFailed
    | MainTrimmed
    | Surveyed
    | Opened
    | Refused
    | LookedUp
    | LookUpFailed
    | Lost
    | Ticked
    | LogTrimmed
    | Archived
    | StopRequested
    | RetryRequested
    | HoldRequested
)

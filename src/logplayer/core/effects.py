"""Effects: requests of the core to the shell. The shell performs them in order and decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from logplayer.core.entry import Delivery, Session

# Effects of the hot path are cheaper to make than frozen ones: a tuple, and one that is slotted, as in ``core.events``.


class SendBatch(NamedTuple):
    """Write a batch that covers ``(prev, to]``; answer with ``Written`` when the stream can take the next."""

    target: str
    session: Session
    prev: int
    to: int
    messages: list[Delivery]
    prev_chain: bytes = b""  # The chain values at the ends of the range.
    to_chain: bytes = b""


@dataclass(slots=True)
class ReadCatchUp:
    """Read the log from ``first`` up to ``last`` at most and answer with ``CaughtUp``.

    Stop early, after at least one entry, once about ``count_max`` entries or ``bytes_max`` bytes *for this target*
    were read. More does no harm: what does not fit is read again.
    """

    target: str
    session: Session
    first: int
    last: int
    count_max: int
    bytes_max: int
    chain: bytes = b""  # At ``first - 1``. If the log does not continue it, answer with ``CatchUpDiverged``.


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask the log where it begins and ends and what it has at ``index``; answer with ``LookedUp`` or ``LookUpFailed``.

    A target has claimed something about that index which the main stream has not read. Ask the log itself: an answer
    from memory may be older than the claim. ``index`` may be any number.
    """

    target: str
    index: int


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Connect to the target and send ``Open``; answer with ``Opened``, ``Refused`` or ``Lost``."""

    target: str
    session: Session


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Drop the session's stream and its reader; nothing needs to be waited for."""

    target: str
    session: Session


@dataclass(frozen=True, slots=True)
class SendProbe:
    """Ask the target for an ack of its durable index, after whatever is being written."""

    target: str
    session: Session


@dataclass(frozen=True, slots=True)
class TrimLog:
    """Trim the log up to ``up_to``, inclusive; answer with ``LogTrimmed``.

    But only if it has the chain value ``chain`` at ``index``: what the targets have is of that history.
    """

    up_to: int
    index: int = 0
    chain: bytes = b""


@dataclass(frozen=True, slots=True)
class StepDown:
    """The log shows the takeover of a newer player. Close everything; this core takes no more events."""

    reason: str
    epoch: int  # The newer player's.
    application: int = 0  # Its application, as its record says; 0 if it has none or the record is trimmed.


@dataclass(frozen=True, slots=True)
class Stop:
    """All that was queued is delivered and acked, or its target is away. Close everything."""


@dataclass(frozen=True, slots=True)
class Report:
    """Something an operator would act on happened to ``target``."""

    target: str
    what: str
    blocked: bool = False  # Whether it is why the target is blocked.


Effect = SendBatch | ReadCatchUp | LookUp | OpenSession | CloseSession | SendProbe | TrimLog | StepDown | Stop | Report

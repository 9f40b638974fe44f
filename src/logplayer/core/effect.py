"""Effects: requests of the core to the shell. The shell performs them in order and decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from logplayer.core.entry import Message, Session

# Effects of the hot path are cheaper to make than frozen ones: a tuple, and one that is slotted, as in ``core.event``.


class SendBatch(NamedTuple):
    """Write a batch that covers ``(prev, to]``; answer with ``Written`` when the stream can take the next."""

    target: str
    session: Session
    prev: int
    to: int
    messages: list[Message]


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
    """Ask the target for an ack of its durable index, behind whatever is being written."""

    target: str
    session: Session


@dataclass(frozen=True, slots=True)
class TrimLog:
    """Trim the log up to ``up_to``, inclusive; answer with ``LogTrimmed``."""

    up_to: int


@dataclass(frozen=True, slots=True)
class StepDown:
    """A newer player has taken over. Close everything; this core takes no more events."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """All that was queued is delivered and acked, or its target is away. Close everything."""


@dataclass(frozen=True, slots=True)
class Report:
    """Something an operator would act on happened to ``target``."""

    target: str
    what: str


Effect = SendBatch | ReadCatchUp | OpenSession | CloseSession | SendProbe | TrimLog | StepDown | Stop | Report

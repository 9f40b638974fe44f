"""What the driver of resident players hears and what it asks for: the events and effects of its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from logplayer.player.ended import Ended
from logplayer.spark.resident.groups import GroupPlan
from logplayer.spark.resident.heartbeat import Beat

# --- Events: facts. ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heard:
    """A task of job ``job`` sent a heartbeat, which was checked against the plan and the members."""

    job: int
    beat: Beat


@dataclass(frozen=True, slots=True)
class JobEnded:
    """Spark is done with the job: its group's player has ended, or with ``error`` the job failed."""

    job: int
    ended: Ended | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """The newest control record is ``control`` and these are the members by it; Spark has these executors."""

    control: int
    members: frozenset[str]
    executors: Mapping[str, int]  # The slots of each. A name means nothing but "the same executor".


@dataclass(frozen=True, slots=True)
class LookFailed:
    """The log or Spark could not be asked."""


@dataclass(frozen=True, slots=True)
class TrimTried:
    """A trim was tried."""


@dataclass(frozen=True, slots=True)
class RetryAsked:
    """An operator wants ``target`` to be tried again at once; one that was suspended is resumed."""

    target: str


@dataclass(frozen=True, slots=True)
class SuspendAsked:
    """An operator wants ``target`` to be left alone until ``RetryAsked``."""

    target: str


@dataclass(frozen=True, slots=True)
class Activated:
    """The application stood by and has registered in the log now: it is to play, as number ``application``."""

    application: int


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Somebody wants the application to end."""


@dataclass(frozen=True, slots=True)
class SparkEnded:
    """Spark's JVM has died, or its master has ended the application: no job can be submitted any more."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed; ``now`` is in milliseconds of a clock that never goes back."""

    now: int


DriverEvent = (
    Heard
    | JobEnded
    | Looked
    | LookFailed
    | TrimTried
    | RetryAsked
    | SuspendAsked
    | Activated
    | StopAsked
    | SparkEnded
    | TimePassed
)


# --- Effects: requests. -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubmitJob:
    """Give one group of the plan to Spark, as job ``job``; answer with ``JobEnded``."""

    job: int
    group: int
    plan: GroupPlan
    executor: str = ""  # Where it should run, if that can be had; empty: anywhere.


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Kill what still runs of the job. Its ``JobEnded`` comes as ever."""

    job: int


@dataclass(frozen=True, slots=True)
class WarmExecutor:
    """Run a task that does nothing on this executor, so that the next one starts sooner."""

    executor: str


@dataclass(frozen=True, slots=True)
class Look:
    """Read the members and count the executors' slots; answer with ``Looked`` or ``LookFailed``."""


@dataclass(frozen=True, slots=True)
class TrimForMembers:
    """Trim what every member has. Each member is in ``indexes``; answer with ``TrimTried``."""

    indexes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the heartbeat that was just heard."""

    stop: bool
    retry: tuple[str, ...] = ()
    application: int = 0  # A task that stands by takes over when this is the application's number.
    hold: tuple[str, ...] = ()  # All of the group's targets that are suspended: any other is resumed.


@dataclass(frozen=True, slots=True)
class SayPlaying:
    """Every group's player has taken over, for the first time."""


@dataclass(frozen=True, slots=True)
class Note:
    """Show ``text`` in the status."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """The application is over."""

    ended: Ended


DriverEffect = SubmitJob | CancelJob | WarmExecutor | Look | TrimForMembers | Answer | SayPlaying | Note | End

"""One group of a Spark application as its driver knows it: its job, and when its player was last heard."""

from __future__ import annotations

import enum
from dataclasses import dataclass

SILENT_MS = 3_000  # A player says something four times a second. Too low: a busy machine makes groups look silent.


class GroupState(enum.Enum):
    """What is known of a group now. In all but PLAYING nobody is known to feed its targets."""

    PLAYING = "playing"  # Its player has said so within SILENT_MS.
    STARTING = "starting"  # Its task was heard, and its player has not taken over, or no longer plays.
    WAITING = "waiting"  # Its job is in Spark, and no task of it was heard: it waits for a slot, or starts.
    PAUSING = "pausing"  # Spark gave its job up; the next one comes in a moment.
    SILENT = "silent"  # Its task was heard, and is not heard any more.


@dataclass(slots=True)
class GroupRun:
    """The jobs of one group. Times are the machine's, in milliseconds."""

    job: int = 0  # The newest one.
    running: bool = False  # Invariant: exactly then Spark has a job of this group.
    draining: bool = False  # The job is asked to stop, and another follows.
    executor: str = ""  # Where the newest job was wished to run.
    failures: int = 0  # How often in a row Spark gave a job up.
    submitted_at: int = 0
    resume_at: int = 0  # Not before this the next job is submitted.
    has_played: bool = False  # Since the targets were dealt out.
    _heard_at: int | None = None  # Of the newest job.
    _played_at: int | None = None

    @property
    def unheard(self) -> bool:
        """Whether its job is in Spark and no task of it was ever heard."""
        return self.running and self._heard_at is None

    def submitted(self, job: int, now: int, executor: str) -> None:
        self.job, self.running, self.draining = job, True, False
        self.submitted_at, self.executor, self._heard_at = now, executor, None

    def ended(self) -> None:
        self.running = self.draining = False

    def heard(self, now: int, *, plays: bool) -> None:
        """Its task sent a heartbeat; ``plays``: its player has taken over and has not ended."""
        self._heard_at = now
        if plays:
            self.has_played, self._played_at = True, now

    def silence_ms(self, now: int) -> int | None:
        """How long its player has said nothing; None if it never has."""
        return None if self._played_at is None else max(0, now - self._played_at)

    def state(self, now: int) -> GroupState:
        """What an operator is shown."""
        silence = self.silence_ms(now)
        if silence is not None and silence <= SILENT_MS:
            return GroupState.PLAYING
        if not self.running:
            return GroupState.PAUSING
        if self._heard_at is None:
            return GroupState.WAITING
        return GroupState.STARTING if now - self._heard_at <= SILENT_MS else GroupState.SILENT

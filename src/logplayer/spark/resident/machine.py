"""What the driver of resident players decides: ``step(event) -> effects``, with no I/O, no clock and no lock.

Theory of operation
===================

An application plays a log with one endless Spark job. Each task of the job plays one group of targets and sends
heartbeats to the driver; the driver's answer to a heartbeat is its only way to speak to a task, and the only thing that
it can say is *stop* (and: try a target again). From that follows how the driver works:

- A plan (which group has which target) holds for a whole job. To deal targets out in another way, the driver drains
  the job, that is, answers every heartbeat with stop, waits until the job has ended, and submits the next one.
- There are never two jobs at once: two tasks of one group would take the group from each other for ever. Only the end
  of a job, reported by Spark, makes room for the next.
- A task of an older job that is still alive somewhere is asked to stop, because its heartbeat names another job.

    RUNNING ──the job has ended──▶ submit again at once        the tasks drained by themselves, or a group is taken back
       │  ╲──Spark gave it up────▶ PAUSING ──a while──▶ submit  a task may fail only so often in the life of a job
       │   ╲─drained to deal─────▶ DEALING ──looked───▶ submit  the members have changed; if there are too few slots for
       │                                                        the new plan, PAUSING, and the old one again
       │
       └─stop, or superseded: drain ──the job has ended, or it was cancelled and is waited for no longer──▶ ENDED

Which application is the newer one
----------------------------------
Two applications on one log would each take some groups from the other. The log orders them: an application registers
with a record of its own, the index of that record is its number, and each of its players names the number in its
takeover. A group that was taken by an *older* application's late task is taken back, by the next job. A group that was
taken by a *newer* one, or by a player that belongs to no application, ends this application with SUPERSEDED. The same
holds if the newer player's record is trimmed: whatever it was, it came long ago.

Why a stop always ends
----------------------
Draining needs the tasks to hear the answer, and a task may be lost, or never have got a slot to start in. So a stop
has two deadlines: after the first the job is cancelled, after the second the application ends without it. A task that
outlives even that stops by itself when its driver does not answer, and is fenced by its epoch whatever it does.

Why trimming is safe
--------------------
With several groups nobody but the driver knows what all targets have. It asks for a trim only when it has heard the
index of *every* member, in a heartbeat of the current job or an earlier one. A target's own index never shrinks unless
its store is restored from a backup; if it lacks entries then that were trimmed, its player finds out by the answer to
the next Open and blocks it until it is filled again. A member that has not been heard of, for example because it has
just joined, holds everything. What is known of a target that left the log is forgotten, so that one that
comes back under the same name counts as unheard.

The caller's duties
-------------------
1. Feed events one at a time, from one thread; perform the effects in order. ``Heard`` always yields one ``Answer``.
2. Feed ``TimePassed`` a few times a second.
3. Answer each ``SubmitJob`` with ``JobEnded``, once; each ``Look`` with ``Looked`` or ``LookFailed``; each
   ``TrimForMembers`` with ``TrimTried``, whether it worked or not.
4. After ``End`` nothing more is decided.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from logplayer.player.ended import STOPPED, Ended
from logplayer.spark.resident.events import (
    Answer,
    CancelJob,
    Effect,
    End,
    Event,
    Heard,
    JobEnded,
    Look,
    Looked,
    LookFailed,
    Note,
    RetryAsked,
    StopAsked,
    SubmitJob,
    TimePassed,
    TrimForMembers,
    TrimTried,
)
from logplayer.spark.resident.groups import GroupPlan, count_groups, deal

LOOK_MS = 500
PAUSES_MS = (200, 500, 1000, 2000, 5000)
STEADY_MS = 60_000  # A job that ran for so long before Spark gave it up starts again without a longer pause.
ROOM_MS = 30_000  # How long a cluster's executors may take to register before the old plan is played on.
CANCEL_MS, LEAVE_MS = 5_000, 10_000  # After the drain's own time; and after that.


class Phase(enum.Enum):
    """Where the application is between its jobs."""

    RUNNING = "running"  # Invariant: exactly here there is a job in Spark.
    PAUSING = "pausing"  # Spark gave the job up: the next one waits a moment.
    DEALING = "dealing"  # The targets are to be dealt out again, as soon as the log has named them.
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Settings:
    """What does not change in the life of an application."""

    application: int
    groups: int = 0  # 0: as many as the targets are worth.
    trims: bool = False
    drain_ms_max: int = 10_000
    fixed_slots: bool = True  # A local master never gets more slots than it has.


@dataclass(slots=True)
class Machine:
    """One application. Make it with the first plan and ``begin``; then ``step`` for each event."""

    settings: Settings
    plan: GroupPlan
    members: frozenset[str]
    control: int = 0  # The control record that ``members`` is from.
    phase: Phase = Phase.PAUSING
    job: int = 0  # The newest one.
    stopping: bool = False
    ended: Ended | None = None
    indexes: dict[str, int] = field(default_factory=dict)  # What each heard target has durably.
    now: int = 0
    _draining: bool = False  # The job is asked to stop, and another follows.
    _deal: bool = False  # ... which has another plan.
    _changed: bool = False  # There are decisions that no plan was measured by yet; they may come during a pause.
    _failures: int = 0
    _submitted_at: int = 0
    _resume_at: int = 0  # When a pause is over, or a deal is given up.
    _look_at: int = 0
    _looking: bool = False
    _trimming: bool = False
    _cancel_at: int = 0
    _leave_at: int = 0
    _retries: dict[int, set[str]] = field(default_factory=dict)
    _effects: list[Effect] = field(default_factory=list)

    def begin(self, now: int) -> list[Effect]:
        """Submit the first job."""
        self.now = now
        self._submit()
        return self._taken()

    def step(self, event: Event) -> list[Effect]:
        """Take in one fact; return what to do about it, in order."""
        if self.phase is Phase.ENDED:
            return [Answer(stop=True)] if isinstance(event, Heard) else []
        _HANDLERS[type(event)](self, event)
        return self._taken()

    def _taken(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # --- Heartbeats ---

    def _heard(self, event: Heard) -> None:
        if event.job != self.job or self.phase is not Phase.RUNNING:
            self._effects.append(Answer(stop=True))  # A task of a job that is over, still winding down.
            return
        beat = event.beat
        for row in beat.status["targets"] if beat.status is not None else ():
            if row["index"] >= 0:
                self.indexes[row["target"]] = row["index"]
            else:
                self.indexes.pop(row["target"], None)  # Its new player has not heard of it: it may have been restored.
        if beat.ended is not None:
            self._group_ended(beat.ended)
        retry = tuple(sorted(self._retries.pop(beat.group, ())))
        self._effects.append(Answer(self.stopping or self._draining, retry))

    def _group_ended(self, ended: Ended) -> None:
        """One group has ended while others may go on: either the application is over, or it takes the group back."""
        if not ended.superseded or 0 < ended.application <= self.settings.application:
            self._draining = True  # A group that could not reach us for long ends too: the next job has it again.
        else:
            self.ended = self.ended or ended
            self._stop()

    def _retry_requested(self, event: RetryAsked) -> None:
        self._retries.setdefault(self.plan.group_of(event.target), set()).add(event.target)

    # --- Jobs ---

    def _submit(self) -> None:
        self.job += 1
        self.phase = Phase.RUNNING
        self._draining = self._deal = False
        self._submitted_at = self.now
        self._effects.append(SubmitJob(self.job, self.plan))

    def _job_ended(self, event: JobEnded) -> None:
        if event.job != self.job or self.phase is not Phase.RUNNING:
            return  # It remained after its cancellation.
        for ended in event.ends:
            self._group_ended(ended)
        if self.stopping:
            self._end()
        elif event.error:
            self._changed = self._changed or self._deal  # It failed before it had drained: measure the plan again.
            self._pause(f"the job ended and starts again: {event.error}")
        elif self._deal:
            self.phase = Phase.DEALING
            self._resume_at = self.now + ROOM_MS
            self._look()
        else:
            self._submit()

    def _pause(self, why: str) -> None:
        steady = self.now - self._submitted_at > STEADY_MS
        self._failures = 0 if steady else self._failures + 1
        self.phase = Phase.PAUSING
        self._resume_at = self.now + PAUSES_MS[min(self._failures, len(PAUSES_MS) - 1)]
        self._effects.append(Note(why))

    # --- Members ---

    def _look(self) -> None:
        self._look_at = self.now + LOOK_MS
        if not self._looking:
            self._looking = True
            self._effects.append(Look())

    def _looked(self, event: Looked) -> None:
        self._looking = False
        if event.control < self.control:
            return  # Read before something that we know already.
        self._changed = self._changed or event.control > self.control
        self.control, self.members = event.control, event.members
        self.indexes = {name: index for name, index in self.indexes.items() if name in self.members}
        if self.phase is Phase.DEALING:
            self._deal_out(event.slots)
        elif self.phase is Phase.RUNNING and self._changed and self.members and not self.stopping:
            self._changed = False
            groups = count_groups(len(self.members), event.slots, self.settings.groups)
            if self.plan.uneven(self.members) or groups != self.plan.groups:
                self._draining = self._deal = True

    def _deal_out(self, slots: int) -> None:
        self._changed = False
        groups = count_groups(len(self.members), slots, self.settings.groups)
        if self.members and groups <= slots:
            self.plan = deal(self.members, groups)
            self._submit()
        elif not self.members or self.settings.fixed_slots or self.now >= self._resume_at:
            why = f"{groups} groups need more than {slots} slots" if self.members else "the log has no members"
            self._pause(f"{why}: going on with {self.plan.groups} groups as before")

    def _look_failed(self, event: LookFailed) -> None:
        self._looking = False  # The log is away, and the players say so; the next tick looks again.

    def _trimmed(self, event: TrimTried) -> None:
        self._trimming = False

    # --- Time ---

    def _ticked(self, event: TimePassed) -> None:
        self.now = max(self.now, event.now)
        if self.stopping:
            self._hurry()
        elif self.phase is Phase.PAUSING and self.now >= self._resume_at:
            self._submit()
        elif self.now >= self._look_at:
            self._look()
            self._trim()

    def _trim(self) -> None:
        several = self.settings.trims and self.plan.groups > 1  # One group trims by itself.
        if several and not self._trimming and self.members and self.members <= self.indexes.keys():
            self._trimming = True
            self._effects.append(TrimForMembers({name: self.indexes[name] for name in self.members}))

    # --- The end ---

    def _stop_requested(self, event: StopAsked) -> None:
        self._stop()
        if self.phase is not Phase.RUNNING:
            self._end()

    def _stop(self) -> None:
        if not self.stopping:
            self.stopping = True
            self._cancel_at = self.now + self.settings.drain_ms_max + CANCEL_MS
            self._leave_at = self._cancel_at + LEAVE_MS

    def _hurry(self) -> None:
        if self.now >= self._leave_at:
            self._end()
        elif self._cancel_at and self.now >= self._cancel_at:
            self._cancel_at = 0
            self._effects.append(CancelJob(self.job))

    def _end(self) -> None:
        self.phase = Phase.ENDED
        self.ended = self.ended or STOPPED
        self._effects.append(End(self.ended))


_HANDLERS: dict[type, Callable[[Machine, Any], None]] = {
    Heard: Machine._heard,
    JobEnded: Machine._job_ended,
    Looked: Machine._looked,
    LookFailed: Machine._look_failed,
    TrimTried: Machine._trimmed,
    RetryAsked: Machine._retry_requested,
    StopAsked: Machine._stop_requested,
    TimePassed: Machine._ticked,
}

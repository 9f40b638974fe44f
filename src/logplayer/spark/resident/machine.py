"""What the driver of resident players decides: ``step(event) -> effects``, with no I/O, no clock and no lock.

Theory of operation
===================

An application plays a log with one endless Spark job for each group of targets. The job has one task, which plays the
group and sends heartbeats to the driver; the driver's answer to a heartbeat is its only way to speak to a task, and all
that it can say is *stop*, *try a target again*, *these are suspended*, and to a task that stands by, *play*. So:

- Spark counts the failures of a task over the life of its job, and ends the job after so many. With a job for each
  group, the failures of one group end only that group's job, and the driver submits the next one.
- A group never has two jobs at once: two players of one group would take it from each other for ever. Only the end of
  a job, reported by Spark, makes room for the next one.
- A plan (which group has which target) holds for all jobs. To deal targets out in another way, the driver drains every
  job, that is, answers every heartbeat with stop, and submits the new plan's jobs when the last one has ended.
- A task of an older job that is still alive somewhere is asked to stop, because its heartbeat names another job.

    one group:    in Spark ──the job has ended──────▶ submit again at once     its player ended, or is taken back
                           ╲─Spark gave it up───────▶ pause, then submit       longer after each failure in a row

    all of them:  PLAYING ──the members do not fit the plan──▶ DEALING ──no job is left, the log was read──▶ PLAYING
                      └─stop, or superseded: drain ──no job is left, or they are waited for no longer──▶ ENDED

Where a group is played
-----------------------
The driver asks Spark for the executor that has the fewest groups, so that a lost executor stops as few as possible. It
is a wish: if that executor is gone or full, Spark takes another. Every job is submitted, also if there are fewer slots
than groups: a cluster may add executors because tasks wait for them. Which groups wait is said.

Standing by
-----------
An application without a number stands by: its tasks are started and connected, and their heartbeats are answered with
no number. ``Activated`` brings the number, and the next answers carry it to the tasks, which then take over.

Which application is the newer one
----------------------------------
Two applications on one log would each take some groups from the other. The log orders them: an application registers
with a record of its own, the index of that record is its number, and each of its players names the number in its
takeover. A group that was taken by an *older* application's late task is taken back, by its next job. A group that was
taken by a *newer* one, or by a player that belongs to no application, ends this application with SUPERSEDED. The same
holds if the newer player's record is trimmed: whatever it was, it came long ago.

Why a stop always ends
----------------------
Draining needs the tasks to hear the answer, and a task may be lost, or never have got a slot to start in. So a stop
has two deadlines: after the first the jobs are cancelled, after the second the application ends without them. A task
that outlives even that stops by itself when its driver does not answer, and is fenced by its epoch whatever it does.

Why trimming is safe
--------------------
With several groups nobody but the driver knows what all targets have. It asks for a trim only when it has heard the
index of *every* member, in a heartbeat of a current job or an earlier one. A target's own index never shrinks unless
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
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from logplayer.player.ended import STOPPED, Ended
from logplayer.spark.resident.events import (
    Activated,
    Answer,
    CancelJob,
    DriverEffect,
    DriverEvent,
    End,
    Heard,
    JobEnded,
    Look,
    Looked,
    LookFailed,
    Note,
    RetryAsked,
    SayPlaying,
    SparkEnded,
    StopAsked,
    SubmitJob,
    SuspendAsked,
    TimePassed,
    TrimForMembers,
    TrimTried,
    WarmExecutor,
)
from logplayer.spark.resident.group_run import GroupRun
from logplayer.spark.resident.groups import GroupPlan, count_groups, deal
from logplayer.spark.resident.warming import Warming

LOOK_MS = 500
PAUSES_MS = (200, 500, 1000, 2000, 5000)
STEADY_MS = 60_000  # A job that ran for so long before Spark gave it up starts again without a longer pause.
SLOT_MS = 3_000  # A task that has a slot is heard long before.
CANCEL_MS, LEAVE_MS = 5_000, 10_000  # After the drain's own time; and after that.


class Phase(enum.Enum):
    """Where the application is."""

    PLAYING = "playing"  # Every group has a job in Spark, or gets the next one in a moment.
    DEALING = "dealing"  # Every job drains; then the targets are dealt out again.
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Settings:
    """What does not change in the life of an application."""

    groups: int = 0  # 0: as many as the targets are worth.
    trims: bool = False
    drain_ms_max: int = 10_000
    elastic: bool = False  # Spark adds executors because tasks wait for them (dynamic allocation).


@dataclass(slots=True)
class Machine:
    """One application. Make it with the first plan and ``begin``; then ``step`` for each event."""

    settings: Settings
    plan: GroupPlan
    members: frozenset[str]
    application: int = 0  # Its number in the log; 0 while it stands by.
    control: int = 0  # The control record that ``members`` is from.
    executors: Mapping[str, int] = field(default_factory=dict)  # The slots of each.
    phase: Phase = Phase.PLAYING
    job: int = 0  # The newest one.
    runs: list[GroupRun] = field(default_factory=list)  # One for each group of the plan.
    stopping: bool = False
    ended: Ended | None = None
    lost: str | None = None  # Why Spark has ended, if it has.
    indexes: dict[str, int] = field(default_factory=dict)  # What each heard target has durably.
    held: set[str] = field(default_factory=set)  # Suspended by an operator, whichever worker plays them.
    now: int = 0
    _changed: bool = False  # There are decisions that no plan was measured by yet; they may come during a pause.
    _playing_said: bool = False
    _waiting_said: tuple[int, ...] = ()
    _warming: Warming = field(default_factory=Warming)
    _look_at: int = 0
    _looking: bool = False
    _trimming: bool = False
    _cancel_at: int = 0
    _leave_at: int = 0
    _retries: dict[int, set[str]] = field(default_factory=dict)
    _effects: list[DriverEffect] = field(default_factory=list)

    def begin(self, now: int) -> list[DriverEffect]:
        """Submit the first jobs."""
        self.now = now
        self._submit_plan(self.plan)
        return self._taken()

    def step(self, event: DriverEvent) -> list[DriverEffect]:
        """Take in one fact; return what to do about it, in order."""
        if self.phase is Phase.ENDED:
            return [Answer(stop=True)] if isinstance(event, Heard) else []
        _HANDLERS[type(event)](self, event)
        return self._taken()

    def jobs(self) -> dict[int, int]:
        """The job that Spark has of each group that has one."""
        return {number: run.job for number, run in enumerate(self.runs) if run.running}

    @property
    def warm(self) -> bool:
        """Whether every group's task has started."""
        return all(run.running and not run.unheard for run in self.runs)

    def _taken(self) -> list[DriverEffect]:
        effects, self._effects = self._effects, []
        return effects

    # --- Heartbeats ---

    def _heard(self, event: Heard) -> None:
        beat = event.beat
        if self.jobs().get(beat.group) != event.job:
            self._effects.append(Answer(stop=True))  # A task of a job that is over, still winding down.
            return
        run = self.runs[beat.group]
        run.heard(self.now, plays=beat.status is not None)
        for row in beat.status["targets"] if beat.status is not None else ():
            if row["index"] >= 0:
                self.indexes[row["target"]] = row["index"]
            else:
                self.indexes.pop(row["target"], None)  # Its new player has not heard of it: it may have been restored.
        if beat.ended is not None:
            self._group_ended(run, beat.ended)
        self._say_playing()
        retry = tuple(sorted(self._retries.pop(beat.group, ())))
        stop = self.stopping or self.phase is Phase.DEALING or run.draining
        hold = tuple(sorted(name for name in self.held if self.plan.group_of(name) == beat.group))
        self._effects.append(Answer(stop, retry, self.application, hold))

    def _say_playing(self) -> None:
        if not self._playing_said and all(run.has_played for run in self.runs):
            self._playing_said = True
            self._effects.append(SayPlaying())

    def _group_ended(self, run: GroupRun, ended: Ended) -> None:
        """One group has ended while others go on: either the application is over, or it takes the group back."""
        if not ended.superseded or 0 < ended.application <= self.application:
            run.draining = True  # A group that could not reach us for long ends too: its next job has it again.
        else:
            self.ended = self.ended or ended
            self._stop()

    def _retry_requested(self, event: RetryAsked) -> None:
        self.held.discard(event.target)
        self._retries.setdefault(self.plan.group_of(event.target), set()).add(event.target)

    def _suspend_requested(self, event: SuspendAsked) -> None:
        self.held.add(event.target)

    def _activated(self, event: Activated) -> None:
        self.application = event.application

    # --- Jobs ---

    def _submit_plan(self, plan: GroupPlan) -> None:
        self.plan, self.phase = plan, Phase.PLAYING
        self.runs = [GroupRun() for _ in range(plan.groups)]
        self._submit_due()

    def _submit_due(self) -> None:
        for number, run in enumerate(self.runs):
            if not run.running and self.now >= run.resume_at:
                self.job += 1
                run.submitted(self.job, self.now, self._roomiest())
                self._effects.append(SubmitJob(self.job, number, self.plan, run.executor))

    def _roomiest(self) -> str:
        """The one with the fewest groups that has a slot for one more; empty if none is known to have one."""
        taken = Counter(other.executor for other in self.runs if other.running)
        room = [(taken[name], name) for name, slots in self.executors.items() if taken[name] < slots]
        return min(room)[1] if room else ""

    def _job_ended(self, event: JobEnded) -> None:
        number = next((group for group, job in self.jobs().items() if job == event.job), None)
        if number is None:
            return  # It remained after its cancellation.
        run = self.runs[number]
        if event.ended is not None:
            self._group_ended(run, event.ended)
        run.ended()
        if event.error:
            steady = self.now - run.submitted_at > STEADY_MS
            run.failures = 0 if steady else run.failures + 1
            run.resume_at = self.now + PAUSES_MS[min(run.failures, len(PAUSES_MS) - 1)]
            self._effects.append(Note(f"the job of group {number} ended and starts again: {event.error}"))
        self._go_on()

    def _go_on(self) -> None:
        """What follows when a job has ended or time has passed."""
        if self.stopping:
            if not self.jobs():
                self._end()
        elif self.phase is Phase.PLAYING:
            self._submit_due()
        elif not self.jobs() and not self._looking:
            self._look()

    # --- Members ---

    def _look(self) -> None:
        self._look_at = self.now + LOOK_MS
        if not self._looking:
            self._looking = True
            self._effects.append(Look())

    def _looked(self, event: Looked) -> None:
        self._looking = False
        self.executors = event.executors
        self._say_who_waits()
        if self.warm and not self.stopping and not self.settings.elastic:  # Tasks would make it add executors.
            self._effects.extend(map(WarmExecutor, self._warming.due(self.executors, len(self.runs))))
        if event.control < self.control:
            return  # Read before something that we know already.
        self._changed = self._changed or event.control > self.control
        self.control, self.members = event.control, event.members
        self.indexes = {name: index for name, index in self.indexes.items() if name in self.members}
        self.held &= self.members
        if self.stopping:
            return
        if self.phase is Phase.DEALING:
            if not self.jobs():
                self._deal_out()
        elif self._changed and self.members:
            self._changed = False
            if self.plan.uneven(self.members) or self._groups_wanted() != self.plan.groups:
                self.phase = Phase.DEALING
                self._go_on()

    def _groups_wanted(self) -> int:
        """As configured, or as many as the targets are worth; more than now only if there are slots for them."""
        room = max(sum(self.executors.values()), self.plan.groups)
        targets = len(self.members)
        return count_groups(targets, targets if self.settings.elastic else room, self.settings.groups)

    def _deal_out(self) -> None:
        self._changed = False
        if self.members:
            self._submit_plan(deal(self.members, self._groups_wanted()))
            return
        self._effects.append(Note(f"the log has no members: going on with {self.plan.groups} groups as before"))
        self.phase = Phase.PLAYING
        for run in self.runs:
            run.resume_at = self.now + PAUSES_MS[-1]

    def _say_who_waits(self) -> None:
        late = self.now - SLOT_MS
        waiting = tuple(n for n, run in enumerate(self.runs) if run.unheard and run.submitted_at <= late)
        slots = sum(self.executors.values())
        if slots >= len(self.runs):
            waiting = ()  # Whatever keeps them, it is not that.
        if waiting and waiting != self._waiting_said:
            self._effects.append(
                Note(
                    f"groups {list(waiting)} wait for slots, and their targets get nothing: {len(self.runs)} groups "
                    f"need {len(self.runs)} slots at once, and Spark's executors have {slots}. Give the application "
                    "more cores or executors, or lower [spark] groups"
                )
            )
        self._waiting_said = waiting

    def _look_failed(self, event: LookFailed) -> None:
        self._looking = False  # The log is away, and the players say so; the next tick looks again.

    def _trimmed(self, event: TrimTried) -> None:
        self._trimming = False

    # --- Time ---

    def _ticked(self, event: TimePassed) -> None:
        self.now = max(self.now, event.now)
        if self.stopping:
            self._hurry()
            return
        if self.phase is Phase.PLAYING:
            self._submit_due()
        if self.now >= self._look_at:
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
        self._go_on()

    def _spark_ended(self, event: SparkEnded) -> None:
        self.lost = event.reason
        self._end()  # Its tasks die with it, or stop by themselves; there is nothing to wait for.

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
            self._effects.extend(CancelJob(job) for job in self.jobs().values())

    def _end(self) -> None:
        self.phase = Phase.ENDED
        self.ended = self.ended or STOPPED
        self._effects.append(End(self.ended))


_HANDLERS: dict[type, Callable[[Machine, Any], None]] = {
    Heard: Machine._heard,
    Activated: Machine._activated,
    JobEnded: Machine._job_ended,
    Looked: Machine._looked,
    LookFailed: Machine._look_failed,
    TrimTried: Machine._trimmed,
    RetryAsked: Machine._retry_requested,
    SuspendAsked: Machine._suspend_requested,
    StopAsked: Machine._stop_requested,
    SparkEnded: Machine._spark_ended,
    TimePassed: Machine._ticked,
}

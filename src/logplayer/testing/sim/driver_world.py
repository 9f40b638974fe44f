"""A world for the driver of resident players: Spark runs jobs and gives them up, and tasks obey, late or never.

The machine is the real one of ``spark/resident/machine.py``; Spark and the players are simulated. What happens:

* a heartbeat arrives at once, or after others, or after its job has ended; a cancelled or lost task sends its own still
* an executor dies with its tasks, or is cut off: then Spark gives the job up while the task plays on; others join
* a job ends by itself, fails, or another application takes its group over; the log's members change
* the log and Spark cannot be asked; somebody wants the application to stop

The checkers watch from outside:

one job         a group never has two jobs in Spark, nor do two plans run at once
old task        a task of an older job is asked to stop
trim            a trim names every member, and nothing that the newest player of a member has not reported
after the end   once it has ended, or is to stop, nothing is submitted
superseded      an application ends as superseded exactly if a newer player has taken one of its groups
stop            a stop ends, also if no task obeys
progress        once the faults stop, every group of an even plan is played
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from logplayer.player.ended import STOPPED, Ended, EndKind
from logplayer.spark.resident import events as e
from logplayer.spark.resident.groups import GroupPlan, deal
from logplayer.spark.resident.heartbeat import Beat
from logplayer.spark.resident.machine import CANCEL_MS, LEAVE_MS, Machine, Settings
from logplayer.testing.sim.violation import Violation

NUMBER = 5  # Of our application.
OLDER = Ended(EndKind.SUPERSEDED, 9, "an older one", application=NUMBER - 2)
NEWER = Ended(EndKind.SUPERSEDED, 9, "a newer one", application=NUMBER + 2)
UNKNOWN = Ended(EndKind.SUPERSEDED, 9, "trimmed")
DRAIN_MS = 100
NAMES = "abcdefgh"
HEAL_ROUNDS = 80


@dataclass(slots=True)
class SimTask:
    """The one task of a job."""

    job: int
    group: int
    plan: GroupPlan
    executor: str
    alive: bool = True
    ended: Ended | None = None  # How its player ended, if it has.


class DriverWorld:
    """One seed's run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.steps = self.faults = 0
        self.log: list[str] = []
        self.tasks: dict[int, SimTask] = {}  # By job.
        self.running: dict[int, int] = {}  # The job that Spark has of each group.
        self.late: list[tuple[int, Beat]] = []
        self.truth = dict.fromkeys(NAMES, 0)  # What each target has.
        self.reported: dict[str, int] = {}  # The newest that a current job reported of each member.
        self.executors = {"e0": 2, "e1": 2}
        self.looking = self.trimming = self.superseded = self.stopped = False
        self.ended: Ended | None = None
        self.now = 0
        self.control, self.members = 1, frozenset(NAMES[: self.rng.randint(1, 6)])
        groups = self.rng.choice((0, 0, 1, 2, 3))
        self.plan = deal(self.members, groups or self.rng.randint(1, 3))
        settings = Settings(groups, True, DRAIN_MS)
        self.machine = Machine(settings, self.plan, self.members, NUMBER, self.control, dict(self.executors))
        self._perform(self.machine.begin(0))

    def __str__(self) -> str:
        return f"members={len(self.members)} groups={self.plan.groups} executors={len(self.executors)}"

    def state_digest(self) -> str:
        """The same for every run of a seed."""
        return f"{crc32(repr((self.log, self.truth, self.ended)).encode()):08x}"

    def run(self) -> None:
        """The phase of faults, then a stop, or a world in which nothing goes wrong any more."""
        acts = [self._beat, self._beat, self._beat, self._tick, self._tick, self._deliver, self._finish, self._look]
        faults = [self._fail, self._lose_executor, self._join, self._take_over, self._change_members, self._spare]
        for _ in range(self.rng.randint(10, 120)):
            fault = self.rng.random() < 0.25
            self.faults += fault
            self._act(self.rng.choice(faults if fault else acts))
            if self.ended is not None:
                break
        if self.ended is None and self.rng.random() < 0.3:
            self._stop()
        elif self.ended is None:
            self._heal()
        if self.ended is not None and not self.stopped and self.ended.superseded != self.superseded:
            raise Violation("superseded", f"ended with {self.ended}, and a newer player came: {self.superseded}")

    def _act(self, act: Any, *arguments: Any) -> None:
        self.steps += 1
        self.log.append(act.__name__)
        act(*arguments)

    # --- What the machine asks for --------------------------------------------------------------------------

    def _tell(self, event: e.DriverEvent) -> list[e.DriverEffect]:
        effects = self.machine.step(event)
        self._perform(effects)
        if self.ended is None and self.machine.jobs() != self.running:
            raise Violation("one job", f"it believes in {self.machine.jobs()}, Spark has {self.running}")
        return effects

    def _perform(self, effects: Iterable[e.DriverEffect]) -> None:
        for effect in effects:
            if self.ended is not None and not isinstance(effect, e.Answer):
                raise Violation("after the end", str(effect))
            match effect:
                case e.SubmitJob(job, group, plan):
                    self._submit(job, group, plan, effect.executor)
                case e.CancelJob(job):
                    self.tasks[job].alive = False
                case e.TrimForMembers(indexes):
                    self.trimming = True
                    self._check_trim(dict(indexes))
                case e.Look():
                    self.looking = True
                case e.End(ended):
                    self.ended = ended

    def _submit(self, job: int, group: int, plan: GroupPlan, wish: str) -> None:
        if group in self.running or (self.running and plan != self.plan):
            raise Violation("one job", f"job {job} of group {group} beside {self.running}")
        if self.stopped or self.superseded:
            raise Violation("after the end", f"job {job} was submitted after a stop")
        self.running[group], self.plan = job, plan
        where = wish if wish in self.executors else self.rng.choice(sorted(self.executors))
        self.tasks[job] = SimTask(job, group, plan, where)

    def _check_trim(self, indexes: dict[str, int]) -> None:
        if indexes.keys() != self.machine.members:
            raise Violation("trim", f"for {sorted(indexes)}, and the members are {sorted(self.machine.members)}")
        for name, index in indexes.items():
            if index > self.reported.get(name, -1):
                raise Violation("trim", f"up to {index}, and {name} was heard with {self.reported.get(name)}")

    # --- What happens ---------------------------------------------------------------------------------------

    def _some_task(self) -> SimTask | None:
        there = [task for task in self.tasks.values() if task.alive or task.ended is not None]
        return self.rng.choice(there) if there else None

    def _beat(self, task: SimTask | None = None, late: float = 0.3) -> None:
        task = task or self._some_task()
        if task is None:
            return
        rows = []
        for name in sorted(self.machine.members) if task.ended is None else ():
            if task.plan.group_of(name) == task.group:
                self.truth[name] += self.rng.randint(0, 3)
                rows.append({"target": name, "index": self.truth[name]})
        beat = Beat(task.group, "w", {"targets": rows} if rows else None, task.ended)
        if self.rng.random() < late:
            self.late.append((task.job, beat))
        else:
            self._hear(task.job, beat)

    def _deliver(self) -> None:
        if self.late:
            self._hear(*self.late.pop(self.rng.randrange(len(self.late))))

    def _hear(self, job: int, beat: Beat) -> None:
        current = self.running.get(beat.group) == job
        if current and self.ended is None:
            self.superseded = self.superseded or beat.ended in (NEWER, UNKNOWN)
            for row in beat.status["targets"] if beat.status is not None else ():
                self.reported[row["target"]] = row["index"]
        answers = [effect for effect in self._tell(e.Heard(job, beat)) if isinstance(effect, e.Answer)]
        if len(answers) != 1:
            raise Violation("old task", f"{len(answers)} answers to one heartbeat")
        if not current and not answers[0].stop:
            raise Violation("old task", f"the task of job {job} may play on beside {self.running}")
        task = self.tasks[job]
        if answers[0].stop and task.alive and task.ended is None:
            task.ended, task.alive = STOPPED, False

    def _finish(self) -> None:
        """A task's job ends after its player has."""
        for group, job in list(self.running.items()):
            task = self.tasks[job]
            if task.ended is not None or not task.alive:
                self._end_job(group, "" if task.ended is not None else "cancelled")
                return

    def _fail(self) -> None:
        if self.running:
            group = self.rng.choice(sorted(self.running))
            self.tasks[self.running[group]].alive = self.rng.random() < 0.3  # Cut off, it plays on.
            self._end_job(group, "failed")

    def _end_job(self, group: int, error: str) -> None:
        job = self.running.pop(group)
        ended = None if error else self.tasks[job].ended
        self.superseded = self.superseded or ended in (NEWER, UNKNOWN)
        self._tell(e.JobEnded(job, ended, error))

    def _lose_executor(self) -> None:
        if len(self.executors) > 1:
            lost = self.rng.choice(sorted(self.executors))
            del self.executors[lost]
            for group, job in list(self.running.items()):
                if self.tasks[job].executor == lost:
                    self.tasks[job].alive = False
                    self._end_job(group, f"executor {lost} is lost")

    def _join(self) -> None:
        self.executors[f"e{self.steps}"] = self.rng.randint(1, 3)

    def _take_over(self) -> None:
        task = self._some_task()
        if task is not None and task.alive and task.ended is None:
            task.ended, task.alive = self.rng.choice((OLDER, OLDER, NEWER, UNKNOWN)), False

    def _change_members(self) -> None:
        names = self.rng.sample(NAMES, self.rng.randint(1, len(NAMES)))
        self.members, self.control = frozenset(names), self.control + 1

    def _spare(self) -> None:
        """The log is away, or an operator wants a target to be tried again."""
        if self.looking and self.rng.random() < 0.5:
            self.looking = False
            self._tell(e.LookFailed())
        else:
            self._tell(e.RetryAsked(self.rng.choice(NAMES)))

    def _look(self) -> None:
        if self.trimming:
            self.trimming = False
            self._tell(e.TrimTried())
        if self.looking:
            self.looking = False
            self.reported = {name: index for name, index in self.reported.items() if name in self.members}
            self._tell(e.Looked(self.control, self.members, dict(self.executors)))

    def _tick(self, ms: int = 0) -> None:
        self.now += ms or self.rng.choice((50, 200, 500, 5000))
        self._tell(e.TimePassed(self.now))

    # --- The end --------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        self.stopped = True
        self._tell(e.StopAsked())
        self._tick(DRAIN_MS + CANCEL_MS)
        self._tick(LEAVE_MS)
        if self.ended is None:
            raise Violation("stop", "it waits for tasks that do not obey")

    def _heal(self) -> None:
        self.executors["healed"] = len(NAMES)
        for _ in range(HEAL_ROUNDS):
            while self.late:
                self._deliver()
            for task in list(self.tasks.values()):
                if task.alive and self.ended is None:
                    self._beat(task, late=0.0)
            for _ in list(self.running):
                self._finish()
            self._look()
            self._tick(500)
            if self.ended is not None:
                return
        played = {task.group for task in self.tasks.values() if task.alive and task.plan == self.plan}
        if played != set(range(self.plan.groups)) or self.plan.uneven(self.members):
            raise Violation("progress", f"groups {sorted(played)} of {self.plan} are played")

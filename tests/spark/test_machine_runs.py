"""What the driver of resident players decides: random runs against a Spark of our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from logplayer.player.ended import STOPPED, Ended
from logplayer.spark.resident.events import (
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
    RetryAsked,
    StopAsked,
    SubmitJob,
    TimePassed,
    TrimForMembers,
    TrimTried,
)
from logplayer.spark.resident.groups import deal
from logplayer.spark.resident.machine import CANCEL_MS, LEAVE_MS, Machine, Settings
from tests.spark.test_machine import DRAIN_MS, FOUR, MINE, NEWER, OLDER, UNKNOWN, beat


class FakeSpark:
    """Runs jobs whose tasks beat, obey, die or hang, and checks from outside what the driver must keep."""

    def __init__(self, machine: Machine, effects: Iterable[DriverEffect]) -> None:
        self.machine = machine
        self.running: dict[int, int] = {}  # The job that Spark has of each group.
        self.plan = machine.plan
        self.alive: set[int] = set()
        self.ends: dict[int, Ended] = {}
        self.untold: dict[int, Ended] = {}
        self.truth = dict.fromkeys("abcdefgh", 0)  # What each target has.
        self.last_heard: dict[str, int] = {}
        self.members, self.control = machine.members, machine.control
        self.ended: Ended | None = None
        self.superseded = False
        self.now = 0
        self.looking = False
        self.perform(effects)

    def tell(self, event: DriverEvent) -> None:
        self.perform(self.machine.step(event))

    def perform(self, effects: Iterable[DriverEffect]) -> None:
        for effect in effects:
            assert self.ended is None or isinstance(effect, Answer), f"{effect} after the end"
            match effect:
                case SubmitJob(job, group, plan):
                    assert group not in self.running, "two jobs of one group at once"
                    assert not self.running or plan == self.plan, "two plans at once"
                    assert not self.machine.stopping, "a job after a stop"
                    self.running[group], self.plan = job, plan
                    self.alive.add(group)
                    self.ends.pop(group, None)
                    self.untold.pop(group, None)
                case CancelJob(job):
                    assert job in self.running.values()
                    self.alive -= {group for group, its in self.running.items() if its == job}
                case TrimForMembers(indexes):
                    self._check_trim(indexes)
                case Look():
                    assert not self.looking
                    self.looking = True
                case End(ended):
                    self.ended = ended

    def _check_trim(self, indexes: Mapping[str, int]) -> None:
        assert set(indexes) == set(self.machine.members)
        for name, index in indexes.items():
            assert index <= self.truth[name], f"{name} was not heard to have {index}"
            assert self.last_heard.get(name) == index

    def beat(self, group: int, advance: int) -> None:
        if group in self.untold:
            ended = self.untold.pop(group)
            self.superseded = self.superseded or ended in (NEWER, UNKNOWN)
            self.tell(Heard(self.running[group], beat(group, ended)))
        if group not in self.alive:
            return
        rows = {}
        for name in self.machine.members:
            if self.plan.group_of(name) == group:
                self.truth[name] += advance
                rows[name] = self.last_heard[name] = self.truth[name]
        for effect in self.machine.step(Heard(self.running[group], beat(group, None, **rows))):
            if isinstance(effect, Answer):
                if effect.stop:
                    self.alive.discard(group)
                    self.ends[group] = STOPPED
            else:
                self.perform([effect])

    def take_over(self, group: int, by: Ended, says: bool) -> None:
        """Another application takes the group; its last heartbeat comes at once, or late, or never."""
        if group not in self.alive:
            return
        self.alive.discard(group)
        self.ends[group] = by
        if says:
            self.superseded = self.superseded or by in (NEWER, UNKNOWN)
            self.tell(Heard(self.running[group], beat(group, by)))
        else:
            self.untold[group] = by  # The task says it again, unless the job ends before.

    def finish(self, group: int, failed: bool) -> None:
        if group not in self.running or (group in self.alive and not failed):
            return
        job = self.running.pop(group)
        self.alive.discard(group)
        self.untold.pop(group, None)
        if failed or group not in self.ends:
            self.tell(JobEnded(job, error="failed, or cancelled"))
        else:
            self.superseded = self.superseded or self.ends[group] in (NEWER, UNKNOWN)
            self.tell(JobEnded(job, self.ends[group]))

    def look(self, works: bool) -> None:
        if self.looking:
            self.looking = False
            if works:  # What left the log and comes back is not heard of until it says so.
                self.last_heard = {name: index for name, index in self.last_heard.items() if name in self.members}
            self.tell(Looked(self.control, self.members, FOUR) if works else LookFailed())

    def change_members(self, names: frozenset[str]) -> None:
        self.members, self.control = names, self.control + 1

    def tick(self, ms: int) -> None:
        self.now += ms
        self.tell(TimePassed(self.now))


STEPS = st.one_of(
    st.tuples(st.just("beat"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("take_over"), st.integers(0, 3), st.sampled_from([OLDER, NEWER, UNKNOWN]), st.booleans()),
    st.tuples(st.just("finish"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("look"), st.booleans()),
    st.tuples(st.just("change_members"), st.frozensets(st.sampled_from("abcdefgh"), min_size=1)),
    st.tuples(st.just("tick"), st.sampled_from([50, 200, 500, 5000])),
    st.tuples(st.just("tell"), st.sampled_from([TrimTried(), RetryAsked("a")])),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=60), st.booleans())
def test_random_runs(steps: list[tuple[Any, ...]], stops: bool) -> None:
    machine = Machine(Settings(0, True, DRAIN_MS), deal("abcd", 2), frozenset("abcd"), MINE, control=1)
    spark = FakeSpark(machine, machine.begin(0))
    for name, *arguments in steps:
        getattr(spark, name)(*arguments)
        assert machine.jobs() == spark.running or spark.ended is not None
    if stops:
        spark.tell(StopAsked())
        spark.tick(DRAIN_MS + CANCEL_MS)  # No task of ours ever answers.
        spark.tick(LEAVE_MS)
        assert spark.ended is not None
    elif spark.ended is None:
        _heal(spark)
    if spark.ended is not None:
        assert spark.ended.superseded == spark.superseded or stops


def _heal(spark: FakeSpark) -> None:
    """Nothing goes wrong any more: then every group of the newest plan is played, or the application has ended."""
    for _ in range(60):
        for group in range(4):
            spark.beat(group, 1)
            spark.finish(group, failed=False)
        spark.look(works=True)
        spark.tick(500)
        if spark.ended is not None:
            return
    assert spark.alive == set(range(spark.plan.groups))
    assert {spark.plan.group_of(name) for name in spark.members} == set(range(spark.plan.groups))
    assert not spark.machine.plan.uneven(spark.members)

"""What the driver of resident players decides: each transition, and random runs against a Spark of our own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logplayer.player.ended import STOPPED, Ended, EndKind
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
from logplayer.spark.resident.groups import deal
from logplayer.spark.resident.heartbeat import Beat
from logplayer.spark.resident.machine import CANCEL_MS, LEAVE_MS, LOOK_MS, PAUSES_MS, ROOM_MS, Machine, Phase, Settings

MINE = 5
OLDER = Ended(EndKind.SUPERSEDED, 9, "an older one", application=3)
NEWER = Ended(EndKind.SUPERSEDED, 9, "a newer one", application=7)
UNKNOWN = Ended(EndKind.SUPERSEDED, 9, "trimmed")
DRAIN_MS = 100


def made(names: str = "abcd", groups: int = 2, **other: Any) -> Machine:
    machine = Machine(
        Settings(MINE, groups, drain_ms_max=DRAIN_MS, **other), deal(names, groups), frozenset(names), control=1
    )
    assert machine.begin(0) == [SubmitJob(1, machine.plan)]
    return machine


def beat(group: int = 0, ended: Ended | None = None, **indexes: int) -> Beat:
    rows = [{"target": name, "index": index} for name, index in indexes.items()]
    return Beat(group, "w", {"targets": rows} if rows else None, ended)


def heard(machine: Machine, group: int = 0, ended: Ended | None = None, **indexes: int) -> Answer:
    *_, answer = machine.step(Heard(machine.job, beat(group, ended, **indexes)))
    assert isinstance(answer, Answer)
    return answer


def test_a_heartbeat_is_answered_and_a_retry_goes_to_its_group_once() -> None:
    machine = made()
    assert heard(machine) == Answer(stop=False)
    assert machine.step(RetryAsked("b")) == []
    assert heard(machine, 0) == Answer(stop=False)
    assert heard(machine, 1) == Answer(stop=False, retry=("b",))
    assert heard(machine, 1) == Answer(stop=False)


def test_a_task_of_another_job_is_told_to_stop_and_nothing_it_says_counts() -> None:
    machine = made()
    assert machine.step(Heard(0, beat(0, NEWER, a=7))) == [Answer(stop=True)]
    assert (machine.indexes, machine.stopping) == ({}, False)


def test_a_job_that_drained_by_itself_is_submitted_again_at_once() -> None:
    machine = made()
    assert machine.step(JobEnded(1, (STOPPED, STOPPED))) == [SubmitJob(2, machine.plan)]


def test_the_end_of_a_job_that_is_over_already_changes_nothing() -> None:
    machine = made()
    machine.step(JobEnded(1, (STOPPED,)))
    assert machine.step(JobEnded(1, (STOPPED,))) == []
    assert machine.job == 2


def test_a_job_that_spark_gave_up_starts_again_after_ever_longer_pauses() -> None:
    machine, now = made(), 0
    for pause in (*PAUSES_MS[1:], PAUSES_MS[-1]):
        [note] = machine.step(JobEnded(machine.job, error="no"))
        assert isinstance(note, Note)
        assert not [e for e in machine.step(TimePassed(now + pause - 1)) if isinstance(e, SubmitJob)]
        now += pause
        assert [e for e in machine.step(TimePassed(now)) if isinstance(e, SubmitJob)]


def test_a_steady_job_that_fails_is_not_kept_waiting() -> None:
    machine = made()
    machine.step(TimePassed(100_000))
    machine.step(JobEnded(1, error="no"))
    assert SubmitJob(2, machine.plan) in machine.step(TimePassed(100_000 + PAUSES_MS[0]))


def test_a_group_that_an_older_application_took_is_taken_back() -> None:
    machine = made()
    assert heard(machine, 0, OLDER) == Answer(stop=True)
    assert machine.step(JobEnded(1, (OLDER, STOPPED))) == [SubmitJob(2, machine.plan)]
    assert heard(machine) == Answer(stop=False)


@pytest.mark.parametrize("by", [NEWER, UNKNOWN])
@pytest.mark.parametrize("told", ["by a heartbeat", "by the job's end"])
def test_a_newer_application_ends_this_one(by: Ended, told: str) -> None:
    machine = made()
    if told == "by a heartbeat":
        assert heard(machine, 0, by) == Answer(stop=True)
        assert heard(machine, 1) == Answer(stop=True)
    assert machine.step(JobEnded(1, (by, STOPPED))) == [End(by)]
    assert machine.step(TimePassed(9)) == []
    assert heard(machine) == Answer(stop=True)


def test_a_group_that_ended_by_itself_is_played_again() -> None:
    machine = made()
    assert heard(machine, 0, STOPPED) == Answer(stop=True)
    assert heard(machine, 1) == Answer(stop=True)
    assert machine.step(JobEnded(1, (STOPPED, STOPPED))) == [SubmitJob(2, machine.plan)]


def test_a_stop_drains_and_ends_with_the_job() -> None:
    machine = made()
    assert machine.step(StopAsked()) == []
    assert heard(machine) == Answer(stop=True)
    assert machine.step(JobEnded(1, (STOPPED, STOPPED))) == [End(STOPPED)]


def test_a_stop_cancels_a_job_that_does_not_end_and_leaves_in_the_end() -> None:
    machine = made()
    machine.step(StopAsked())
    machine.step(StopAsked())
    assert machine.step(TimePassed(DRAIN_MS + CANCEL_MS - 1)) == []
    assert machine.step(TimePassed(DRAIN_MS + CANCEL_MS)) == [CancelJob(1)]
    assert machine.step(TimePassed(DRAIN_MS + CANCEL_MS + 1)) == []
    assert machine.step(TimePassed(DRAIN_MS + CANCEL_MS + LEAVE_MS)) == [End(STOPPED)]
    assert machine.step(JobEnded(1, error="cancelled")) == []


def test_a_cancelled_job_that_ends_in_error_ends_the_application() -> None:
    machine = made()
    machine.step(StopAsked())
    machine.step(TimePassed(DRAIN_MS + CANCEL_MS))
    assert machine.step(JobEnded(1, error="cancelled")) == [End(STOPPED)]


def test_a_stop_between_two_jobs_ends_at_once() -> None:
    machine = made()
    machine.step(JobEnded(1, error="no"))
    assert machine.step(StopAsked()) == [End(STOPPED)]


def test_superseded_wins_over_a_stop() -> None:
    machine = made()
    machine.step(StopAsked())
    assert machine.step(JobEnded(1, (NEWER, STOPPED))) == [End(NEWER)]


def test_members_are_looked_at_one_look_at_a_time() -> None:
    machine = made()
    assert machine.step(TimePassed(LOOK_MS)) == [Look()]
    assert machine.step(TimePassed(2 * LOOK_MS)) == []
    assert machine.step(LookFailed()) == []
    assert machine.step(TimePassed(3 * LOOK_MS)) == [Look()]


def test_uneven_groups_are_drained_and_dealt_out() -> None:
    machine = made("ab")
    machine.step(Looked(2, frozenset("abcdef"), 4))
    assert heard(machine) == Answer(stop=True)
    assert machine.step(JobEnded(1, (STOPPED, STOPPED))) == [Look()]
    assert machine.step(Looked(2, frozenset("abcdef"), 4)) == [SubmitJob(2, deal("abcdef", 2))]
    assert heard(machine) == Answer(stop=False)


def test_even_groups_play_on_and_older_news_is_dropped() -> None:
    machine = made()
    machine.step(Looked(3, frozenset("abcd"), 4))
    machine.step(Looked(2, frozenset("a"), 4))
    assert machine.members == frozenset("abcd")
    assert heard(machine) == Answer(stop=False)


def test_members_that_change_during_a_pause_are_dealt_out_later() -> None:
    machine = made("ab")
    machine.step(JobEnded(1, error="no"))
    machine.step(Looked(2, frozenset("abcdef"), 4))
    machine.step(TimePassed(PAUSES_MS[-1]))
    machine.step(Looked(2, frozenset("abcdef"), 4))
    assert heard(machine) == Answer(stop=True)


def test_a_job_that_fails_while_it_drains_does_not_forget_the_deal() -> None:
    machine = made("ab")
    machine.step(Looked(2, frozenset("abcdef"), 4))
    machine.step(JobEnded(1, error="no"))
    machine.step(TimePassed(PAUSES_MS[-1]))
    machine.step(Looked(2, frozenset("abcdef"), 4))
    assert heard(machine) == Answer(stop=True)


def test_without_slots_or_members_the_plan_stays() -> None:
    for members, slots in (("abcdef", 1), ("", 4)):
        machine = made("ab")
        machine.step(Looked(2, frozenset("abcdef"), 4))
        machine.step(JobEnded(1, (STOPPED, STOPPED)))
        [note] = machine.step(Looked(3, frozenset(members), slots))
        assert isinstance(note, Note)
        assert SubmitJob(2, deal("ab", 2)) in machine.step(TimePassed(PAUSES_MS[-1]))


def test_a_cluster_may_take_a_while_to_have_slots() -> None:
    machine = made("ab", fixed_slots=False)
    machine.step(Looked(2, frozenset("abcdef"), 4))
    machine.step(JobEnded(1, (STOPPED, STOPPED)))
    assert machine.step(Looked(2, frozenset("abcdef"), 1)) == []
    assert machine.step(TimePassed(LOOK_MS)) == [Look()]
    machine.step(TimePassed(ROOM_MS))
    [note] = machine.step(Looked(2, frozenset("abcdef"), 1))
    assert isinstance(note, Note)


def test_a_trim_waits_for_every_member() -> None:
    machine = made(trims=True)
    heard(machine, 0, a=5, c=6)
    assert machine.step(TimePassed(LOOK_MS)) == [Look()]
    machine.step(LookFailed())
    heard(machine, 1, b=4, d=-1)
    assert machine.step(TimePassed(2 * LOOK_MS)) == [Look()]
    machine.step(LookFailed())
    heard(machine, 1, b=4, d=9)
    indexes = {"a": 5, "b": 4, "c": 6, "d": 9}
    assert machine.step(TimePassed(3 * LOOK_MS)) == [Look(), TrimForMembers(indexes)]
    machine.step(LookFailed())
    assert machine.step(TimePassed(4 * LOOK_MS)) == [Look()]  # The first trim is not done.
    machine.step(LookFailed())
    machine.step(TrimTried())
    assert machine.step(TimePassed(5 * LOOK_MS)) == [Look(), TrimForMembers(indexes)]


def test_a_member_that_left_and_came_back_counts_as_unheard() -> None:
    machine = made(trims=True)
    heard(machine, 0, a=5, c=6)
    heard(machine, 1, b=4, d=9)
    machine.step(Looked(2, frozenset("abc"), 2))
    machine.step(Looked(3, frozenset("abcd"), 2))
    assert machine.step(TimePassed(LOOK_MS)) == [Look()]


def test_one_group_trims_by_itself() -> None:
    machine = made("ab", groups=1, trims=True)
    heard(machine, 0, a=5, b=6)
    assert machine.step(TimePassed(LOOK_MS)) == [Look()]


# --- Random runs ---------------------------------------------------------------------------------------------


class FakeSpark:
    """Runs jobs whose tasks beat, obey, die or hang, and checks from outside what the driver must keep."""

    def __init__(self, machine: Machine, effects: Iterable[Effect]) -> None:
        self.machine = machine
        self.running = 0  # The job that Spark has.
        self.plan = machine.plan
        self.alive: set[int] = set()
        self.told: dict[int, Ended] = {}
        self.untold: dict[int, Ended] = {}
        self.truth = dict.fromkeys("abcdefgh", 0)  # What each target has.
        self.last_heard: dict[str, int] = {}
        self.members, self.control = machine.members, machine.control
        self.ended: Ended | None = None
        self.superseded = False
        self.now = 0
        self.looking = False
        self.perform(effects)

    def tell(self, event: Event) -> None:
        self.perform(self.machine.step(event))

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            assert self.ended is None or isinstance(effect, Answer), f"{effect} after the end"
            match effect:
                case SubmitJob(job, plan):
                    assert not self.running, "two jobs at once"
                    assert not self.machine.stopping, "a job after a stop"
                    self.running, self.plan = job, plan
                    self.alive, self.told, self.untold = set(range(plan.groups)), {}, {}
                case CancelJob(job):
                    assert job == self.running
                    self.alive = set()
                case TrimForMembers(indexes):
                    self._check_trim(indexes)
                case Look():
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
            self.tell(Heard(self.running, beat(group, self.untold.pop(group))))
        if group not in self.alive:
            return
        rows = {}
        for name in self.machine.members:
            if self.plan.group_of(name) == group:
                self.truth[name] += advance
                rows[name] = self.last_heard[name] = self.truth[name]
        for effect in self.machine.step(Heard(self.running, beat(group, None, **rows))):
            if isinstance(effect, Answer):
                if effect.stop:
                    self.alive.discard(group)
                    self.told[group] = STOPPED
            else:
                self.perform([effect])

    def take_over(self, group: int, by: Ended, says: bool) -> None:
        """Another application takes the group; its last heartbeat comes at once, or late, or never."""
        if group not in self.alive:
            return
        self.alive.discard(group)
        self.told[group] = by
        self.superseded = self.superseded or by in (NEWER, UNKNOWN)
        if says:
            self.tell(Heard(self.running, beat(group, by)))
        else:
            self.untold[group] = by  # The task says it again, unless the job ends before.

    def finish(self, failed: bool) -> None:
        if not self.running or (self.alive and not failed):
            return
        job, self.running, self.alive = self.running, 0, set()
        if failed:
            self.superseded = self.superseded and self.machine.ended is not None  # What nobody told is not known.
            self.tell(JobEnded(job, error="failed"))
        else:
            self.tell(JobEnded(job, tuple(self.told.values())))

    def look(self, works: bool) -> None:
        if self.looking:
            self.looking = False
            if works:  # What left the log and comes back is not heard of until it says so.
                self.last_heard = {name: index for name, index in self.last_heard.items() if name in self.members}
            self.tell(Looked(self.control, self.members, 4) if works else LookFailed())

    def change_members(self, names: frozenset[str]) -> None:
        self.members, self.control = names, self.control + 1

    def tick(self, ms: int) -> None:
        self.now += ms
        self.tell(TimePassed(self.now))


STEPS = st.one_of(
    st.tuples(st.just("beat"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("take_over"), st.integers(0, 3), st.sampled_from([OLDER, NEWER, UNKNOWN]), st.booleans()),
    st.tuples(st.just("finish"), st.booleans()),
    st.tuples(st.just("look"), st.booleans()),
    st.tuples(st.just("change_members"), st.frozensets(st.sampled_from("abcdefgh"), min_size=1)),
    st.tuples(st.just("tick"), st.sampled_from([50, 200, 500, 5000])),
    st.tuples(st.just("tell"), st.sampled_from([TrimTried(), RetryAsked("a")])),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=60), st.booleans())
def test_random_runs(steps: list[tuple[Any, ...]], stops: bool) -> None:
    machine = Machine(Settings(MINE, 0, True, DRAIN_MS), deal("abcd", 2), frozenset("abcd"), control=1)
    spark = FakeSpark(machine, machine.begin(0))
    for name, *arguments in steps:
        getattr(spark, name)(*arguments)
        assert (machine.phase is Phase.RUNNING) == bool(spark.running) or spark.ended is not None
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
        spark.finish(failed=False)
        spark.look(works=True)
        spark.tick(500)
        if spark.ended is not None:
            return
    assert spark.alive == set(range(spark.plan.groups))
    assert {spark.plan.group_of(name) for name in spark.members} == set(range(spark.plan.groups))
    assert not spark.machine.plan.uneven(spark.members)

"""What the driver of resident players decides: each transition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from logplayer.player.ended import STOPPED, Ended, EndKind
from logplayer.spark.resident.events import (
    Activated,
    Answer,
    CancelJob,
    DriverEffect,
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
from logplayer.spark.resident.group_run import SILENT_MS, GroupState
from logplayer.spark.resident.groups import deal
from logplayer.spark.resident.heartbeat import Beat
from logplayer.spark.resident.machine import CANCEL_MS, LEAVE_MS, LOOK_MS, PAUSES_MS, SLOT_MS, Machine, Phase, Settings

MINE = 5
OLDER = Ended(EndKind.SUPERSEDED, 9, "an older one", application=3)
NEWER = Ended(EndKind.SUPERSEDED, 9, "a newer one", application=7)
UNKNOWN = Ended(EndKind.SUPERSEDED, 9, "trimmed")
DRAIN_MS = 100
FOUR = {"one": 4}


def made(names: str = "abcd", groups: int = 2, application: int = MINE, **other: Any) -> Machine:
    settings = Settings(groups, drain_ms_max=DRAIN_MS, **other)
    machine = Machine(settings, deal(names, groups), frozenset(names), application, control=1)
    assert machine.begin(0) == [SubmitJob(n + 1, n, machine.plan) for n in range(groups)]
    return machine


def beat(group: int = 0, ended: Ended | None = None, **indexes: int) -> Beat:
    rows = [{"target": name, "index": index} for name, index in indexes.items()]
    return Beat(group, "w", {"targets": rows} if rows else None, ended)


def heard(machine: Machine, group: int = 0, ended: Ended | None = None, **indexes: int) -> Answer:
    *_, answer = machine.step(Heard(machine.jobs().get(group, 0), beat(group, ended, **indexes)))
    assert isinstance(answer, Answer)
    return replace(answer, application=0)


def submitted(effects: Iterable[DriverEffect]) -> list[tuple[int, int]]:
    """(job, group) of each job that is submitted."""
    return [(effect.job, effect.group) for effect in effects if isinstance(effect, SubmitJob)]


def test_a_heartbeat_is_answered_and_a_retry_goes_to_its_group_once() -> None:
    machine = made()
    assert heard(machine) == Answer(stop=False)
    assert machine.step(RetryAsked("b")) == []
    assert heard(machine, 0) == Answer(stop=False)
    assert heard(machine, 1) == Answer(stop=False, retry=("b",))
    assert heard(machine, 1) == Answer(stop=False)


def test_what_an_operator_suspends_is_in_every_answer_until_it_is_resumed() -> None:
    machine = made()
    assert machine.step(SuspendAsked("b")) == []
    assert heard(machine, 0) == Answer(stop=False)
    for _ in range(2):  # An answer may be lost, and a new worker has not heard the earlier ones.
        assert heard(machine, 1) == Answer(stop=False, hold=("b",))
    machine.step(JobEnded(2, error="lost"))
    machine.step(TimePassed(PAUSES_MS[-1]))
    assert heard(machine, 1) == Answer(stop=False, hold=("b",))
    machine.step(RetryAsked("b"))
    assert heard(machine, 1) == Answer(stop=False, retry=("b",))
    machine.step(SuspendAsked("b"))
    machine.step(Looked(2, frozenset("acd"), FOUR))
    assert machine.held == set()  # One that comes back under its name is not suspended.


def test_a_task_of_another_job_is_told_to_stop_and_nothing_it_says_counts() -> None:
    machine = made()
    assert machine.step(Heard(0, beat(0, NEWER, a=7))) == [Answer(stop=True)]
    assert machine.step(Heard(2, beat(0, NEWER, a=7))) == [Answer(stop=True)]  # The other group's job.
    assert (machine.indexes, machine.stopping) == ({}, False)


def test_a_job_that_ended_by_itself_is_submitted_again_at_once() -> None:
    machine = made()
    assert machine.step(JobEnded(1, STOPPED)) == [SubmitJob(3, 0, machine.plan)]


def test_the_end_of_a_job_that_is_over_already_changes_nothing() -> None:
    machine = made()
    machine.step(JobEnded(1, STOPPED))
    assert machine.step(JobEnded(1, STOPPED)) == []
    assert machine.jobs() == {0: 3, 1: 2}


def test_a_job_that_spark_gave_up_starts_again_after_ever_longer_pauses() -> None:
    machine, now = made(), 0
    for pause in (*PAUSES_MS[1:], PAUSES_MS[-1]):
        [note] = machine.step(JobEnded(machine.jobs()[0], error="no"))
        assert isinstance(note, Note)
        assert not submitted(machine.step(TimePassed(now + pause - 1)))
        now += pause
        assert submitted(machine.step(TimePassed(now))) == [(machine.job, 0)]


def test_a_steady_job_that_fails_is_not_kept_waiting() -> None:
    machine = made()
    machine.step(TimePassed(100_000))
    machine.step(JobEnded(1, error="no"))
    assert submitted(machine.step(TimePassed(100_000 + PAUSES_MS[0]))) == [(3, 0)]


def test_the_failures_of_one_group_leave_the_others_alone() -> None:
    machine = made()
    for nth in range(20):
        machine.step(JobEnded(machine.jobs()[0], error="no"))
        assert heard(machine, 1, b=nth, d=nth) == Answer(stop=False)
        machine.step(TimePassed((nth + 1) * PAUSES_MS[-1]))
    assert machine.jobs()[1] == 2
    machine.step(JobEnded(2, error="no"))  # Its own first failure, after a long steady run.
    assert submitted(machine.step(TimePassed(machine.now + PAUSES_MS[0])))[-1][1] == 1


def test_a_group_that_an_older_application_took_is_taken_back_and_no_other_is_touched() -> None:
    machine = made()
    assert heard(machine, 0, OLDER) == Answer(stop=True)
    assert heard(machine, 1) == Answer(stop=False)
    assert machine.step(JobEnded(1, OLDER)) == [SubmitJob(3, 0, machine.plan)]
    assert heard(machine) == Answer(stop=False)


@pytest.mark.parametrize("by", [NEWER, UNKNOWN])
@pytest.mark.parametrize("told", ["by a heartbeat", "by the job's end"])
def test_a_newer_application_ends_this_one(by: Ended, told: str) -> None:
    machine = made()
    if told == "by a heartbeat":
        assert heard(machine, 0, by) == Answer(stop=True)
    assert machine.step(JobEnded(1, by)) == []
    assert heard(machine, 1) == Answer(stop=True)
    assert machine.step(JobEnded(2, STOPPED)) == [End(by)]
    assert machine.step(TimePassed(9)) == []
    assert heard(machine) == Answer(stop=True)


def test_a_group_that_ended_by_itself_is_played_again() -> None:
    machine = made()
    assert heard(machine, 0, STOPPED) == Answer(stop=True)
    assert machine.step(JobEnded(1, STOPPED)) == [SubmitJob(3, 0, machine.plan)]


def test_a_stop_drains_and_ends_with_the_last_job() -> None:
    machine = made()
    assert machine.step(StopAsked()) == []
    assert heard(machine) == Answer(stop=True)
    assert machine.step(JobEnded(1, STOPPED)) == []
    assert machine.step(JobEnded(2, STOPPED)) == [End(STOPPED)]


def test_a_stop_cancels_jobs_that_do_not_end_and_leaves_in_the_end() -> None:
    machine = made()
    machine.step(StopAsked())
    machine.step(StopAsked())
    assert machine.step(TimePassed(DRAIN_MS + CANCEL_MS - 1)) == []
    assert machine.step(TimePassed(DRAIN_MS + CANCEL_MS)) == [CancelJob(1), CancelJob(2)]
    assert machine.step(TimePassed(DRAIN_MS + CANCEL_MS + 1)) == []
    assert machine.step(TimePassed(DRAIN_MS + CANCEL_MS + LEAVE_MS)) == [End(STOPPED)]
    assert machine.step(JobEnded(1, error="cancelled")) == []


def test_cancelled_jobs_that_end_in_error_end_the_application() -> None:
    machine = made()
    machine.step(StopAsked())
    machine.step(TimePassed(DRAIN_MS + CANCEL_MS))
    machine.step(JobEnded(1, error="cancelled"))
    assert End(STOPPED) in machine.step(JobEnded(2, error="cancelled"))


def test_without_spark_there_is_nothing_to_wait_for() -> None:
    machine = made()
    machine.step(JobEnded(1, error="no JVM"))
    assert machine.step(SparkEnded("the JVM died")) == [End(STOPPED)]
    assert machine.lost == "the JVM died"
    assert machine.step(SparkEnded("again")) == []
    assert machine.lost == "the JVM died"


def test_a_spark_that_ends_after_the_application_is_not_the_reason() -> None:
    machine = made()
    machine.step(StopAsked())
    for job in list(machine.jobs().values()):
        machine.step(JobEnded(job, STOPPED))
    machine.step(SparkEnded("the JVM died"))
    assert (machine.phase, machine.lost) == (Phase.ENDED, None)


def test_a_stop_between_two_jobs_ends_at_once() -> None:
    machine = made("ab", 1)
    machine.step(JobEnded(1, error="no"))
    assert machine.step(StopAsked()) == [End(STOPPED)]


def test_superseded_wins_over_a_stop() -> None:
    machine = made("ab", 1)
    machine.step(StopAsked())
    assert machine.step(JobEnded(1, NEWER)) == [End(NEWER)]


def test_members_are_looked_at_one_look_at_a_time() -> None:
    machine = made()
    assert machine.step(TimePassed(LOOK_MS)) == [Look()]
    assert machine.step(TimePassed(2 * LOOK_MS)) == []
    assert machine.step(LookFailed()) == []
    assert machine.step(TimePassed(3 * LOOK_MS)) == [Look()]


def test_uneven_groups_are_drained_and_dealt_out_when_the_last_job_has_ended() -> None:
    machine, many = made("ab"), Looked(2, frozenset("abcdef"), {})
    machine.step(many)
    assert heard(machine, 0) == heard(machine, 1) == Answer(stop=True)
    assert machine.step(JobEnded(1, STOPPED)) == []
    assert machine.step(many) == []  # Group 1 still plays: its targets must not get a second player.
    assert machine.step(JobEnded(2, STOPPED)) == [Look()]
    plan = deal("abcdef", 2)
    assert machine.step(many) == [SubmitJob(3, 0, plan), SubmitJob(4, 1, plan)]
    assert heard(machine) == Answer(stop=False)


def test_even_groups_play_on_and_older_news_is_dropped() -> None:
    machine = made()
    machine.step(Looked(3, frozenset("abcd"), FOUR))
    machine.step(Looked(2, frozenset("a"), FOUR))
    assert machine.members == frozenset("abcd")
    assert heard(machine) == Answer(stop=False)


def test_members_that_change_while_every_job_pauses_are_dealt_out() -> None:
    machine = made("ab")
    machine.step(JobEnded(1, error="no"))
    machine.step(JobEnded(2, error="no"))
    assert machine.step(Looked(2, frozenset("abcdef"), FOUR)) == [Look()]
    assert submitted(machine.step(Looked(2, frozenset("abcdef"), FOUR))) == [(3, 0), (4, 1)]
    assert machine.plan == deal("abcdef", 2)


def test_a_job_that_fails_while_it_drains_does_not_forget_the_deal() -> None:
    machine = made("ab")
    machine.step(Looked(2, frozenset("abcdef"), FOUR))
    machine.step(JobEnded(1, error="no"))
    assert not submitted(machine.step(TimePassed(PAUSES_MS[-1])))
    machine.step(JobEnded(2, STOPPED))
    machine.step(Looked(2, frozenset("abcdef"), FOUR))
    assert machine.plan == deal("abcdef", 2)


def test_without_members_the_plan_stays() -> None:
    machine = made("ab")
    machine.step(Looked(2, frozenset("abcdef"), FOUR))
    machine.step(JobEnded(1, STOPPED))
    machine.step(JobEnded(2, STOPPED))
    [note] = machine.step(Looked(3, frozenset(), FOUR))
    assert isinstance(note, Note)
    assert submitted(machine.step(TimePassed(PAUSES_MS[-1]))) == [(3, 0), (4, 1)]
    assert machine.plan == deal("ab", 2)


def test_a_lost_executor_does_not_make_fewer_groups() -> None:
    names = frozenset(f"t{n}" for n in range(40))
    machine = Machine(Settings(), deal(names, 4), names, MINE, 1, FOUR)
    machine.begin(0)
    machine.step(Looked(2, names - {"t0"}, {}))
    assert machine.jobs() == {0: 1, 1: 2, 2: 3, 3: 4}
    assert heard(machine) == Answer(stop=False)
    machine.step(Looked(3, names | {f"u{n}" for n in range(20)}, {"one": 4, "two": 4}))
    assert machine.phase is Phase.DEALING


def test_with_dynamic_allocation_the_slots_come_for_the_groups() -> None:
    names = frozenset(f"t{n}" for n in range(10))
    machine = Machine(Settings(elastic=True), deal(names, 1), names, MINE, 1, {"one": 1})
    machine.begin(0)
    more = Looked(2, names | {f"u{n}" for n in range(20)}, {"one": 1})
    machine.step(more)
    machine.step(JobEnded(1, STOPPED))
    assert submitted(machine.step(more)) == [(2, 0), (3, 1), (4, 2)]


# --- Where groups are played ---


def test_groups_are_spread_over_the_executors_that_have_room() -> None:
    machine = Machine(Settings(4), deal("abcd", 4), frozenset("abcd"), MINE, 1, {"one": 2, "two": 1})
    wishes = [effect.executor for effect in machine.begin(0) if isinstance(effect, SubmitJob)]
    assert wishes == ["one", "two", "one", ""]
    machine.step(Looked(1, machine.members, {"one": 2, "three": 2}))
    [again] = machine.step(JobEnded(2, STOPPED))
    assert isinstance(again, SubmitJob)
    assert again.executor == "three"


def test_groups_that_wait_for_slots_are_named_once() -> None:
    machine = made("abcd", 4)
    heard(machine, 0)
    assert machine.step(Looked(1, machine.members, {"one": 1})) == []  # They may just be starting.
    machine.step(TimePassed(SLOT_MS))
    [note] = machine.step(Looked(1, machine.members, {"one": 1}))
    assert isinstance(note, Note)
    assert note.text.startswith("groups [1, 2, 3] wait for slots")
    assert "need 4 slots at once, and Spark's executors have 1" in note.text
    assert machine.step(Looked(1, machine.members, {"one": 1})) == []
    assert machine.step(Looked(1, machine.members, FOUR)) == []


# --- What is said of groups ---


def test_playing_is_said_when_every_player_has_taken_over_and_once() -> None:
    machine = made()
    assert SayPlaying() not in machine.step(Heard(1, beat(0)))  # The task runs; its player has not taken over.
    assert SayPlaying() not in machine.step(Heard(1, beat(0, a=1)))
    assert SayPlaying() not in machine.step(Heard(2, beat(1)))
    assert SayPlaying() in machine.step(Heard(2, beat(1, b=1)))
    assert SayPlaying() not in machine.step(Heard(2, beat(1, b=2)))


def test_the_states_of_a_group() -> None:
    machine = made("ab", 1)
    [run] = machine.runs
    states = [run.state(0)]
    heard(machine)
    states.append(run.state(0))
    heard(machine, a=1)
    states += [run.state(SILENT_MS), run.state(SILENT_MS + 1)]
    machine.step(TimePassed(SILENT_MS + 1))
    heard(machine)  # A new worker, whose player has not taken over.
    states.append(run.state(machine.now))
    machine.step(JobEnded(1, error="no"))
    states.append(run.state(machine.now))
    assert states == [
        GroupState.WAITING,
        GroupState.STARTING,
        GroupState.PLAYING,
        GroupState.SILENT,
        GroupState.STARTING,
        GroupState.PAUSING,
    ]


# --- Standing by ---


def test_a_standby_plays_when_it_has_its_number() -> None:
    machine = made(application=0)
    assert machine.step(Heard(1, beat(0))) == [Answer(stop=False, application=0)]
    machine.step(Activated(MINE))
    assert machine.step(Heard(1, beat(0))) == [Answer(stop=False, application=MINE)]
    assert heard(machine, 0, OLDER) == Answer(stop=True)
    assert not machine.stopping


# --- Trim ---


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
    machine.step(Looked(2, frozenset("abc"), FOUR))
    machine.step(Looked(3, frozenset("abcd"), FOUR))
    assert machine.step(TimePassed(LOOK_MS)) == [Look()]


def test_one_group_trims_by_itself() -> None:
    machine = made("ab", groups=1, trims=True)
    heard(machine, 0, a=5, b=6)
    assert machine.step(TimePassed(LOOK_MS)) == [Look()]


TWO_EACH = {"one": 2, "two": 2}


def warmed(machine: Machine, executors: dict[str, int]) -> list[str]:
    effects = machine.step(Looked(1, machine.members, executors))
    return [effect.executor for effect in effects if isinstance(effect, WarmExecutor)]


def test_new_executors_start_their_python_once_when_every_group_has_a_task() -> None:
    machine = made()
    heard(machine, 0)
    assert warmed(machine, TWO_EACH) == []  # Group 1 may need the slot.
    heard(machine, 1)
    assert warmed(machine, TWO_EACH) == ["one", "two"]
    assert warmed(machine, TWO_EACH) == []
    assert warmed(machine, {"two": 2, "three": 2}) == ["three"]


def test_executors_are_not_warmed_where_a_task_would_be_in_the_way() -> None:
    for executors, elastic in (({"one": 1, "two": 1}, False), (FOUR, False), (TWO_EACH, True)):
        machine = made(elastic=elastic)
        heard(machine, 0)
        heard(machine, 1)
        assert warmed(machine, executors) == []

"""core/player.py: the caller's duties and what the core promises for them, event by event."""

from __future__ import annotations

import pytest

from logplayer.core.effects import (
    CloseSession,
    OpenSession,
    ReadCatchUp,
    Report,
    SendBatch,
    SendProbe,
    StepDown,
    Stop,
    TrimLog,
)
from logplayer.core.entry import Quarantined, Refusal, Session, Takeover, TargetAdded, TargetRemoved
from logplayer.core.events import (
    Acked,
    Archived,
    CatchUpFailed,
    CatchUpTrimmed,
    CaughtUp,
    HoldRequested,
    LogTrimmed,
    LookedUp,
    Lost,
    MainTrimmed,
    Opened,
    Refused,
    RetryRequested,
    StopRequested,
    Surveyed,
    Ticked,
    Written,
)
from logplayer.core.player import Player
from logplayer.core.target_queue import State
from logplayer.errors import ConfigError
from tests.core.core_rig import (
    acked,
    answer_read,
    control,
    entry,
    fetch,
    limits,
    live_player,
    make_player,
    new_player,
    of,
    one,
    open_all,
    written,
)

# --- Sessions ---------------------------------------------------------------------------------------------


def test_sessions_are_opened_on_ticks() -> None:
    player = make_player("a", "b", epoch=9)
    assert player.step(Ticked(5)) == [OpenSession("a", Session(9, 1)), OpenSession("b", Session(9, 1))]
    assert player.step(Ticked(6)) == []


def test_an_event_of_a_dead_session_is_dropped() -> None:
    player = live_player("a")
    dead = Session(1, 0)
    before = repr(player.queues["a"])
    for fact in (
        Written("a", dead),
        Acked("a", dead, 5),
        Opened("a", dead, 5),
        Lost("a", dead, "gone"),
        Refused("a", dead, Refusal.FENCED),
        CaughtUp("a", dead, 0, 5, []),
        CatchUpFailed("a", dead, "away"),
    ):
        assert player.step(fact) == []
    assert repr(player.queues["a"]) == before
    assert not player.stopped


def test_events_of_a_target_that_is_nobody_are_dropped() -> None:
    player = live_player("a")
    for fact in (Written("z", Session(1, 1)), Acked("z", Session(1, 1), 5), RetryRequested("z")):
        assert player.step(fact) == []


def test_a_lost_session_is_opened_again_with_the_next_term_after_a_back_off() -> None:
    player = live_player("a")
    assert player.step(Lost("a", Session(1, 1), "reset")) == [CloseSession("a", Session(1, 1))]
    assert player.step(Ticked(1)) == []
    assert player.step(Ticked(9)) == [OpenSession("a", Session(1, 2))]


@pytest.mark.parametrize("reason", [Refusal.STALE_SESSION, Refusal.OUT_OF_SYNC])
def test_a_session_out_of_step_is_opened_again(reason: Refusal) -> None:
    player = live_player("a")
    player.step(Refused("a", Session(1, 1), reason))
    assert player.queues["a"].reconnect.blocked is None
    assert one(player.step(Ticked(9)), OpenSession).session == Session(1, 2)


def test_a_fenced_player_steps_down_and_answers_nothing_more() -> None:
    player = live_player("a", "b")
    player.step(Refused("a", Session(1, 1), Refusal.FENCED, "epoch 9 has taken over", 0, 9))
    assert isinstance(player.step(LookedUp("a", 9, 1, 9, Takeover()))[-1], StepDown)
    assert player.stopped
    assert player.step(Ticked(500)) == []
    assert fetch(player, entry(2, a="x")) == []


def test_a_newer_takeover_record_ends_the_player_of_that_group_only() -> None:
    player = live_player("a")
    assert not of(fetch(player, entry(2, Takeover("another group"))), StepDown)
    assert of(fetch(player, entry(3, Takeover("", "p2"))), StepDown)
    replayed = new_player(5, 0, control("a"), limits())
    assert not of(fetch(replayed, entry(4, Takeover()), entry(5, Takeover())), StepDown)  # An older one, and its own.


@pytest.mark.parametrize("index", [2, 99])
def test_an_ack_of_what_was_never_sent_costs_the_target_its_session(index: int) -> None:
    player = live_player("a")
    batch = one(fetch(player, entry(3, a="x")), SendBatch)
    acked(player, batch)
    assert of(player.step(Acked("a", batch.session, index)), CloseSession)
    assert "acked" in player.queues["a"].reconnect.last_error


def test_the_target_is_believed_even_if_it_went_back() -> None:
    player = live_player("a")
    acked(player, one(fetch(player, entry(3, a="x")), SendBatch))
    player.step(Lost("a", Session(1, 1), ""))
    player.step(Ticked(9))
    effects = player.step(Opened("a", Session(1, 2), 1))
    assert "went back from 3 to 1" in one(effects, Report).what
    assert one(effects, ReadCatchUp).first == 2


# --- The main stream and sending --------------------------------------------------------------------------


def test_one_write_at_a_time() -> None:
    player = live_player("a")
    first = one(fetch(player, entry(1, a="x")), SendBatch)
    assert fetch(player, entry(2, a="y"), entry(3, a="z")) == []
    second = one(written(player, first), SendBatch)
    assert (second.prev, second.to, [m.index for m in second.messages]) == (1, 3, [2, 3])


def test_an_ack_opens_the_window() -> None:
    player = live_player("a", flight_batches_max=1)
    first = one(fetch(player, entry(1, a="x")), SendBatch)
    fetch(player, entry(2, a="y"))
    assert written(player, first) == []
    assert one(acked(player, first), SendBatch).to == 2


def test_a_full_queue_demotes_and_the_main_stream_goes_on() -> None:
    player = live_player("a", "b", queue_count_max=2)
    batch = one(fetch(player, entry(1, a="x")), SendBatch)
    effects = fetch(player, *(entry(i, a="x", b="y") for i in range(2, 7)))
    queue = player.queues["a"]
    assert queue.state is State.CATCHING_UP
    assert queue.session == batch.session
    assert [m.index for m in queue.messages] == [2, 3]
    assert queue.covered == 3
    assert of(effects, SendBatch)[-1].target == "b"


def test_a_long_fetch_does_not_demote_a_target_that_is_ready() -> None:
    player = live_player("a", queue_count_max=4, batch_count_max=4, flight_batches_max=8)
    effects = fetch(player, *(entry(i, a="x") for i in range(1, 8)))
    assert player.queues["a"].state is State.LIVE
    assert [m.index for batch in of(effects, SendBatch) for m in batch.messages] == [1, 2, 3, 4]


def test_sparse_indexes_are_covered() -> None:
    player = live_player("a", "b")
    batch = one(fetch(player, entry(10, a="x"), entry(70, b="y"))[:1], SendBatch)
    assert (batch.prev, batch.to) == (0, 70)


def test_an_idle_target_is_moved_on_after_some_entries() -> None:
    player = live_player("a", "b", idle_entries_max=3)
    assert [b.target for b in of(fetch(player, entry(1, a="x"), entry(2, a="x")), SendBatch)] == ["a"]
    [idle] = [batch for batch in of(fetch(player, entry(3, a="x")), SendBatch) if batch.target == "b"]
    assert (idle.prev, idle.to, idle.messages) == (0, 3, [])


def test_an_idle_target_is_moved_on_after_some_time() -> None:
    player = live_player("a", "b", idle_ms_max=40)
    fetch(player, entry(1, a="x"))
    assert not of(player.step(Ticked(39)), SendBatch)
    assert one(player.step(Ticked(40)), SendBatch).target == "b"


def test_the_main_stream_starts_no_later_than_at_its_takeover_record() -> None:
    """A record between the takeover and the start would be decided by nobody."""
    player = new_player(10, 15, control("a"), limits())
    assert player.current == 10
    fetch(player, entry(11, TargetAdded("b")))
    assert set(player.queues) == {"a", "b"}


# --- Catching up ------------------------------------------------------------------------------------------


def test_a_target_behind_reads_then_joins() -> None:
    player = make_player("a", epoch=5, current=5)
    player.step(Ticked(0))
    read = one(player.step(Opened("a", Session(5, 1), 2)), ReadCatchUp)
    assert (read.first, read.last) == (3, 5)
    effects = answer_read(player, read, [entry(3, a="x"), entry(5, b="y")])
    assert player.queues["a"].state is State.LIVE
    assert [m.index for m in one(effects, SendBatch).messages] == [3]


def test_a_target_ahead_of_the_main_stream_joins_and_gets_nothing_twice() -> None:
    player = make_player("a", epoch=9, current=3)
    player.step(Ticked(0))
    player.step(Opened("a", Session(9, 1), 6))
    assert player.queues["a"].state is State.LIVE
    effects = fetch(player, *(entry(i, a="x") for i in range(4, 9)))
    assert [m.index for m in one(effects, SendBatch).messages] == [7, 8]


def test_a_target_joins_a_main_stream_that_never_rests() -> None:
    """With reads alone it would follow at a read's distance for ever: each answer comes one entry too late."""
    player = live_player("a", "b")
    log = [entry(i, a="x", b="y") for i in range(1, 200)]
    player.step(Lost("b", Session(1, 1), ""))
    fetch(player, log[0])
    player.step(Ticked(9))
    reads = of(player.step(Opened("b", Session(1, 2), 0)), ReadCatchUp)
    asked = 0
    for made in log[1:]:
        fetch(player, made)
        if reads:
            asked += 1
            reads = of(answer_read(player, reads[0], log), ReadCatchUp)
    assert player.queues["b"].state is State.LIVE
    assert asked <= 2


def test_what_is_kept_for_joining_is_bounded_and_forgotten() -> None:
    player = live_player("a", "b", queue_count_max=4)
    player.step(Lost("b", Session(1, 1), ""))
    fetch(player, entry(1, b="x"))
    player.step(Ticked(9))
    read = one(player.step(Opened("b", Session(1, 2), 0)), ReadCatchUp)
    for index in range(2, 20):
        fetch(player, entry(index, c="x"))
    assert player.recent.keeping
    assert len(player.recent.entries) == 4
    again = one(answer_read(player, read, [entry(1, b="x")]), ReadCatchUp)  # Too far behind what is kept.
    assert again.first == 2
    answer_read(player, again, [])
    assert player.queues["b"].state is State.LIVE
    player.step(Ticked(10))
    assert not player.recent.keeping
    assert not player.recent.entries


def test_a_read_that_found_no_room_does_not_spin() -> None:
    player = live_player("a", queue_bytes_max=30, flight_batches_max=1)
    batch = one(fetch(player, entry(1, a="x")), SendBatch)
    written(player, batch)
    log = [entry(2, a=b"x" * 10), entry(3, a=b"x" * 25), entry(4, a="x")]
    read = one(fetch(player, *log), ReadCatchUp)
    assert of(answer_read(player, read, log), ReadCatchUp) == []  # 3 does not fit beside 2: wait, do not ask again.
    assert one(player.step(Ticked(1)), ReadCatchUp).first == 3
    effects = acked(player, batch)
    assert [m.index for m in one(effects, SendBatch).messages] == [2]


def test_a_read_that_failed_is_asked_for_again_at_the_next_tick() -> None:
    player = make_player("a", epoch=5, current=5)
    player.step(Ticked(0))
    player.step(Opened("a", Session(5, 1), 2))
    assert player.step(CatchUpFailed("a", Session(5, 1), "away")) == []
    assert one(player.step(Ticked(1)), ReadCatchUp).first == 3


def test_a_target_that_needs_what_is_trimmed_is_asked_where_it_stands_and_then_told_to_reseed() -> None:
    player = make_player("a", epoch=9, current=9)
    player.step(Ticked(0))
    player.step(Opened("a", Session(9, 1), 2))
    assert of(player.step(CatchUpTrimmed("a", Session(9, 1), 6)), CloseSession)
    player.step(Ticked(9))
    told = one(player.step(Opened("a", Session(9, 2), 2)), Report).what
    assert "RESEED" in told
    assert "has index 2, needs 5" in told
    player.step(RetryRequested("a"))
    assert not of(player.step(Opened("a", Session(9, 3), 5)), Report)
    assert player.queues["a"].reconnect.blocked is None


def test_a_target_that_an_operator_suspends_is_left_alone_until_it_is_resumed() -> None:
    player = make_player("a", epoch=5, current=5)
    player.step(Ticked(0))
    player.step(Opened("a", Session(5, 1), 5))
    done = player.step(HoldRequested("a"))
    assert (one(done, CloseSession).session, one(done, Report).blocked) == (Session(5, 1), True)
    for now in range(0, 300_000, 500):  # Long after everything else that is blocked is tried again.
        assert not of(player.step(Ticked(now)), OpenSession)
    assert one(player.step(RetryRequested("a")), OpenSession).session == Session(5, 2)
    player.step(Opened("a", Session(5, 2), 5))
    assert player.queues["a"].reconnect.blocked is None


def test_a_target_that_was_added_too_late_is_told_how_to_add_it() -> None:
    player = make_player("a", epoch=9, current=9)
    player.control.members["a"] = TargetAdded("a", 7)
    player.step(Ticked(0))
    told = one(player.step(Opened("a", Session(9, 1), 2)), Report).what
    assert told == (
        "RESEED: has index 2, but was added as one that has 7 (--at): remove it and add it again with --at 2, "
        "or backfill it"
    )


def test_a_trim_point_learned_after_the_open_raises_no_false_alarm() -> None:
    player = make_player("a", epoch=9, current=9)
    player.step(Ticked(0))
    player.step(LogTrimmed(7))  # Another player delivered and trimmed while our Open was on its way.
    assert not of(player.step(Opened("a", Session(9, 1), 6)), Report)


def test_a_member_that_lacks_its_start_is_told_to_reseed() -> None:
    player = live_player("a")
    fetch(player, entry(5, TargetAdded("b")))
    player.step(Ticked(1))
    assert "added as one that has 5" in one(player.step(Opened("b", Session(1, 1), 4)), Report).what


# --- Members, poison, trim --------------------------------------------------------------------------------


def test_a_member_that_comes_back_gets_a_fresh_session() -> None:
    player = live_player("a", "b")
    assert fetch(player, entry(2, TargetRemoved("b"))) == [CloseSession("b", Session(1, 1))]
    fetch(player, entry(3, TargetAdded("b")))
    assert one(player.step(Ticked(1)), OpenSession).session == Session(1, 2)
    assert player.step(Opened("b", Session(1, 1), 3)) == []  # A late word of the dead one.


def test_a_target_removed_in_the_fetch_that_fed_it_gets_nothing() -> None:
    player = live_player("a")
    effects = fetch(player, entry(1, a="x"), entry(2, TargetRemoved("a")))
    assert effects == [CloseSession("a", Session(1, 1))]


def test_poison_blocks_one_target_and_says_so_once() -> None:
    player = live_player("a", "b", blocked_ms=150)
    fetch(player, entry(2, a="x", b="x"))
    effects = player.step(Refused("a", Session(1, 1), Refusal.POISON, "no such column", 2))
    assert one(effects, Report).what == "POISON: entry 2: no such column"
    assert player.queues["b"].state is State.LIVE
    for now in (100, 200):  # It is tried again after a while, and refused again, which is no news.
        player.step(Ticked(now))
    player.step(Opened("a", Session(1, 2), 0))
    assert not of(player.step(Refused("a", Session(1, 2), Refusal.POISON, "no such column", 2)), Report)


def test_a_quarantine_record_unblocks_at_once() -> None:
    player = live_player("a")
    fetch(player, entry(2, a="x"))
    player.step(Refused("a", Session(1, 1), Refusal.POISON, "no", 2))
    fetch(player, entry(3, Quarantined("a", 2)))
    player.step(Ticked(1))
    read = one(player.step(Opened("a", Session(1, 2), 1)), ReadCatchUp)
    batch = one(answer_read(player, read, [entry(2, a="x")]), SendBatch)
    assert [(m.index, m.quarantine) for m in batch.messages] == [(2, True)]


def trimming(*names: str, archived: int | None = None, **changed: int) -> Player:
    player = new_player(1, 0, control(*names), limits(**changed), trims=True, archived=archived)
    player.step(Surveyed(1, ()))
    open_all(player)
    return player


def test_the_log_is_trimmed_to_what_all_have() -> None:
    player = trimming("a", "b")
    [a, b] = of(fetch(player, entry(3, a="x", b="y")), SendBatch)
    acked(player, a)
    assert not of(player.step(Ticked(1)), TrimLog)
    acked(player, b)
    assert one(player.step(Ticked(2)), TrimLog).up_to == 3
    assert not of(player.step(Ticked(3)), TrimLog)  # It was asked for; it is not asked again.


def test_asking_for_a_trim_is_not_a_trim() -> None:
    """The log may trim less: a target that goes back can still be served, and must not be told to re-seed."""
    player = trimming("a")
    acked(player, one(fetch(player, entry(9, a="x")), SendBatch))
    assert one(player.step(Ticked(1)), TrimLog).up_to == 9
    player.step(LogTrimmed(4))
    assert player.trimmed == 4
    player.step(Lost("a", Session(1, 1), ""))
    player.step(Ticked(20))
    assert "went back" in one(player.step(Opened("a", Session(1, 2), 5)), Report).what
    assert player.queues["a"].reconnect.blocked is None


def test_the_archive_holds_the_trim_back() -> None:
    player = trimming("a", archived=0)
    acked(player, one(fetch(player, entry(9, a="x")), SendBatch))
    assert not of(player.step(Ticked(1)), TrimLog)
    player.step(Archived(6))
    assert one(player.step(Ticked(2)), TrimLog).up_to == 6


def test_a_player_of_some_targets_may_not_trim() -> None:
    with pytest.raises(ConfigError, match="owns every target"):
        new_player(1, 0, control("a", "b"), limits(), owns=lambda name: name == "a", trims=True)
    assert set(new_player(1, 0, control("a", "b"), limits(), owns=lambda name: name == "a").queues) == {"a"}


def test_a_main_stream_behind_the_trim_point_jumps() -> None:
    player = live_player("a")
    state = control("a", "b")
    state.through = 7
    reads = of(player.step(MainTrimmed(8, state)), ReadCatchUp)
    assert player.current == 7
    assert player.queues["a"].state is State.CATCHING_UP
    assert [read.first for read in reads] == [1]
    assert set(player.queues) == {"a", "b"}
    assert player.step(MainTrimmed(5, state)) == []  # Not behind that one.


# --- Time and the end -------------------------------------------------------------------------------------


def test_a_pause_of_ours_does_not_age_the_targets() -> None:
    player = live_player("a")
    assert player.step(Ticked(1_000_000)) == [SendProbe("a", Session(1, 1))]
    assert player.now == 120


def test_a_frozen_target_loses_its_session() -> None:
    player = live_player("a")
    effects = []
    for now in range(60, 400, 60):
        effects += player.step(Ticked(now))
    assert of(effects, SendProbe)
    assert of(effects, CloseSession)


def test_a_clock_that_goes_back_does_no_harm() -> None:
    player = live_player("a")
    player.step(Ticked(100))
    player.step(Ticked(50))
    player.step(Ticked(60))
    assert player.now == 110


def test_a_drain_waits_for_what_is_queued_and_on_its_way() -> None:
    player = live_player("a", "b", flight_batches_max=1)
    first = one(fetch(player, entry(1, a="x")), SendBatch)
    fetch(player, entry(2, a="y"))
    effects = player.step(StopRequested())
    moved = one(effects, SendBatch)  # b is told how far it is covered before the end.
    assert (moved.target, moved.to) == ("b", 2)
    assert fetch(player, entry(3, a="z")) == []
    acked(player, moved)
    written(player, first)
    second = one(acked(player, first), SendBatch)
    assert acked(player, second) == [Stop()]
    assert player.step(Ticked(1)) == []


def test_a_drain_does_not_wait_for_who_is_away() -> None:
    player = live_player("a")
    fetch(player, entry(1, a="x"))
    player.step(StopRequested())
    assert player.step(Lost("a", Session(1, 1), ""))[-1] == Stop()


def test_an_idle_player_stops_at_once() -> None:
    assert make_player("a").step(StopRequested()) == [Stop()]


def test_500_targets() -> None:
    names = [f"t{i}" for i in range(500)]
    player = live_player(*names)
    player.step(Surveyed(1, ()))
    batches = of(fetch(player, entry(1, **dict.fromkeys(names, "x"))), SendBatch)
    assert len(batches) == 500
    for batch in batches:
        written(player, batch)
        acked(player, batch)
    assert player.trim_point() == 1

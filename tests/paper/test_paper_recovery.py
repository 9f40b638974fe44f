"""The paper's sections on recovery (algorithm 5: player, target, dummies) and on correctness (its two properties)."""

from __future__ import annotations

import pytest

from logplayer.core.effects import ReadCatchUp, SendBatch
from logplayer.core.entry import Session
from logplayer.core.events import Lost, Opened, Ticked
from logplayer.core.target_queue import State
from logplayer.testing.sim.options import options_for
from logplayer.testing.sim.simulation import Simulation
from logplayer.testing.sim.story import Story
from tests.core.core_rig import acked, answer_read, entry, fetch, live_player, make_player, of, one, open_all, written

# --- Player recovery --------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 3, 6])
def test_a_player_may_start_anywhere(start: int) -> None:
    """The paper starts at the least of the last acks and waits for all targets to say. Ours starts where it likes."""
    log = [entry(i, a="x", b="y") for i in range(1, 7)]
    player = make_player("a", "b", epoch=6, current=start)
    got: dict[str, list[int]] = {"a": [], "b": []}
    effects = list(player.step(Ticked(0)))
    effects += player.step(Opened("a", Session(6, 1), 2))
    effects += fetch(player, *log[start:])
    effects += player.step(Opened("b", Session(6, 1), 5))
    for effect in effects:  # Grows while it is walked through.
        if isinstance(effect, SendBatch):
            got[effect.target] += [m.index for m in effect.messages]
            effects += [*written(player, effect), *acked(player, effect)]
        elif isinstance(effect, ReadCatchUp):
            effects += answer_read(player, effect, log)
    assert got == {"a": [3, 4, 5, 6], "b": [6]}


def test_a_target_that_is_away_at_the_start_is_not_forgotten() -> None:
    """As printed, the current index has no first value: a target that comes later can lose what it missed."""
    player = make_player("a", "late", epoch=5, current=5)
    player.step(Ticked(0))
    player.step(Opened("a", Session(5, 1), 5))
    read = one(player.step(Opened("late", Session(5, 1), 0)), ReadCatchUp)
    assert (read.first, read.last) == (1, 5)


# --- Target recovery --------------------------------------------------------------------------------------


def test_a_target_comes_back_and_reads_up_to_the_current_index() -> None:
    player = live_player("a", "b")
    log = [entry(i, a="x", b="y") for i in range(1, 5)]
    player.step(Lost("a", Session(1, 1), ""))
    fetch(player, *log)
    player.step(Ticked(20))
    read = one(player.step(Opened("a", Session(1, 2), 0)), ReadCatchUp)
    assert (read.first, read.last) == (1, 4)
    assert [m.index for m in one(answer_read(player, read, log), SendBatch).messages] == [1, 2, 3, 4]
    assert player.queues["a"].state is State.LIVE


def test_a_target_that_missed_nothing_is_normal_at_once() -> None:
    player = live_player("a")
    player.step(Lost("a", Session(1, 1), ""))
    player.step(Ticked(20))
    assert not of(player.step(Opened("a", Session(1, 2), 0)), ReadCatchUp)
    assert player.queues["a"].state is State.LIVE


def test_position_and_stream_are_asked_for_in_one_step() -> None:
    """The paper asks for the last ack by a call of its own: a batch on the old stream may still be applied after it.

    Here the answer to Open is the index, read in the step that fences the old stream.
    """
    story = told()
    story.freeze("t1")
    story.append("t1=a")
    story.settle()
    story.cut("t1")
    story.settle()
    story.tick("20")
    story.thaw("t1")
    story.settle()
    assert [one.index for one in story.targets["t1"].applied] == [2]
    assert "t1 reject 1.1" in story.lines


def test_two_players_at_once() -> None:
    """The paper has no fence between players: both would deliver. Here the older one is refused and stops."""
    story = told()
    story.freeze("p1")
    story.append("t1=a")
    story.start()
    story.settle()
    story.thaw("p1")
    story.settle()
    assert [one.index for one in story.targets["t1"].applied] == [2]
    assert not story.hosts[0].alive
    assert story.hosts[1].alive


def told() -> Story:
    from logplayer.core.limits import Limits
    from logplayer.testing.sim.options import CLOCK

    story = Story(1, "explicit", False, False, Limits(**CLOCK))
    story.start("at=0")
    story.settle()
    return story


# --- Dummies ----------------------------------------------------------------------------------------------


def test_an_idle_target_is_moved_on_after_e_entries() -> None:
    player = live_player("a", "idle", idle_entries_max=3)
    sent = of(fetch(player, *(entry(i, a="x") for i in range(1, 4))), SendBatch)
    assert [(b.prev, b.to, b.messages) for b in sent if b.target == "idle"] == [(0, 3, [])]


def test_a_dummy_never_passes_an_entry_that_waits() -> None:
    """As printed, a dummy that lands in the catch-up queue jumps over entries that were not delivered."""
    player = live_player("a", "b", idle_entries_max=1, batch_count_max=1, flight_batches_max=1)
    fetch(player, entry(1, a="x"))
    fetch(player, entry(2, a="y"), entry(3, b="z"), entry(4, b="z"))
    assert player.queues["a"].sent == 1  # Not 4: entry 2 waits.
    player.step(Ticked(500))
    assert player.queues["a"].sent == 1


def test_no_dummy_while_a_target_recovers_passes_what_it_misses() -> None:
    player = make_player("a", epoch=9, current=9, idle_entries_max=1)
    open_all(player, at=2)
    fetch(player, *(entry(i, b="x") for i in range(10, 20)))
    assert not of(player.step(Ticked(100)), SendBatch)
    assert player.queues["a"].sent == 2


def test_a_dummy_is_sent_without_waiting_for_an_entry() -> None:
    """As printed, nobody sends the dummy: an idle target, the only use of dummies, never gets it."""
    player = live_player("a", "idle", idle_entries_max=1000, idle_ms_max=40)
    fetch(player, entry(1, a="x"))
    assert one(player.step(Ticked(60)), SendBatch).target == "idle"


# --- Correctness ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [11, 23, 42, 77, 101])
def test_property_1_everything_arrives_once_the_faults_stop(seed: int) -> None:
    """The simulator's second phase: heal, then demand every entry at each of its targets."""
    simulation = Simulation(options_for(seed, plain=True))
    simulation.run()
    for name, target in simulation.targets.items():
        assert [one.index for one in target.applied] == simulation.log.expected(name, simulation.log.last)


@pytest.mark.parametrize("seed", [11, 23, 42, 77, 101])
def test_property_2_nothing_twice_or_out_of_order_while_faults_happen(seed: int) -> None:
    """The simulator's first phase, looked at after every step."""
    simulation = Simulation(options_for(seed, plain=True))
    for _ in range(simulation.options.entries):
        simulation._append_data()
    simulation._start_player()
    for _ in range(simulation.options.steps):
        simulation._fault_step()
        for name, target in simulation.targets.items():
            got = [one.index for one in target.applied]
            assert got == simulation.log.expected(name, target.position.index)

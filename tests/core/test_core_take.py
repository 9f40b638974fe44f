"""``take`` hands out each effect as soon as it is decided; ``step`` is the same, all at once."""

from __future__ import annotations

from logplayer.core.control_state import ControlState
from logplayer.core.effects import Effect, OpenSession, SendBatch
from logplayer.core.entry import Entry, HashMap, Mutation
from logplayer.core.events import Fetched, Opened, Ticked
from logplayer.core.player import Player
from tests.core.core_rig import new_player, payload

NAMES = ("a", "b")
PAYLOAD = payload(*(Mutation(b"k", b"x", name) for name in NAMES))


def live_player() -> Player:
    player = new_player(1, 0, ControlState.start(HashMap(NAMES), NAMES))
    for effect in player.step(Ticked(0)):
        assert isinstance(effect, OpenSession)
        player.step(Opened(effect.target, effect.session, 0))
    return player


def test_the_first_batch_of_an_entry_leaves_before_the_second_is_decided() -> None:
    player = live_player()
    sent_by_then: list[list[int]] = []

    def note(effect: Effect) -> None:
        assert isinstance(effect, SendBatch)
        sent_by_then.append([player.queues[name].sent for name in NAMES])

    player.take(Fetched([Entry(1, PAYLOAD)]), note)
    assert sent_by_then == [[1, 0], [1, 1]]


def test_a_step_returns_what_take_hands_out() -> None:
    handed: list[Effect] = []
    live_player().take(Fetched([Entry(1, PAYLOAD)]), handed.append)
    assert live_player().step(Fetched([Entry(1, PAYLOAD)])) == handed
    assert len(handed) == 2

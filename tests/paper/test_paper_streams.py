"""The paper's sections on dispatching (algorithm 3) and on processing the completion queue (algorithm 4).

Our completion queue is the caller of ``Player.step``: one consumer, so that the paper's locks are not needed.
"""

from __future__ import annotations

from logplayer.core.effects import CloseSession, SendBatch
from logplayer.core.entry import Session
from logplayer.core.events import Acked, CaughtUp, Lost, Opened, Ticked, Written
from tests.core.core_rig import acked, entry, fetch, live_player, make_player, of, one, open_all, written

# --- Algorithm 3 ------------------------------------------------------------------------------------------


def test_dispatch_makes_one_message_per_target() -> None:
    player = live_player("a", "b", "c")
    sent = of(fetch(player, entry(1, a="x", b="y")), SendBatch)
    assert [(batch.target, batch.messages[0].payload) for batch in sent] == [("a", b"x"), ("b", b"y")]


def test_dispatch_skips_what_a_target_has() -> None:
    """The paper compares with the last ack. Ours compares with the coverage, which also knows what is queued."""
    player = make_player("a", epoch=9, current=0)
    open_all(player, at=3)
    sent = of(fetch(player, *(entry(i, a="x") for i in range(1, 6))), SendBatch)
    assert [m.index for batch in sent for m in batch.messages] == [4, 5]


def test_dispatch_of_a_recovery_stream_feeds_its_own_target_only() -> None:
    """As printed, a recovery stream pushes to every target of the entry, and terms of two targets can be equal."""
    player = make_player("a", "b", epoch=5, current=5)
    open_all(player, at=2)
    player.step(CaughtUp("a", Session(5, 1), 2, 5, [entry(3, a="x", b="y")]))
    assert player.queues["b"].covered == 2
    assert not player.queues["b"].messages


def test_the_main_stream_never_waits_for_a_target() -> None:
    """The paper gives each target a queue so that a slow one slows nobody. Ours is also bounded."""
    player = live_player("slow", "fast", queue_count_max=2)
    delivered = []
    for index in range(1, 50):
        for batch in of(fetch(player, entry(index, slow="x", fast="y")), SendBatch):
            if batch.target == "fast":
                delivered += [m.index for m in batch.messages]
                written(player, batch)
                acked(player, batch)
    assert delivered == list(range(1, 50))
    assert len(player.queues["slow"].messages) <= 2


def test_send_next_writes_only_when_the_stream_is_ready() -> None:
    """write_status: not-ready until the last write shows up on the completion queue."""
    player = live_player("a")
    assert of(fetch(player, entry(1, a="x")), SendBatch)
    assert not of(fetch(player, entry(2, a="x")), SendBatch)
    assert not of(acked(player, SendBatch("a", Session(1, 1), 0, 1, [])), SendBatch)


# --- Algorithm 4 ------------------------------------------------------------------------------------------


def test_a_completed_write_sends_the_next_batch() -> None:
    player = live_player("a")
    first = one(fetch(player, entry(1, a="x")), SendBatch)
    fetch(player, entry(2, a="y"))
    assert one(written(player, first), SendBatch).prev == 1


def test_a_completed_write_of_a_dead_stream_is_not_the_new_streams() -> None:
    """The paper's tags name the target, not the stream: a late one makes a second write on the new stream."""
    player = live_player("a", batch_count_max=1)
    fetch(player, entry(1, a="x"))
    player.step(Lost("a", Session(1, 1), ""))
    player.step(Ticked(20))
    player.step(Opened("a", Session(1, 2), 0))
    player.step(CaughtUp("a", Session(1, 2), 0, 1, [entry(1, a="x")]))
    assert not player.queues["a"].writable
    assert player.step(Written("a", Session(1, 1))) == []
    assert not player.queues["a"].writable


def test_a_read_moves_the_last_ack() -> None:
    player = live_player("a")
    acked(player, one(fetch(player, entry(3, a="x")), SendBatch))
    assert player.queues["a"].acked == 3


def test_a_read_of_a_dead_stream_moves_nothing() -> None:
    """As printed, the last ack can go back after the target has reported its index."""
    player = live_player("a")
    acked(player, one(fetch(player, entry(3, a="x")), SendBatch))
    player.step(Lost("a", Session(1, 1), ""))
    player.step(Ticked(20))
    player.step(Opened("a", Session(1, 2), 3))
    assert player.step(Acked("a", Session(1, 1), 1)) == []
    assert player.queues["a"].acked == 3


def test_a_target_may_ack_a_sequence_at_once() -> None:
    """The paper's footnote: one ack for the last entry of a sequence."""
    player = live_player("a", batch_count_max=1)
    first = one(fetch(player, entry(1, a="x"), entry(2, a="y"), entry(3, a="z")), SendBatch)
    second = one(written(player, first), SendBatch)
    third = one(written(player, second), SendBatch)
    assert not of(acked(player, third), CloseSession)
    assert player.queues["a"].acked == 3

"""The paper's section on the target queue: algorithm 1 (push, front, pop, suspend, fetchingCompleted) and 2 (batches).

The paper keeps two queues per target, normal and catch-up, and four states. Ours keeps one bounded queue and three:
N is LIVE, RF and FC are CATCHING_UP, S is SUSPENDED. docs/paper.md says why.
"""

from __future__ import annotations

from logplayer.core.effects import CloseSession, ReadCatchUp, SendBatch
from logplayer.core.entry import Delivery, Session
from logplayer.core.events import CaughtUp, Lost, Opened, Ticked
from logplayer.core.target_queue import State
from tests.core.core_rig import acked, answer_read, entry, fetch, live_player, make_player, of, one, written

# --- Algorithm 1 ------------------------------------------------------------------------------------------


def test_push_of_the_main_stream_in_normal_state() -> None:
    """N: an entry of the main stream is queued and leaves at once."""
    player = live_player("a")
    assert [m.index for m in one(fetch(player, entry(1, a="x")), SendBatch).messages] == [1]


def test_push_to_a_suspended_target_is_dropped() -> None:
    """S: nothing is queued; the log has it."""
    player = make_player("a")
    assert fetch(player, entry(1, a="x")) == []
    assert not player.queues["a"].messages


def test_push_of_the_main_stream_while_recovering_is_left_to_the_log() -> None:
    """RF: the paper queues it in the normal queue, which grows without bound. Ours reads it from the log later."""
    player = make_player("a", epoch=5, current=5)
    player.step(Ticked(0))
    read = one(player.step(Opened("a", Session(5, 1), 2)), ReadCatchUp)
    fetch(player, entry(6, a="new"))
    assert not player.queues["a"].messages
    batch = one(answer_read(player, read, [entry(3, a="missed")]), SendBatch)
    assert [m.index for m in batch.messages] == [3, 6]  # The missed one first, always.


def test_push_of_an_expired_term_is_dropped() -> None:
    """A recovery stream of an earlier term: our reads carry the session, and the place that they were made for."""
    player = make_player("a", epoch=5, current=5)
    player.step(Ticked(0))
    player.step(Opened("a", Session(5, 1), 2))
    player.step(Lost("a", Session(5, 1), ""))
    player.step(Ticked(20))
    player.step(Opened("a", Session(5, 2), 2))
    assert player.step(CaughtUp("a", Session(5, 1), 2, 5, [entry(3, a="x")])) == []
    assert not player.queues["a"].messages


def test_front_and_pop_keep_the_order_without_a_second_queue() -> None:
    """FC is needless: what was missed and what is new stand in one queue, in log order."""
    player = live_player("a", queue_count_max=2, batch_count_max=1, flight_batches_max=1)
    log = [entry(i, a="x") for i in range(1, 8)]
    sent = of(fetch(player, *log), SendBatch)
    reads: list[ReadCatchUp] = []
    while len(sent) < 7:
        written(player, sent[-1])
        effects = acked(player, sent[-1])
        sent += of(effects, SendBatch)
        reads = of(effects, ReadCatchUp) or reads
        if reads:
            sent += of(answer_read(player, reads.pop(), log), SendBatch)
    assert [m.index for batch in sent for m in batch.messages] == [1, 2, 3, 4, 5, 6, 7]


def test_suspend_empties_the_queue_and_the_window() -> None:
    """The batch on the stream is not ours any more: whether it was applied, the target will say."""
    player = live_player("a")
    fetch(player, entry(1, a="x"))
    fetch(player, entry(2, a="y"))
    assert of(player.step(Lost("a", Session(1, 1), "")), CloseSession)
    queue = player.queues["a"]
    assert queue.state is State.SUSPENDED
    assert (len(queue.messages), queue.bytes, len(queue.window.flight)) == (0, 0, 0)


def test_fetching_completed_sends_what_waits() -> None:
    """As printed, sendNext is called in the wrong branch, and entries can wait for ever. Here joining sends."""
    player = make_player("a", epoch=5, current=5)
    player.step(Ticked(0))
    read = one(player.step(Opened("a", Session(5, 1), 4)), ReadCatchUp)
    fetch(player, entry(6, a="new"))
    batch = one(answer_read(player, read, []), SendBatch)  # Nothing was missed; 6 must not wait for the next entry.
    assert player.queues["a"].state is State.LIVE
    assert [m.index for m in batch.messages] == [6]


def test_fetching_completed_of_an_old_term_changes_no_state() -> None:
    """As printed it takes no lock: an old one could make a new session normal. Here test and switch are one step."""
    player = make_player("a", epoch=5, current=5)
    player.step(Ticked(0))
    player.step(Opened("a", Session(5, 1), 2))
    player.step(Lost("a", Session(5, 1), ""))
    player.step(Ticked(20))
    player.step(Opened("a", Session(5, 2), 2))
    player.step(CaughtUp("a", Session(5, 1), 2, 5, []))
    assert player.queues["a"].state is State.CATCHING_UP


# --- Algorithm 2 ------------------------------------------------------------------------------------------


def test_next_batch_holds_no_more_than_the_limit() -> None:
    """As printed, a batch holds one more than the maximum."""
    player = live_player("a", batch_count_max=2)
    batch = one(fetch(player, *(entry(i, a="x") for i in range(1, 6))), SendBatch)
    assert len(batch.messages) == 2


def test_next_batch_is_bounded_in_bytes_too() -> None:
    player = live_player("a", batch_bytes_max=10)
    batch = one(fetch(player, *(entry(i, a="xxxx") for i in range(1, 6))), SendBatch)
    assert [m.index for m in batch.messages] == [1, 2]


def test_pop_batch_moves_it_into_the_window() -> None:
    """The paper's map of popped batches is our window; it keeps no payloads."""
    player = live_player("a")
    fetch(player, entry(1, a="x"))
    assert list(player.queues["a"].window.flight) == [(1, 1, 1)]


def test_erase_frees_every_batch_up_to_the_ack() -> None:
    """As printed, an ack erases the batch of exactly that index: one ack for several batches leaks the others."""
    player = live_player("a", batch_count_max=1)
    first = one(fetch(player, entry(1, a="x"), entry(2, a="y")), SendBatch)
    second = one(written(player, first), SendBatch)
    acked(player, second)
    assert player.queues["a"].idle()


def test_an_empty_target_queue_has_no_front() -> None:
    queue = live_player("a").queues["a"]
    assert queue.take(0, b"") is None
    queue.offer(Delivery(1, b"x"))
    assert queue.take(1, b"") is not None

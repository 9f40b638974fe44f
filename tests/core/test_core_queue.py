"""core/target_queue.py: acked <= sent <= covered, and what moves each of them."""

from __future__ import annotations

import pytest

from logplayer.core.entry import Delivery, Session
from logplayer.core.invariants import InvariantViolation
from logplayer.core.target_queue import LEGAL, State, TargetQueue
from tests.core.core_rig import limits


def make(**changed: int) -> TargetQueue:
    queue = TargetQueue("a", limits(**changed))
    queue.open(7, 0, 0)
    queue.opened(0, b"", 0, 0)
    return queue


def live(**changed: int) -> TargetQueue:
    queue = make(**changed)
    assert queue.join(0)
    return queue


def test_a_session_is_the_epoch_and_the_next_term() -> None:
    queue = TargetQueue("a", limits(), term=3)
    assert queue.open(7, 0, 0) == Session(7, 4)
    queue.suspend()
    assert queue.open(7, 0, 0) == Session(7, 5)


def test_opened_takes_the_targets_word_for_everything() -> None:
    queue = TargetQueue("a", limits(), acked=3)
    queue.open(7, 0, 0)
    queue.opened(9, b"", 9, 0)
    assert (queue.state, queue.acked, queue.sent, queue.covered) == (State.CATCHING_UP, 9, 9, 9)
    assert queue.writable


def test_suspend_keeps_only_what_is_durable_and_the_term() -> None:
    queue = live()
    queue.offer(Delivery(1, b"x"))
    queue.take(1, b"")
    queue.ack(1, 0)
    queue.offer(Delivery(2, b"x"))
    queue.suspend()
    assert (queue.state, queue.session, queue.acked, queue.term) == (State.SUSPENDED, None, 1, 1)
    assert (len(queue.messages), queue.bytes, queue.window.count, queue.writable) == (0, 0, 0, False)


def test_a_live_queue_is_covered_by_what_is_not_for_it() -> None:
    queue = live()
    assert queue.coverage(12) == 12
    assert queue.covered == 0  # Without being touched.
    queue.demote(12, b"")
    assert queue.covered == 12
    assert queue.coverage(20) == 12


def test_join_needs_the_coverage_of_the_main_stream() -> None:
    queue = make()
    assert not queue.join(1)
    queue.cover(1, b"")
    assert queue.join(1)
    assert not queue.join(1)  # It is LIVE already.


def test_a_full_queue_refuses_by_count_and_by_bytes() -> None:
    queue = live(queue_count_max=2, queue_bytes_max=10)
    assert queue.offer(Delivery(1, b"x"))
    assert not queue.offer(Delivery(2, b"x" * 10))
    assert queue.offer(Delivery(2, b"x"))
    assert not queue.offer(Delivery(3, b"x"))
    assert queue.covered == 2


def test_an_empty_queue_takes_a_message_of_any_size() -> None:
    queue = live(queue_bytes_max=1)
    assert queue.offer(Delivery(1, b"x" * 1000))


def test_a_batch_that_drains_the_queue_ends_at_the_coverage() -> None:
    queue = live()
    queue.offer(Delivery(3, b"x"))
    batch = queue.take(8, b"")
    assert batch is not None
    assert (batch.prev, batch.to, [m.index for m in batch.messages]) == (0, 8, [3])


def test_a_batch_that_leaves_something_ends_at_its_last_entry() -> None:
    queue = live(batch_count_max=1)
    queue.offer(Delivery(3, b"x"))
    queue.offer(Delivery(5, b"x"))
    batch = queue.take(8, b"")
    assert batch is not None
    assert batch.to == 3  # Not 4: nothing is gained, and never 8.


def test_nothing_is_sent_twice_and_nothing_when_there_is_nothing() -> None:
    queue = live()
    assert queue.take(0, b"") is None
    queue.offer(Delivery(1, b"x"))
    assert queue.take(1, b"") is not None
    queue.writable = True
    assert queue.take(1, b"") is None


def test_a_lone_message_passes_the_empty_queue() -> None:
    queue = live()
    batch = queue.pass_on(Delivery(3, b"xy"))
    assert batch is not None
    assert (batch.prev, batch.to, [m.index for m in batch.messages]) == (0, 3, [3])
    assert (queue.sent, queue.covered, queue.window.bytes, queue.writable) == (3, 3, 2, False)


def test_a_lone_message_does_not_pass_a_full_window() -> None:
    queue = live(flight_batches_max=2, flight_bytes_max=10, batch_bytes_max=10)
    assert queue.pass_on(Delivery(1, b"x" * 20)) is not None  # An empty window takes any size.
    queue.writable = True
    assert queue.pass_on(Delivery(2, b"x")) is None
    queue.ack(1, 0)
    assert queue.pass_on(Delivery(2, b"x")) is not None
    queue.writable = True
    assert queue.pass_on(Delivery(3, b"x")) is not None
    queue.writable = True
    assert queue.pass_on(Delivery(4, b"x")) is None
    assert queue.covered == 3


def test_an_empty_batch_moves_an_idle_target() -> None:
    batch = live().take(5, b"")
    assert batch is not None
    assert (batch.prev, batch.to, batch.messages) == (0, 5, [])


def test_a_batch_is_bounded_by_bytes_but_its_first_message_is_not() -> None:
    queue = live(batch_bytes_max=10, flight_bytes_max=100)
    for index, size in enumerate((30, 4, 4, 4), 1):
        queue.offer(Delivery(index, b"x" * size))
    taken = []
    while (batch := queue.take(4, b"")) is not None:
        taken.append([m.index for m in batch.messages])
        queue.writable = True
    assert taken == [[1], [2, 3], [4]]


def test_a_large_message_waits_for_room_in_the_window_not_for_an_empty_one() -> None:
    queue = live(batch_bytes_max=10, flight_bytes_max=100)
    queue.offer(Delivery(1, b"x" * 40))
    queue.offer(Delivery(2, b"x" * 40))
    queue.offer(Delivery(3, b"x" * 40))
    assert queue.take(3, b"") is not None
    queue.writable = True
    assert queue.take(3, b"") is not None
    queue.writable = True
    assert queue.take(3, b"") is None
    queue.ack(1, 0)
    assert queue.take(3, b"") is not None


def test_an_ack_that_is_news_resets_the_back_off() -> None:
    queue = live()
    queue.reconnect.attempts = 5
    queue.take(3, b"")
    queue.ack(0, 10)
    assert queue.reconnect.attempts == 5
    assert queue.deadlines.heard_at == 10
    queue.ack(3, 11)
    assert queue.reconnect.attempts == 0
    assert queue.idle()


def test_only_legal_transitions_pass() -> None:
    for old in State:
        for new in State:
            queue = TargetQueue("a", limits())
            queue.state = old
            if new in LEGAL[old]:
                queue._become(new)
                assert queue.state is new
            else:
                with pytest.raises(InvariantViolation, match="LegalTransition"):
                    queue._become(new)


def test_a_repr_is_one_line_and_says_where_it_stands() -> None:
    told = repr(live())
    assert "\n" not in told
    assert "LIVE" in told
    assert "acked=0 sent=0 covered=0" in told

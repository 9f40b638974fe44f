"""core/catch_up.py and core/tail_buffer.py: what a lagging target is given next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logplayer.core.catch_up import next_read, push, wants_more
from logplayer.core.entry import Delivery, Entry, Quarantined, Session
from logplayer.core.events import CaughtUp
from logplayer.core.tail_buffer import TailBuffer
from logplayer.core.target_queue import TargetQueue
from tests.core.core_rig import control, cut, entry, limits


def lagging(**changed: int) -> TargetQueue:
    queue = TargetQueue("a", limits(**changed))
    queue.open(7, 0, 0)
    queue.opened(0, b"", 0, 0)
    return queue


def read(queue: TargetQueue, *entries: Entry, after: int = 0, through: int = 0) -> CaughtUp:
    assert queue.session is not None
    return CaughtUp("a", queue.session, after, through or entries[-1].index, entries)


def test_the_next_read_begins_behind_the_coverage() -> None:
    queue = lagging(queue_count_max=10, queue_bytes_max=100)
    assert wants_more(queue, 5)
    queue.offer(Delivery(2, b"1234"))
    asked = next_read(queue, 5)
    assert (asked.first, asked.last, asked.count_max, asked.bytes_max) == (3, 5, 9, 96)
    assert asked.session == queue.session
    assert not wants_more(queue, 5)  # One read at a time.


def test_nobody_reads_who_has_caught_up_or_no_room_or_no_session() -> None:
    queue = lagging(queue_count_max=4)
    assert not wants_more(queue, 0)
    queue.offer(Delivery(1, b""))
    assert wants_more(queue, 9)
    queue.offer(Delivery(2, b""))
    assert not wants_more(queue, 9)  # Half of the queue is taken.
    queue.suspend()
    assert not wants_more(queue, 9)


def test_what_was_read_is_queued_and_covers() -> None:
    queue = lagging()
    assert push(queue, read(queue, entry(1, a="x"), entry(2, b="y"), entry(4, a="z"), through=6), control("a"), cut)
    assert [(m.index, m.payload) for m in queue.messages] == [(1, b"x"), (4, b"z")]
    assert queue.covered == 6


def test_what_does_not_fit_is_not_covered() -> None:
    queue = lagging(queue_count_max=2)
    batch = [entry(1, a="x"), entry(2, a="x"), entry(3, b="x"), entry(4, a="x"), entry(5, a="x")]
    assert push(queue, read(queue, *batch), control("a"), cut)
    assert [m.index for m in queue.messages] == [1, 2]
    assert queue.covered == 3  # One less than the first that found no room.
    assert not push(queue, read(queue, entry(4, a="x"), after=3), control("a"), cut)


def test_a_read_of_another_session_or_place_is_dropped() -> None:
    queue = lagging()
    assert queue.session is not None
    stale = CaughtUp("a", Session(7, 0), 0, 1, [entry(1, a="x")])
    assert not push(queue, stale, control("a"), cut)
    queue.cover(5, b"")
    assert not push(queue, read(queue, entry(1, a="x")), control("a"), cut)
    queue.suspend()
    assert not push(queue, CaughtUp("a", Session(7, 1), 5, 6, [entry(6, a="x")]), control("a"), cut)
    assert not queue.messages


def test_a_quarantined_entry_is_marked() -> None:
    state, queue = control("a"), lagging()
    state.decide(entry(9, Quarantined("a", 2)))
    push(queue, read(queue, entry(1, a="x"), entry(2, a="y")), state, cut)
    assert [m.quarantine for m in queue.messages] == [False, True]


# --- Recent -----------------------------------------------------------------------------------------------


def dispatched(index: int, payload: bytes = b"x") -> Entry:
    made = entry(index, a=payload)
    made.parts = {"a": payload}
    return made


def test_nothing_is_kept_until_somebody_wants_it() -> None:
    recent = TailBuffer(4, 100)
    assert recent.since(0, b"") is None
    recent.keep(10, b"")
    recent.add(dispatched(12))
    assert recent.since(9, b"") is None  # 10 and 11 were dispatched before.
    kept = recent.since(10, b"")
    assert kept is not None
    assert [e.index for e in kept] == [12]
    assert recent.since(12, b"") == []
    recent.forget()
    assert recent.since(12, b"") is None


def test_a_second_wish_keeps_what_is_there() -> None:
    recent = TailBuffer(4, 100)
    recent.keep(10, b"")
    recent.add(dispatched(11))
    recent.keep(11, b"")
    assert len(recent.since(10, b"") or ()) == 1


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 30)), max_size=30), st.integers(0, 60))
def test_what_is_kept_is_whole_and_bounded(steps: list[tuple[int, int]], asked: int) -> None:
    recent, index, all_ = TailBuffer(5, 60), 3, []
    recent.keep(3, b"")
    for span, size in steps:
        index += span
        all_.append(dispatched(index, b"x" * size))
        recent.add(all_[-1])
        assert len(recent.entries) <= 5
        assert recent.bytes == sum(len(e.parts["a"]) for e in recent.entries if e.parts) <= 60
    kept = recent.since(asked, b"")
    if kept is not None:
        assert kept == [e for e in all_ if e.index > asked]

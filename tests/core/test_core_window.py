"""core/window.py: what is written and not yet acked, bounded in batches and bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logplayer.core.window import Window


def test_an_empty_window_takes_a_batch_of_any_size() -> None:
    window = Window(batches_max=2, bytes_max=10)
    assert window.room() == 10
    window.add(5, 1, 1000)
    assert window.room() <= 0


def test_a_full_window_is_closed_by_count() -> None:
    window = Window(batches_max=2, bytes_max=100)
    window.add(1, 1, 0)
    assert window.room() == 100
    window.add(2, 1, 0)
    assert window.room() == 0


def test_one_ack_may_cover_several_batches() -> None:
    window = Window(4, 100)
    for to in (3, 5, 9):
        window.add(to, 2, 7)
    window.ack(5)
    assert [to for to, _, _ in window.flight] == [9]
    assert (window.count, window.bytes) == (2, 7)


def test_an_ack_inside_a_batch_frees_nothing() -> None:
    """An ack is for whole transactions; one below the end of a batch is a part that a poisoned entry cut off."""
    window = Window(4, 100)
    window.add(9, 2, 7)
    window.ack(8)
    assert window.count == 2


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9), st.integers(0, 50), st.booleans())))
def test_the_sums_are_those_of_what_is_in_flight(steps: list[tuple[int, int, int, bool]]) -> None:
    window, to, acked = Window(3, 60), 0, 0
    for span, count, bytes_, ack in steps:
        if ack and window.flight:
            acked = min(to, acked + span)
            window.ack(acked)
        elif window.room() > 0 and (bytes_ <= window.room() or not window.flight):
            to += span
            window.add(to, count, bytes_)
        assert window.count == sum(c for _, c, _ in window.flight)
        assert window.bytes == sum(b for _, _, b in window.flight)
        assert len(window.flight) <= 3
        assert window.bytes <= 60 or len(window.flight) == 1
        assert all(end > acked for end, _, _ in window.flight)
    window.clear()
    assert (window.count, window.bytes, len(window.flight)) == (0, 0, 0)

"""The chain: one value for each history up to an entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logplayer.core.chain import GENESIS, extend, extend_all, is_value, mark_of

ENTRIES = st.lists(
    st.tuples(st.text(min_size=1, max_size=9), st.integers(1, 2**63 - 1), st.binary(max_size=20), st.integers(0, 1)),
    max_size=20,
)


@given(ENTRIES, st.sampled_from([GENESIS, b"12345678"]))
def test_many_at_once_are_as_one_after_the_other(entries: list[tuple[str, int, bytes, int]], before: bytes) -> None:
    marks = [mark_of(payload) for _, _, payload, _ in entries]
    values, value = [], before
    for (producer, sequence, _, kind), mark in zip(entries, marks, strict=True):
        value = extend(value, kind, producer, sequence, mark)
        values.append(value)
    assert extend_all(before, entries, marks) == values
    assert all(is_value(each) for each in values)


def test_the_values_never_change() -> None:
    """They are stored in logs and in targets."""
    first = extend(GENESIS, 0, "web-1", 1, mark_of(b"payload"))
    second = extend(first, 1, "Zoë", 2**63 - 1, mark_of(b""))
    assert (first.hex(), second.hex()) == ("d33e90330c3a07d8", "94d239efa2f1971b")

"""Which index a sequence got: from memory while it is recent, from the log for ever."""

from __future__ import annotations

import pytest

from logplayer.errors import SequenceGap
from logplayer.log import sequences
from logplayer.log.protocol import NewEntry
from logplayer.log.sequences import Producers


def entry(sequence: int, producer: str = "p") -> NewEntry:
    return NewEntry(producer, sequence, b"")


def never(producer: str, sequence: int) -> int:
    raise AssertionError(f"{producer} {sequence} was looked up")


def no_decision(index: int, entry: NewEntry) -> None:
    raise AssertionError(f"{index}: {entry} was taken for a decision")


def same(index: int, entry: NewEntry) -> None:
    """Whatever it is compared with."""


def test_recent_answers_come_from_memory_and_older_ones_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "RECENT_COUNT_MAX", 20)
    producers, looked_up = Producers(), []

    def look_up(producer: str, sequence: int) -> int:
        looked_up.append(sequence)
        return 1000 + sequence

    for sequence in range(1, 101):
        assert producers.plan([entry(sequence)], 1000 + sequence, never, no_decision, same).indexes == [1000 + sequence]
        for retried in range(max(1, sequence - 9), sequence + 1):
            assert producers.plan([entry(retried)], 2000, never, no_decision, same).indexes == [1000 + retried]
        assert len(producers._recent) + len(producers._older) <= 20
    for sequence in (1, 80):
        assert producers.plan([entry(sequence)], 2000, look_up, no_decision, same).indexes == [1000 + sequence]
    assert looked_up == [1, 80]


def test_a_gap_changes_nothing() -> None:
    producers = Producers()
    producers.plan([entry(1)], 1, never, no_decision, same)
    with pytest.raises(SequenceGap, match="its newest is 1: send 2 next") as caught:
        producers.plan([entry(2), entry(1, "q"), entry(4)], 2, never, no_decision, same)
    assert caught.value.newest == 1
    assert producers.newest == {"p": 1}
    plan = producers.plan([entry(1), entry(2), entry(2), entry(1, "q")], 2, never, no_decision, same)
    assert plan.indexes == [1, 2, 2, 3]
    assert [index for index, _ in plan.new] == [2, 3]

"""core/fence.py and core/digest.py: which session may write, which batch fits, and the digest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.core import digest
from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.fence import Batch, Position, TargetRefusal, admit, advance, check, join, well_formed
from logplayer.core.invariants import InvariantViolation

AT_5 = Position(index=5, session=Session(3, 2), log_id="L")


def refusal(answer: object) -> Refusal:
    assert isinstance(answer, TargetRefusal)
    assert answer.detail
    assert (answer.index, answer.epoch) == (5, 3)  # What the player needs to do the right thing next.
    return answer.reason


def test_accepting_an_open_stores_the_session_and_keeps_the_index() -> None:
    accepted = admit(AT_5, Session(3, 3), "L")
    assert isinstance(accepted, Position)
    assert (accepted.index, accepted.session) == (5, Session(3, 3))
    assert admit(Position(), Session(1, 1), "L") == Position(session=Session(1, 1), log_id="L")


def test_an_open_is_refused_to_the_old_and_the_strange() -> None:
    assert refusal(admit(AT_5, Session(2, 99), "L")) is Refusal.FENCED
    assert refusal(admit(AT_5, Session(3, 2), "L")) is Refusal.STALE_SESSION
    assert refusal(admit(AT_5, Session(3, 1), "L")) is Refusal.STALE_SESSION
    assert refusal(admit(AT_5, Session(9, 1), "M")) is Refusal.WRONG_LOG


def test_a_batch_needs_the_current_session_and_the_stored_index() -> None:
    good = Batch(5, 6, (Delivery(6, b"x"),))
    assert check(AT_5, Session(3, 2), good) is None
    assert refusal(check(AT_5, Session(3, 1), good)) is Refusal.STALE_SESSION
    assert refusal(check(AT_5, Session(2, 9), good)) is Refusal.FENCED
    assert refusal(check(AT_5, Session(3, 2), Batch(4, 6))) is Refusal.OUT_OF_SYNC
    assert refusal(check(AT_5, Session(3, 2), Batch(6, 7))) is Refusal.OUT_OF_SYNC
    assert refusal(check(AT_5, Session(3, 2), Batch(5, 5))) is Refusal.BAD_BATCH


@pytest.mark.parametrize("batch", [Batch(4, 6), Batch(6, 7), Batch(5, 5)])
def test_the_session_is_looked_at_before_the_range(batch: Batch) -> None:
    """A player that is not the newest must hear that, and not try again from another index."""
    assert refusal(check(AT_5, Session(2, 9), batch)) is Refusal.FENCED
    assert refusal(check(AT_5, Session(3, 1), batch)) is Refusal.STALE_SESSION


@pytest.mark.parametrize(
    ("indexes", "fits"),
    [((), True), ((6, 7, 9), True), ((5,), False), ((10,), False), ((7, 7), False), ((8, 7), False)],
)
def test_indexes_rise_strictly_within_the_range(indexes: tuple[int, ...], fits: bool) -> None:
    assert well_formed(Batch(5, 9, tuple(Delivery(index, b"") for index in indexes))) is fits


def test_the_index_and_the_digest_move_together() -> None:
    messages = (Delivery(6, b"x"), Delivery(8, b"y", quarantine=True))
    moved = advance(AT_5, Batch(5, 9, messages))
    assert moved.index == 9
    assert moved.digest == digest.entry_digest(6, b"x") + digest.entry_digest(8, b"y") & (1 << 128) - 1
    assert moved.session == AT_5.session


def test_batches_of_one_session_are_joined_without_a_gap() -> None:
    first, second = Batch(5, 6, (Delivery(6, b"x"),)), Batch(6, 9)
    assert join([first, second]) == Batch(5, 9, (Delivery(6, b"x"),))
    with pytest.raises(InvariantViolation, match="BatchCoversItsEntries"):
        join([first, Batch(7, 9)])


messages = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=8)).map(lambda pair: Delivery(*pair)))


@given(messages, messages)
def test_digests_of_ranges_add_up_in_any_order(one: list[Delivery], two: list[Delivery]) -> None:
    both = digest.extend(digest.EMPTY, [*one, *two])
    assert digest.extend(digest.extend(digest.EMPTY, two), one) == both
    parts = digest.extend(digest.EMPTY, one) + digest.extend(digest.EMPTY, two)
    assert parts % 2**128 == both
    assert digest.from_bytes(digest.to_bytes(both)) == both


@given(messages.filter(bool), st.data())
def test_a_digest_tells_an_entry_left_out_given_twice_or_changed(given_: list[Delivery], data: st.DataObject) -> None:
    whole = digest.extend(digest.EMPTY, given_)
    at = data.draw(st.integers(0, len(given_) - 1))
    one = given_[at]
    assert digest.extend(digest.EMPTY, given_[:at] + given_[at + 1 :]) != whole
    assert digest.extend(whole, [one]) != whole
    changed = [*given_[:at], Delivery(one.index, one.payload + b"!"), *given_[at + 1 :]]
    assert digest.extend(digest.EMPTY, changed) != whole
    moved = [*given_[:at], Delivery((one.index + 1) % 2**64, one.payload), *given_[at + 1 :]]
    assert digest.extend(digest.EMPTY, moved) != whole


def test_the_digest_is_the_one_that_the_protocol_page_tells() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "protocol.md"
    told = re.search(r"only\s+index\s+7\s+and\s+the\s+payload\s+`abc`:\s+`([0-9a-f]{32})`", page.read_text())
    assert told is not None
    assert digest.to_bytes(digest.extend(digest.EMPTY, [Delivery(7, b"abc")])).hex() == told[1]


def test_an_empty_store_has_the_empty_digest() -> None:
    assert digest.from_bytes(b"") == digest.EMPTY == Position().digest

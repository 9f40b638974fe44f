"""When a standby takes over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logplayer.core.alive import QUIET_MS, TargetSeen
from logplayer.core.standby import GONE_MS, GRACE_MS, GRACE_MS_MAX, Standby

FED, GONE = TargetSeen(True, 100), TargetSeen(False)
HUNG = TargetSeen(True, QUIET_MS + 1)


def test_one_fed_target_is_enough_to_wait() -> None:
    standby = Standby()
    for now in range(0, 100_000, 250):
        assert not standby.looked(now, 1, {"a": GONE, "b": FED, "c": HUNG})


def test_it_takes_over_when_nobody_was_fed_for_a_while() -> None:
    for dead in (GONE, HUNG):
        standby = Standby()
        assert not standby.looked(0, 1, {"a": FED})
        assert not standby.looked(100, 1, {"a": dead})
        assert not standby.looked(99 + GONE_MS, 1, {"a": dead})
        assert standby.looked(100 + GONE_MS, 1, {"a": dead})


def test_a_moment_without_a_session_is_no_death() -> None:
    standby = Standby()
    for now in range(0, 10_000, 400):
        assert not standby.looked(now, 1, {"a": GONE if now % 800 else FED})


def test_targets_that_do_not_answer_say_nothing() -> None:
    standby = Standby()
    for now in range(0, 100_000, 250):
        assert not standby.looked(now, 1, {})
    assert not standby.looked(100_000, 1, {"a": GONE})  # The wait begins here.
    assert standby.looked(100_000 + GONE_MS, 1, {"a": GONE})


def test_another_takeover_gets_time_to_connect() -> None:
    standby = Standby()
    standby.looked(0, 1, {"a": FED})
    standby.looked(1000, 1, {"a": GONE})
    assert not standby.looked(1000 + GONE_MS, 2, {"a": GONE})
    assert not standby.looked(999 + GONE_MS + GRACE_MS, 2, {"a": GONE})
    assert standby.looked(1000 + GONE_MS + GRACE_MS, 2, {"a": GONE})


def test_takeovers_that_feed_nobody_come_ever_more_rarely() -> None:
    standby, now, waits = Standby(), 0, []
    standby.looked(now, 1, {"a": GONE})
    for control in range(2, 12):
        began = now
        while not standby.looked(now, control, {"a": GONE}):
            now += 100
        waits.append(now - began)
    assert waits == sorted(waits)
    assert waits[0] == GRACE_MS
    assert waits[-1] == GRACE_MS_MAX
    standby.looked(now, 12, {"a": FED})
    standby.looked(now, 13, {"a": GONE})
    assert standby.looked(now + GRACE_MS, 13, {"a": GONE})


def test_it_asks_one_target_while_that_is_fed() -> None:
    standby = Standby()
    assert standby.ask({"a", "b"}) == {"a", "b"}
    standby.looked(0, 1, {"a": GONE, "b": FED})
    assert standby.ask({"a", "b"}) == {"b"}
    assert standby.ask({"a"}) == {"a"}
    standby.looked(1, 1, {"b": GONE})
    assert standby.ask({"a", "b"}) == {"a", "b"}


seen = st.dictionaries(st.sampled_from("abc"), st.sampled_from([FED, GONE, HUNG]))


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1), seen), max_size=50))
def test_it_never_takes_over_from_somebody_who_was_just_seen_to_play(
    looks: list[tuple[int, int, dict[str, TargetSeen]]],
) -> None:
    standby, now, control, fed_at = Standby(), 0, 1, -GONE_MS
    for ms, decisions, found in looks:
        now, control = now + ms, control + decisions
        if any(target.fed for target in found.values()):
            fed_at = now
        if standby.looked(now, control, found):
            assert found
            assert now - fed_at >= GONE_MS

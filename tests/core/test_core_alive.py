"""Whether a player lives: what a player that starts decides before it takes over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logplayer.core.alive import CLOSING_MS, QUIET_MS, Presence, TargetSeen, presence

GONE = TargetSeen(False)


def verdict(watched_ms: int, *seen: TargetSeen) -> Presence:
    return presence(watched_ms, {str(nth): one for nth, one in enumerate(seen)})


def test_without_an_open_stream_nobody_plays() -> None:
    assert verdict(0) is Presence.NOBODY
    assert verdict(0, GONE, GONE) is Presence.NOBODY


def test_a_player_that_goes_on_sending_is_alive() -> None:
    assert verdict(0, TargetSeen(True, 0)) is Presence.UNCLEAR
    assert verdict(CLOSING_MS + 299, TargetSeen(True, 300)) is Presence.UNCLEAR  # It may have been its last word.
    assert verdict(CLOSING_MS + 300, TargetSeen(True, 300)) is Presence.ALIVE


def test_one_fed_target_is_enough() -> None:
    assert verdict(CLOSING_MS, GONE, TargetSeen(True, QUIET_MS + 1), TargetSeen(True, 0)) is Presence.ALIVE


def test_a_player_whose_machine_is_gone_becomes_quiet() -> None:
    """Nothing closes its streams: they only age."""
    for watched in range(0, 20_000, 100):
        found = verdict(watched, TargetSeen(True, 700 + watched))
        assert found is (Presence.NOBODY if 700 + watched > QUIET_MS else Presence.UNCLEAR)


def test_a_target_that_cannot_tell_how_long_counts_as_fed() -> None:
    assert verdict(CLOSING_MS, TargetSeen(True)) is Presence.ALIVE


@given(st.lists(st.builds(TargetSeen, st.booleans(), st.integers(0, 3 * QUIET_MS))))
def test_it_is_clear_in_the_end(seen: list[TargetSeen]) -> None:
    assert verdict(QUIET_MS + CLOSING_MS, *seen) is not Presence.UNCLEAR

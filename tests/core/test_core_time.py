"""core/deadlines.py and core/reconnect.py: deadlines and the reconnect plan, given ``now``."""

from __future__ import annotations

from logplayer.core.deadlines import Deadlines
from logplayer.core.effects import CloseSession, SendBatch
from logplayer.core.events import Ticked
from logplayer.core.reconnect import Blocked, Reconnect
from tests.core.core_rig import acked, entry, fetch, limits, live_player, of, one, written


def test_an_open_that_is_not_answered() -> None:
    beat = Deadlines(limits(open_ms_max=200))
    beat.opening(1000)
    assert not beat.overdue(1200, 0)
    assert "Open" in beat.overdue(1201, 0)
    beat.opened(1201)
    assert not beat.overdue(1201, 0)


def test_a_silent_peer() -> None:
    beat = Deadlines(limits(silence_ms_max=250))
    beat.opened(0)
    assert not beat.overdue(250, 0)
    assert "silent" in beat.overdue(251, 0)


def test_a_peer_that_speaks_and_commits_nothing() -> None:
    beat = Deadlines(limits(progress_ms_max=400))
    beat.opened(0)
    beat.heard_at = 401
    assert not beat.overdue(401, 0)  # Nothing is owed.
    assert "no progress" in beat.overdue(401, 3)


def test_a_slow_target_that_is_always_busy_keeps_its_session() -> None:
    """There is never a moment without a batch in flight: only its acks tell that it makes progress."""
    player = live_player("a", progress_ms_max=400)
    flight: list[SendBatch] = []
    for index in range(2, 30):
        batch = one(fetch(player, entry(index, a="x")), SendBatch)
        written(player, batch)
        flight.append(batch)
        if len(flight) > 2:
            acked(player, flight.pop(0))
        assert of(player.step(Ticked(index * 50)), CloseSession) == []
    assert player.now > 3 * 400
    assert len(player.queues["a"].window.flight) == 2


def test_a_probe_goes_out_once_per_interval() -> None:
    beat = Deadlines(limits(heartbeat_ms=60))
    beat.opened(0)
    assert not beat.probe_due(59)
    assert beat.probe_due(60)
    assert not beat.probe_due(61)
    assert beat.probe_due(120)
    beat.heard_at = 170
    assert not beat.probe_due(180)


def test_the_back_off_doubles_up_to_its_limit_and_jitters() -> None:
    health = Reconnect("a", limits(backoff_ms_min=8, backoff_ms_max=64))
    waits = []
    for _ in range(8):
        health.lost(1000, "gone")
        waits.append(health.retry_at - 1000)
    for wait, full in zip(waits, (8, 16, 32, 64, 64, 64, 64, 64), strict=True):
        assert full // 2 <= wait <= full
    assert not health.due(health.retry_at - 1)
    assert health.due(health.retry_at)
    assert health.last_error == "gone"


def test_targets_do_not_come_back_in_step() -> None:
    waits = set()
    for name in (f"t{i}" for i in range(50)):
        health = Reconnect(name, limits(backoff_ms_min=1000, backoff_ms_max=1000))
        health.lost(0, "")
        waits.add(health.retry_at)
    assert len(waits) > 25


def test_attempts_without_end_do_not_overflow() -> None:
    health = Reconnect("a", limits())
    for _ in range(500):
        health.lost(0, "")
    assert health.retry_at <= 64


def test_a_blocked_target_is_looked_at_again_after_a_while() -> None:
    health = Reconnect("a", limits(blocked_ms=150))
    health.block(1000, Blocked("POISON", "no", 3))
    assert not health.due(1149)
    assert health.due(1150)
    health.unblock(1001)
    assert health.due(1001)
    assert health.blocked is None


def test_an_accepted_open_ends_what_an_open_is_refused_for() -> None:
    health = Reconnect("a", limits())
    for kind in ("RESEED", "WRONG_LOG", "WRONG_TARGET"):
        health.block(0, Blocked(kind, ""))
        health.admitted()
        assert health.blocked is None
    health.block(0, Blocked("POISON", "", 3))
    health.admitted()
    assert health.blocked is not None  # The entry is still ahead.

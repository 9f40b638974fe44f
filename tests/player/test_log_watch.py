"""What the player makes of a log that it cannot read, and how far its targets are from the log's end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from logplayer.core.control_state import ControlState
from logplayer.core.entry import ExplicitMap
from logplayer.core.events import Opened, Ticked
from logplayer.core.player import Player
from logplayer.errors import CorruptEntry, LogUnavailable
from logplayer.log.protocol import Info, Kind, Record
from logplayer.player.log_watch import LogWatch
from logplayer.player.news import News
from logplayer.player.progress import PlayerProgress, Sample, survey
from logplayer.player.status import PlayerFacts, Rates, TargetStatus, View, player_status
from logplayer.wire.entries import route_transaction

DAMAGE = CorruptEntry("entry 300 is damaged: its checksum does not match", 300)


def test_a_damaged_entry_is_named_until_it_is_read(caplog: pytest.LogCaptureFixture) -> None:
    watch = LogWatch()
    for _ in range(3):
        watch.failed(300, DAMAGE)
    assert watch.error == str(DAMAGE)
    assert caplog.text.count("stuck: entry 300 is damaged") == 1
    watch.ends_at(501, 299)
    assert watch.error
    watch.read(320)
    assert (watch.error, watch.last, watch.seconds()) == ("", 501, 0.0)


def test_a_log_that_has_nothing_more_can_be_read() -> None:
    watch = LogWatch()
    watch.read(299)
    watch.failed(300, LogUnavailable("gone"))
    assert watch.error == "the log cannot be read at entry 300: gone"
    watch.ends_at(299, 299)
    assert watch.error == ""


def live(acked: int, current: int) -> Player:
    player = Player(current, current, ControlState.start(ExplicitMap(), ("a",)), cut=route_transaction)
    player.step(Ticked(0))
    session = player.queues["a"].session
    assert session is not None
    player.step(Opened("a", session, acked))
    return player


def status(player: Player, watch: LogWatch, progress: PlayerProgress) -> TargetStatus:
    view = View(watch, News(), progress, Rates())
    [found] = player_status(player, PlayerFacts("p", "log", lambda name: ""), view).targets
    return found


def test_a_stuck_player_counts_lags_up_to_the_end_of_the_log() -> None:
    progress = PlayerProgress()
    progress.begin(Sample(0, 1, 0), Sample(299, 2, 29_900))
    player, watch = live(299, 299), LogWatch()
    watch.ends_at(299, 299)
    found = status(player, watch, progress)
    assert (found.state, found.lag_entries, found.lag_bytes, found.lag_seconds) == ("LIVE", 0, 0, 0.0)
    watch.ends_at(501, 299)
    watch.failed(300, DAMAGE)
    found = status(player, watch, progress)
    assert (found.lag_entries, found.lag_bytes) == (202, 20_200)


class Few:
    """A log of ten small entries that takes a lot of room."""

    async def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        yield [Record(index, Kind.DATA, "p", index, index, b"x" * 100, b"", 0) for index in range(first, 11)]


async def test_a_lag_in_bytes_counts_payloads() -> None:
    oldest, began = await survey(Few(), Info("id", 1, 10, 1, 16_000_000), 10)  # type: ignore[arg-type]
    assert (oldest.index, began.index, began.bytes) == (0, 10, 1000)
    _, began = await survey(Few(), Info("id", 1, 10, 1, 600), 10)  # type: ignore[arg-type]
    assert began.bytes == 600
    _, began = await survey(Few(), Info("id", 1, 10, 1, 0), 10)  # type: ignore[arg-type]
    assert began.bytes == 1000

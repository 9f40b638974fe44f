"""Every change of a target's state is one line in the player's log, with the reason, and not a flood."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logplayer.core.entry import Delivery
from logplayer.core.reconnect import Blocked
from logplayer.core.target_queue import TargetQueue
from logplayer.demo.world import free_ports
from logplayer.player.news import LINES_MAX, WINDOW_SECONDS, News
from tests.player.player_support import QUICK, House, until


class Told:
    """One queue, and what is said about it."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "logplayer.player")
        self._records = caplog
        self.news = News()
        self.queue = TargetQueue("a", QUICK)
        self.now = 0.0

    def look(self) -> list[str]:
        self._records.clear()
        self.now += 0.05
        self.news.look({"a": self.queue}, 10, self.now)
        return [f"{record.levelname} {record.getMessage()}" for record in self._records.records]

    def lose(self, error: str) -> None:
        self.queue.suspend()
        self.queue.reconnect.lost(0, error)

    def open(self, index: int) -> None:
        self.queue.open(1, 0, 0)
        self.queue.opened(index, b"", index, 0)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


def test_a_life_of_a_target(told: Told) -> None:
    assert told.look() == []  # Not tried yet.
    told.open(4)
    assert told.look() == ["INFO target a: CATCHING_UP: connected, has index 4, lags by 6 entries"]
    assert told.look() == []
    told.queue.cover(10, b"")
    told.queue.join(10)
    assert told.look() == ["INFO target a: LIVE: follows the log from entry 11 on, has index 4"]
    told.queue.demote(10, b"")
    assert told.look() == ["INFO target a: CATCHING_UP: its queue was full, has index 4, lags by 6 entries"]
    told.lose("the stream ended")
    assert told.look() == ["WARNING target a: SUSPENDED: the stream ended; has index 4; trying again"]
    assert told.news.state_seconds("a", told.now + 2) == pytest.approx(2)
    told.news.look({}, 10, 9.0)
    assert told.look()[0] == "INFO target a: added"


def test_a_target_that_is_away_is_one_line_and_one_more_for_a_new_reason(told: Told) -> None:
    lines = []
    for error in ("refused", "refused", "no route", "refused", "no route"):
        told.queue.open(1, 0, 0)
        lines += told.look()
        told.lose(error)
        lines += told.look()
    assert lines == [
        "WARNING target a: SUSPENDED: refused; trying again",
        "WARNING target a: still SUSPENDED: no route; trying again",
    ]
    told.open(10)
    told.queue.join(10)
    told.look()
    told.lose("refused")
    assert told.look() == ["WARNING target a: SUSPENDED: refused; has index 10; trying again"]


def test_a_poisoned_target_is_not_announced_at_each_retry(told: Told) -> None:
    told.open(4)
    told.look()
    for _ in range(3):
        told.queue.suspend()
        told.queue.reconnect.block(0, Blocked("POISON", "no", 5))
        assert told.look() == []  # The core's report is the line.
        told.open(4)
        assert told.look() == []
    told.queue.suspend()
    told.queue.reconnect.unblock(0)
    assert told.look() == ["INFO target a: no longer blocked; trying again"]
    told.open(4)
    assert told.look() == ["INFO target a: CATCHING_UP: connected, has index 4, lags by 6 entries"]


def test_a_target_that_moves_on_by_itself_is_said_to(told: Told) -> None:
    told.open(4)
    told.queue.reconnect.block(0, Blocked("POISON", "no", 5))
    assert told.look() == []
    told.queue.offer(Delivery(5, b"x"))
    told.queue.take(5, b"")
    told.queue.ack(5, 0)
    assert told.look() == ["INFO target a: CATCHING_UP: connected, has index 5, lags by 5 entries"]


def test_a_session_that_came_and_went_between_two_looks_is_told(told: Told) -> None:
    told.open(10)
    told.queue.join(10)
    told.look()
    told.lose("reset")
    told.open(10)
    told.queue.join(10)
    assert told.look()[0] == "WARNING target a: SUSPENDED for a moment: reset"


def test_flapping_is_seen_but_is_no_flood(told: Told) -> None:
    lines = []
    for _ in range(30):
        told.open(10)
        told.queue.join(10)
        lines += told.look()
        told.lose("reset")
        lines += told.look()
    assert len(lines) == LINES_MAX
    told.now += WINDOW_SECONDS
    assert told.look() == ["INFO target a: SUSPENDED (50 changes before this were not logged)"]


@contextlib.asynccontextmanager
async def process(*arguments: str, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    with log.open("ab") as out:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "logplayer.cli", *arguments, stdout=out, stderr=out
        )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def test_a_killed_target_and_its_return_are_lines_in_the_players_log(house: House, tmp_path: Path) -> None:
    [port] = free_ports(1)
    where = f"127.0.0.1:{port}"
    serve = ("target", "serve", "--store", "sqlite", "--path", str(tmp_path / "t.db"), "--id", "t")
    play = ("play", "--in-process", "--log", house.log_address, "--target", f"t=tcp://{where}")
    log = tmp_path / "player.txt"

    def lines(text: str) -> list[str]:
        return [line for line in log.read_text().splitlines() if text in line]

    async with process(*play, "--http", "127.0.0.1:0", log=log):
        async with process(*serve, "--listen-tcp", where, log=tmp_path / "t.txt") as child:
            await until(lambda: log.exists() and len(lines("target t: LIVE")) == 1, "t is LIVE")
            os.kill(child.pid, signal.SIGKILL)
            await until(lambda: bool(lines("target t: SUSPENDED: ")), "its loss is told")
        await house.append(3, targets="t")
        await asyncio.sleep(1)
        away = lines("SUSPENDED")
        assert 1 <= len(away) <= 3, away  # Dropped, then refused; not once for each attempt.
        assert all("WARNING" in line for line in away)
        async with process(*serve, "--listen-tcp", where, log=tmp_path / "t.txt"):
            await until(lambda: len(lines("target t: LIVE")) == 2, "its return is told")

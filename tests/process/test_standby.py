"""`play --in-process --standby`: real processes that are killed, frozen and replaced; each entry arrives once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.player.player_support import PATIENCE, House, load, until

pytestmark = pytest.mark.slow


class Player:
    """A `logplayer play` process, and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said.append(json.loads(line))

    @property
    def now(self) -> str:
        return self.said[-1]["event"] if self.said else ""

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        code = await asyncio.wait_for(self.process.wait(), PATIENCE)
        await self._reading
        return code


class Players:
    """Starts players of a house; those that still run are killed at the end."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._all: list[Player] = []

    async def start(self, *options: str) -> Player:
        targets = [word for name, seat in self._house.seats.items() for word in ("--target", f"{name}={seat.address}")]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "logplayer.cli", "play", "--in-process", "--json", "--http", "127.0.0.1:0"),
            *("--log", self._house.log_address, *targets, *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self._all.append(Player(process))
        return self._all[-1]

    async def started(self, event: str, *options: str) -> Player:
        player = await self.start(*options)
        await until(lambda: player.now == event, f"a player says {event}")
        return player

    async def kill(self) -> None:
        for player in self._all:
            if player.process.returncode is None:
                player.process.kill()
            await player.ended()


@contextlib.asynccontextmanager
async def players(folder: Path) -> AsyncIterator[tuple[House, Players]]:
    async with House(folder) as house:
        await house.targets(["a", "b"])
        made = Players(house)
        try:
            yield house, made
        finally:
            await made.kill()


async def test_standbys_take_over_from_a_killed_and_from_a_frozen_player(tmp_path: Path) -> None:
    async with players(tmp_path) as (house, made):
        active = await made.started("playing")
        pair = [await made.started("standby", "--standby") for _ in range(2)]
        async with load(house, 200):
            await house.delivered(await house.append(50))
            assert [player.now for player in pair] == ["standby", "standby"]

            active.send(signal.SIGSTOP)  # Its sockets stay open.
            await house.delivered(await house.append(50))
            await until(lambda: sorted(player.now for player in pair) == ["playing", "standby"], "one of two plays")
            active.send(signal.SIGCONT)
            assert await active.ended() == 3
            assert active.now == "ended"
            await house.delivered(await house.append(50))

            [playing] = [player for player in pair if player.now == "playing"]
            [last] = [player for player in pair if player.now == "standby"]
            playing.send(signal.SIGKILL)
            await house.delivered(await house.append(50))
            assert last.now == "playing"

            newest = await made.started("playing", "--take-over")
            await until(lambda: last.now == "standby", "the superseded standby stands by again")
            assert [line["event"] for line in last.said][-2:] == ["superseded", "standby"]
            newest.send(signal.SIGKILL)
            await house.delivered(await house.append(50))
            assert last.now == "playing"
        end = await house.append(1)
        await house.delivered(end)
        last.send(signal.SIGTERM)
        assert await last.ended() == 0
        assert not await house.problems()


async def test_a_standby_that_is_stopped_ends_and_waits_for_nobody_if_nobody_plays(tmp_path: Path) -> None:
    async with players(tmp_path) as (house, made):
        first = await made.start("--standby")
        await until(lambda: first.now == "playing", "the only standby plays")
        second = await made.started("standby", "--standby")
        second.send(signal.SIGTERM)
        assert await second.ended() == 0
        assert [line["event"] for line in second.said] == ["standby", "ended"]
        await house.delivered(await house.append(10))
        assert not await house.problems()

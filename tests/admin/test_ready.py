"""``/readyz`` of real players: 503 and why until they have taken over, then 200."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logplayer.demo.world import free_ports
from tests.admin.test_http import get, send
from tests.player.player_support import PATIENCE, House
from tests.player.test_start import Process, play, run, said


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with House(tmp_path) as made:
        await made.targets("ab")
        yield made


async def ready(where: str) -> tuple[int, str]:
    """The code, and what is said; 0 while nobody listens."""
    try:
        answer = await send(where, get("/readyz"))
    except OSError:
        return 0, ""
    return int(answer.split(b" ", 2)[1]), answer.split(b"\r\n\r\n", 1)[1].decode().strip()


async def becomes(process: Process, where: str, code: int, word: str) -> None:
    """Wait until it says so; a player that ends fails the test."""
    async with asyncio.timeout(PATIENCE):
        while not ((seen := await ready(where))[0] == code and word in seen[1]):
            assert process.returncode is None
            await asyncio.sleep(0.05)


def ports(count: int) -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


async def test_a_player_is_ready_when_it_has_taken_over(house: House) -> None:
    [where] = ports(1)
    await house.log_down()
    async with run(*play(house, "--http", where)) as player:
        await becomes(player, where, 503, "it waits for its log: ")
        assert (await send(where, get("/healthz"))).startswith(b"HTTP/1.1 200")
        await house.log_up()
        facts = await said(player, "playing")
        assert (await ready(where), facts["http"]) == ((200, "ok"), where)
    assert (await ready(where))[0] == 0


async def test_a_standby_is_ready_when_it_has_taken_over(house: House) -> None:
    at, where = ports(2)
    async with run(*play(house, "--http", at)) as first, run(*play(house, "--http", where, "--standby")) as standby:
        await said(first, "playing")
        await said(standby, "standby")
        assert await ready(where) == (503, "it stands by: another player plays")
        assert await ready(at) == (200, "ok")
        first.kill()
        await said(standby, "playing")
        assert await ready(where) == (200, "ok")

"""Five hundred targets in one player, with one dead, one frozen, one poisoned and one slow among them."""

from __future__ import annotations

import asyncio
import functools
import signal
import sqlite3
import sys

import pytest

from logplayer.core.entry import ExplicitMap
from logplayer.core.limits import Limits
from logplayer.log.protocol import NewEntry
from logplayer.target.client import position
from logplayer.wire.entries import encode_mutation
from tests import ROOT
from tests.campaign.check import expect, read_all
from tests.player import player_support
from tests.player.player_support import House

COUNT = 500
# A look at the status of 500 targets takes milliseconds: more often, and the test keeps the player from its work.
until = functools.partial(player_support.until, every=0.25)
SPECIAL = ("dead", "poisoned", "slow", "frozen")


async def spawn(scheme: str, first: int, count: int) -> tuple[asyncio.subprocess.Process, str]:
    command = [sys.executable, "-m", "tests.player.many_targets", scheme, str(first), str(count)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    return process, (await asyncio.wait_for(process.stdout.readline(), 120)).decode().strip()


@pytest.mark.parametrize("scheme", ["tcp", "grpc"])
async def test_trouble_of_a_few_costs_hundreds_nothing(house: House, scheme: str) -> None:
    healthy = COUNT - len(SPECIAL)
    process, address = await spawn(scheme, 0, healthy)
    frozen, frozen_address = await spawn(scheme, 9000, 1)
    try:
        addresses = {f"s{number}": address for number in range(healthy)}
        for name in SPECIAL[:3]:
            house.seats.update({name: (await house.targets([name], scheme))[0]})
        await house.seats["slow"].down()
        house.seats["slow"].slow = 0.1
        await house.seats["slow"].up()
        await house.seats["dead"].down()
        with sqlite3.connect(house.seats["poisoned"].path) as db:
            db.execute("CREATE TRIGGER t BEFORE INSERT ON data BEGIN SELECT RAISE(ABORT, 'no'); END")
        addresses |= {name: house.seats[name].address for name in SPECIAL[:3]} | {"s9000": frozen_address}
        limits = Limits(open_ms_max=30_000, idle_ms_max=500, blocked_ms=500)
        player = await house.play(targets=addresses, map=ExplicitMap(), limits=limits)

        def states() -> list[str]:
            return [item.state for item in player.shell.status().targets]

        await until(lambda: states().count("LIVE") >= COUNT - 2, "all that can are LIVE", 300)
        frozen.send_signal(signal.SIGSTOP)
        last = await append_for_all(house, list(addresses))
        wanted = expect(await read_all(house.file), addresses, lambda key: "")
        for number in range(0, healthy, 7):
            name = f"s{number}"
            await until(lambda name=name: player.target(name).index >= wanted[name].last, f"{name} has all", 300)
            assert player.target(name).digest == f"{wanted[name].digest:032x}"
        assert (await position(address, "s0")).digest == wanted["s0"].digest
        await until(lambda: player.state("poisoned") == "BLOCKED", "the poison was found")
        assert player.target("dead").state == "SUSPENDED"
        await until(lambda: player.state("s9000") == "SUSPENDED", "the freeze was found", 300)
        frozen.send_signal(signal.SIGCONT)
        await house.seats["dead"].up()
        await until(lambda: states().count("LIVE") == COUNT - 1, "all but the poisoned one are LIVE", 300)
        await until(
            lambda: min(seat.index for name, seat in house.seats.items() if name != "poisoned") >= last - 2, "all"
        )
        assert player.target("s9000").digest == f"{wanted['s9000'].digest:032x}"
    finally:
        for child in (process, frozen):
            child.kill()
            await child.wait()


async def append_for_all(house: House, names: list[str]) -> int:
    """A few rounds of one mutation for each target, ten targets to a transaction."""
    index, sequence = 0, 0
    for turn in range(4):
        group = []
        for start in range(0, len(names), 10):
            sequence += 1
            key = f"{turn}/{start}".encode()
            payload = b"".join(encode_mutation(key, key, name).encoded for name in names[start : start + 10])
            group.append(NewEntry("many", sequence, payload))
        index = (await house.file.append(group))[-1]
    return index

"""Nothing goes nowhere in silence: the map that a player begins with, what it refuses, and a map that is corrected."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from logplayer.core.entry import ExplicitMap, HashMap, MapChanged, Takeover
from logplayer.core.routing import owner_of
from logplayer.errors import ConfigError
from logplayer.log import control_chain as chain
from logplayer.player.shell import Shell
from logplayer.wire.entries import encode_mutation
from tests.player.player_support import QUICK, House, until

pytestmark = pytest.mark.asyncio
COMMAND = [sys.executable, "-m", "logplayer.cli"]


async def logplayer(*arguments: str, code: int = 0) -> str:
    """Run the command line; what it printed, both streams."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        out = (await asyncio.wait_for(process.communicate(), 120))[0].decode()
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, "Traceback" in out) == (code, False), out
    return out


@contextlib.asynccontextmanager
async def play(house: House, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A player as a process of its own, while the body runs."""
    targets = [f"--target={name}={seat.address}" for name, seat in house.seats.items()]
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "play", "--in-process", "--log", house.log_address, "--http", "127.0.0.1:0", "--json",
        *targets, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), 120)


async def test_a_file_without_a_map_beside_targets_means_hash_over_them(house: House, tmp_path: Path) -> None:
    await house.targets("ab")
    last = await house.append(50)
    file = tmp_path / "some.toml"
    file.write_text("[limits]\nheartbeat_ms = 1000\n")
    async with play(house, "--config", str(file)):
        await house.delivered(last)
    assert await house.problems() == []
    assert (await chain.load(house.file)).control(None).router.versions() == [(0, HashMap(("a", "b")))]


async def test_a_map_of_targets_that_the_command_line_does_not_give_is_refused(house: House, tmp_path: Path) -> None:
    await house.targets("ab")
    file = tmp_path / "some.toml"
    file.write_text('[map]\nkind = "hash"\ntargets = ["a", "c"]\n')
    async with play(house, "--config", str(file)) as process:
        out, error = await asyncio.wait_for(process.communicate(), 120)
    assert (process.returncode, out) == (2, b"")
    assert error.decode().count("\n") == 1
    assert "[map] names the target 'c'" in error.decode()
    assert (await house.file.info()).control == 0  # Nothing was recorded.


async def test_targets_added_before_the_first_player_share_the_keys(house: House) -> None:
    """``target add`` decides on members only: no map is guessed while they are being added."""
    seats = await house.targets("ab")
    last = await house.append(20)
    for seat in seats:
        await logplayer("target", "add", seat.name, seat.address, "--at", "0", "--log", house.log_address)
    player = await house.play(targets={}, map=None)
    await house.delivered(last)
    assert await house.problems() == []
    assert player.shell.core.control.router.versions() == [(0, HashMap(("a", "b")))]


async def test_a_player_without_any_target_is_refused(house: House) -> None:
    out = await logplayer("play", "--in-process", "--log", house.log_address, "--http", "127.0.0.1:0", code=2)
    assert "no target" in out
    assert "logplayer target add" in out
    assert (await house.file.info()).last == 0


async def test_a_first_map_that_names_no_member_is_refused_before_the_takeover(house: House) -> None:
    await house.targets("ab")
    before = await chain.append(house.file, Takeover("", "old"), HashMap(("x", "y")), (("a", ""), ("b", "")))
    shell = Shell(await house.client(), house.config(map=None))
    with pytest.raises(ConfigError, match=r"hash:x,y.*logplayer map set"):
        await shell.run()
    assert (await house.file.info()).last == before[0]


async def test_a_new_map_may_wait_for_its_targets(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """A backfill puts the map into the log before it adds the targets: a player that restarts meanwhile goes on."""
    await house.targets("ab")
    await chain.append(house.file, Takeover("", "old"), HashMap(("a", "b")), (("a", ""), ("b", "")))
    await chain.append(house.file, MapChanged(HashMap(("a", "c"))), None)
    await house.play()
    assert "c is not a target of this log" in caplog.text
    assert "logplayer target add c" in caplog.text


async def test_a_recorded_map_that_differs_from_the_given_one_is_told(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    await house.targets("ab")
    await chain.append(house.file, Takeover("", "old"), ExplicitMap(), (("a", ""), ("b", "")))
    player = await house.play(map=HashMap(("a", "b")))
    assert "the map that this log has recorded is in force: explicit" in caplog.text
    assert "not the given one: hash:a,b" in caplog.text
    await player.stop()
    caplog.clear()
    player = await house.play(map=None)
    assert "not the given one: hash:a,b" in caplog.text  # It is the default of a player with targets.
    await player.stop()
    caplog.clear()
    await house.play(map=ExplicitMap())
    assert "is in force" not in caplog.text


async def test_a_wrong_map_is_corrected_for_later_entries(house: House) -> None:
    await house.targets("ab")
    await chain.append(
        house.file, Takeover("", "old"), ExplicitMap(), tuple((n, s.address) for n, s in house.seats.items())
    )
    player = await house.play(map=ExplicitMap())
    told = json.loads(await logplayer("map", "show", "--log", house.log_address, "--json"))
    assert told["maps"] == [{"after": 0, "map": "explicit"}]
    out = await logplayer("map", "set", "hash:a,c", "--log", house.log_address, code=2)
    assert "c is not a target of this log" in out
    told = json.loads(await logplayer("map", "set", "hash:a,b", "--log", house.log_address, "--json"))
    last = await house.append(30)
    await house.delivered(last)
    assert player.shell.status().unroutable == 0
    shown = await logplayer("map", "show", "--log", house.log_address)
    assert f"after {told['index']}" in shown
    assert "hash:a,b" in shown
    out = await logplayer("map", "set", "hash:a,b", "--log", house.log_address, code=2)
    assert "is in force already" in out


TRIMMING = replace(QUICK, trim_entries_min=1)


async def first_index(house: House) -> int:
    return (await house.file.info()).first


async def test_what_reached_nobody_is_still_there_after_restarts(house: House) -> None:
    """The next player begins after it and would never see it; it looks through the log before it trims."""
    await house.targets("ab")
    player = await house.play(trims=True, limits=TRIMMING)
    await house.append(20)
    lost = await house.append_raw(encode_mutation(b"k", b"v", "ghost").encoded)
    await house.delivered(await house.append(20))
    for _ in range(2):
        await player.stop()
        player = await house.play(trims=True, limits=TRIMMING)  # Its takeover is the newest control record.
        await house.delivered(await house.append(20))
        core = player.shell.core
        await until(lambda core=core: core._surveyed >= core.epoch and core.trimmed >= lost - 1, "it trims")
        assert await first_index(house) == lost
        assert player.shell.status().unroutable == 1
    await player.stop()
    core = (await house.play(trims=True, trims_unroutable=True, limits=TRIMMING)).shell.core
    await until(lambda: core.trimmed >= lost, "the operator lets it go")


async def test_what_a_wrong_map_lost_is_appended_again_and_arrives_once(house: House) -> None:
    await house.targets("ab")
    seats = tuple((name, seat.address) for name, seat in house.seats.items())
    await chain.append(house.file, Takeover("", "old"), ExplicitMap(), seats)
    async with play(house):
        last = await house.append(30)
        await house.delivered(last)
        out = await logplayer("map", "reappend", "--log", house.log_address, code=2)
        assert "logplayer map set" in out
        await logplayer("map", "set", "hash:a,b", "--log", house.log_address)
        first = json.loads(await logplayer("map", "reappend", "--log", house.log_address, "--json"))
        again = json.loads(await logplayer("map", "reappend", "--log", house.log_address, "--json"))
        assert first == again
        assert first["entries"] == 30
        await house.delivered(first["indexes"][-1])
    owner = owner_of(HashMap(("a", "b")))
    for number in range(1, 31):
        for key in (f"e/p/{number}".encode(), f"x/p/{number}".encode()):
            with house.seats[owner(key)].store() as store:
                assert store.get(key) == f"p/{number}".encode()
    assert (await house.file.info()).last == first["indexes"][-1]  # The second run has appended nothing.
    assert await house.problems(after={"a": last, "b": last}) == []


async def test_an_older_value_is_not_put_over_a_newer_one_unasked(house: House) -> None:
    await chain.append(house.file, Takeover("", "old"), ExplicitMap(), (("a", ""), ("b", "")))
    await house.append(8)
    await chain.append(house.file, MapChanged(HashMap(("a", "b"))), None)
    await house.append(8)
    out = await logplayer("map", "reappend", "--log", house.log_address, code=2)
    assert "newest/" in out
    assert "--force" in out
    assert "8 entries" in await logplayer("map", "reappend", "--force", "--log", house.log_address)

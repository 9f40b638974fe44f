"""What an operator sees: the figures are right, and the commands show them."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace

import pytest

from logplayer.log.protocol import Kind, Record
from logplayer.player.progress import PlayerProgress, Sample
from logplayer.player.status_table import status_table
from tests.player.player_support import PATIENCE, QUICK, House, load, until


async def test_a_target_that_has_everything_lags_by_nothing(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    last = await house.append(100)
    await house.delivered(last)
    await until(player.live, "both are LIVE")
    await until(lambda: all(player.target(name).index >= last for name in "ab"), "both acks are in")
    status = player.shell.status()
    assert (status.state, status.current, status.log_last) == ("playing", last, last)
    for target in status.targets:
        assert (target.lag_entries, target.lag_bytes, target.lag_seconds) == (0, 0, 0.0)
        assert (target.eta_seconds, target.error, target.queued, target.in_flight) == (0.0, "", 0, 0)
        assert target.index == last
        assert target.digest == f"{house.seats[target.target].position.digest:032x}"
    await until(lambda: player.shell.status().consistent_cut == last, "the cut is the end of the log")


async def test_a_dead_target_lags_by_all_that_came_since(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    stood = await house.append(100)
    await house.delivered(stood)
    await until(lambda: player.target("b").index >= stood, "the ack is in")
    await house.seats["b"].down()
    value = b"v" * 1000
    last = await house.append(500, value=value)
    await house.delivered(last, "a")
    await asyncio.sleep(0.3)  # For the lag in seconds.
    await until(lambda: player.target("b").state == "SUSPENDED", "its end is noticed")
    await until(lambda: player.shell.status().log_last == last, "the player has seen the end of the log")
    dead = player.target("b")
    assert dead.index == stood
    assert dead.lag_entries == last - stood
    assert 500 * 2000 <= dead.lag_bytes <= 500 * 2300
    assert 0.25 < dead.lag_seconds < PATIENCE
    assert dead.eta_seconds is None
    assert dead.attempts >= 1
    assert "127.0.0.1" in dead.error
    assert player.shell.status().consistent_cut == stood
    assert f"  -    {dead.error}" in status_table(player.shell.status().as_json())  # Not a word about an ETA.


async def test_a_new_player_knows_how_far_a_dead_target_lags(house: House) -> None:
    """What lies in front of its start it has not read; it still tells about how much that is."""
    await house.targets("ab")
    player = await house.play()
    await house.delivered(await house.append(10))
    await house.seats["b"].down()
    last = await house.append(1000, value=b"v" * 500)
    await house.delivered(last, "a")
    await player.stop()
    await asyncio.sleep(0.2)
    player = await house.play()
    await until(lambda: player.target("a").state == "LIVE", "a is LIVE")
    dead = player.target("b")
    assert dead.index == -1
    assert dead.lag_entries >= last
    assert dead.lag_bytes > 500_000
    assert dead.lag_seconds > 0.2


async def test_a_catching_up_target_has_a_rate_and_a_time(house: House) -> None:
    await house.targets("ab")
    slow = house.seats["b"]
    await slow.down()
    slow.slow = 0.02
    player = await house.play(limits=replace(QUICK, queue_count_max=100, batch_count_max=20, flight_batches_max=2))
    await house.delivered(await house.append(3000), "a")
    await slow.up()
    await until(lambda: (player.target("b").eta_seconds or 0) > 0, "a time to catch up is told")
    target = player.target("b")
    assert target.state == "CATCHING_UP"
    assert target.entries_per_second > 0


def test_lag_between_two_samples_is_spread_evenly() -> None:
    progress = PlayerProgress()
    progress.begin(Sample(100, 1_000_000, 0), Sample(200, 3_000_000, 10_000))
    assert progress.bytes_behind(100) == 10_000
    assert progress.bytes_behind(150) == 5_000
    assert progress.bytes_behind(200) == 0
    assert progress.bytes_behind(0) == 10_000
    assert progress.seconds_behind(149, 4_000_000) == pytest.approx(2.0)
    assert progress.seconds_behind(200, 4_000_000) == 0.0


def test_an_entry_after_an_idle_hour_is_as_old_as_it_is() -> None:
    """A batch that was read at once was not committed evenly since the one before it."""
    progress, hour = PlayerProgress(), 3_600_000_000
    progress.begin(Sample(0, 0, 0), Sample(10, 1_000_000, 100))
    progress.fetched([Record(index, Kind.DATA, "p", index, hour + index, b"1234", b"", 0) for index in range(11, 31)])
    assert progress.seconds_behind(10, hour + 1_000_000) == pytest.approx(1.0, abs=0.001)
    assert progress.bytes_behind(10) == 80
    assert progress.bytes_behind(29) == 4


async def test_status_and_retry_on_the_command_line(house: House) -> None:
    await house.targets("ab")
    command = [sys.executable, "-m", "logplayer.cli"]
    targets = [f"--target={name}={seat.address}" for name, seat in house.seats.items()]
    play = await asyncio.create_subprocess_exec(
        *command, "play", "--in-process", "--log", house.log_address, *targets, "--http", "127.0.0.1:0", "--json",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert play.stdout is not None
    said = json.loads(await asyncio.wait_for(play.stdout.readline(), 120))
    assert said["event"] == "playing"
    await house.delivered(await house.append(50))
    where = said["http"]

    async def run(*arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *command, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, error = await asyncio.wait_for(process.communicate(), 120)
        return process.returncode or 0, out.decode(), error.decode()

    code, out, _ = await run("status", "--json", "--player", where)
    status = json.loads(out)
    assert code == 0
    assert {item["target"]: item["state"] for item in status["targets"]} == {"a": "LIVE", "b": "LIVE"}
    code, out, _ = await run("status", "--player", where)
    assert out.splitlines()[1].split()[:3] == ["TARGET", "STATE", "INDEX"]
    code, _, error = await run("target", "retry", "nobody", "--player", where)
    assert (code, "has no target 'nobody'" in error) == (2, True)
    play.terminate()
    assert json.loads(await asyncio.wait_for(play.stdout.readline(), 120)) == {
        "event": "ended",
        "kind": "stopped",
        "epoch": 0,
        "reason": "",
    }
    assert await play.wait() == 0
    code, _, error = await run("status", "--player", where)
    assert (code, "no player answers" in error, "Traceback" in error) == (1, True, False)


async def test_the_load_shows_in_the_rates(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    async with load(house, 500):
        await until(lambda: player.shell.status().entries_per_second > 50, "the player's rate is there")
        await until(lambda: player.target("a").entries_per_second > 50, "the target's rate is there")

"""The status of a player whose log is damaged, in the main stream or in catch-up, or unreachable."""

from __future__ import annotations

import logging

import pytest

from logplayer.errors import OtherLog
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import NewEntry
from logplayer.player.status_table import status_table
from logplayer.testing.conformance.log_harness import flip_in_files
from logplayer.wire.entries import encode_mutation
from tests.player.player_support import House, until

NEEDLE = b"the entry that will be damaged, which is long enough to be found once"


async def damaged(house: House, *first: str) -> tuple[int, int]:
    """Damage an entry in the middle of the log on the disk, once ``first`` have it; its index and the last one."""
    bad = await house.append_raw(encode_mutation(b"k", NEEDLE, "a").encoded)
    last = await house.append(20)
    if first:
        await house.delivered(last, *first)
    await house.log_down()
    assert flip_in_files(sorted((house.directory / "log").glob("*.seg")), NEEDLE) == 1
    await house.log_up()
    return bad, last


async def test_a_damaged_entry_in_the_main_stream_is_told(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "logplayer.player")
    await house.targets("ab")
    player = await house.play()
    await house.delivered(await house.append(10))
    await player.stop()
    bad, last = await damaged(house)
    player = await house.play()
    await until(lambda: player.shell.status().state == "stuck", "the player is stuck")
    status = player.shell.status()
    end = status.log_last
    assert end >= last
    assert status.log_error.startswith(f"entry {bad} is damaged: ")
    assert status.current == bad - 1
    await until(lambda: all(player.target(name).lag_entries == end - bad + 1 for name in "ab"), "the lag is told")
    await until(lambda: player.target("a").lag_seconds > 1, "it grows older")
    assert player.target("a").lag_bytes > 0
    assert player.target("a").eta_seconds is None
    table = status_table(player.shell.status().as_json())
    assert ", stuck: at entry " in table
    assert table.splitlines()[1].startswith(f"entry {bad} is damaged: ")
    await until(lambda: player.shell.status().stuck_seconds > 1, "it is stuck for a while")
    said = [
        record for record in caplog.records if record.name == "logplayer.player" and "damaged" in record.getMessage()
    ]
    assert [record.levelname for record in said] == ["ERROR"]  # Once, not at each attempt.


async def test_a_damaged_entry_in_catch_up_is_told(house: House, caplog: pytest.LogCaptureFixture) -> None:
    await house.targets("ab")
    await house.seats["a"].down()
    player = await house.play()
    await house.delivered(await house.append(10), "b")
    bad, _ = await damaged(house, "b")
    await player.stop()
    await house.seats["a"].up()
    player = await house.play()
    await until(lambda: f"entry {bad} is damaged" in player.target("a").error, "the error is told")
    await until(lambda: player.target("a").index == bad - 1, "it gets what is whole")
    assert player.target("a").state == "CATCHING_UP"
    assert player.target("a").lag_entries > 20
    await until(lambda: "target a: cannot catch up: " in caplog.text, "it is in the log")
    assert player.shell.status().state == "playing"
    await until(lambda: player.target("b").lag_entries == 0, "b lacks nothing")


async def test_a_log_that_is_away_is_told_until_it_is_back(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    last = await house.append(10)
    await house.delivered(last)
    await house.log_down()
    await until(lambda: player.shell.status().state == "stuck", "the player is stuck")
    assert f"the log cannot be read at entry {last + 1}: " in player.shell.status().log_error
    await house.log_up()
    await until(lambda: player.shell.status().state == "playing", "it plays on, though nothing is appended")
    status = player.shell.status()
    assert (status.log_error, status.stuck_seconds) == ("", 0.0)
    assert player.target("a").lag_entries == 0
    last = await house.append(10)
    await house.delivered(last)


async def test_another_log_at_the_same_address_is_not_played(house: House) -> None:
    """A log server that was restarted on the wrong directory: nothing of that log is delivered or trimmed."""
    await house.targets("a")
    player = await house.play()
    await house.delivered(await house.append(5))
    right, wrong = house.directory / "log", house.directory / "wrong"
    await house.log_down()
    right.rename(house.directory / "right")
    await house.log_up()
    other = await FileLog.open(wrong)
    for sequence in range(1, 31):
        await other.append([NewEntry("p", sequence, encode_mutation(b"WRONG", b"x", "a").encoded)])
    await other.close()
    await house.log_down()
    right.rename(house.directory / "empty")
    wrong.rename(right)
    await house.log_up()
    await until(lambda: "this server has log" in player.shell.status().log_error, "the player sees another log")
    had = house.seats["a"].index
    for call in (house.log.info(), house.log.trim(3), house.log.append([NewEntry("q", 1, b"")])):
        with pytest.raises(OtherLog, match="nothing was read or changed"):
            await call
    assert (await house.file.info()).first == 1
    await house.log_down()
    right.rename(wrong)
    (house.directory / "right").rename(right)
    await house.log_up()
    await house.delivered(await house.append(5))
    assert house.seats["a"].index > had
    with house.seats["a"].store() as store:
        assert store.get(b"WRONG") is None

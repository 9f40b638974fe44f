"""Logs that an older version let jam: ``logplayer log repair`` brings their decisions back, and players deliver."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from logplayer.core.control_state import ControlState
from logplayer.core.entry import MapChanged, Quarantined, Takeover, TargetAdded
from logplayer.errors import ControlJammed
from logplayer.log import control_chain as chain
from logplayer.log.control_rules import Guard
from logplayer.log.protocol import Kind, NewEntry
from logplayer.log.repair import examine
from logplayer.player.ended import STOPPED
from logplayer.player.shell import Shell
from logplayer.target.client import position
from logplayer.testing.conformance.logs_control import MAP, wrong_payloads
from logplayer.wire.entries import encode_control
from tests.player.player_support import PATIENCE, House

Jam = Callable[[House], Awaitable[None]]


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with House(tmp_path) as house:
        yield house


async def _next(house: House) -> int:
    return (await chain.load(house.file)).sequence + 1


async def data_under_the_name(house: House) -> None:
    await house.file.append([NewEntry(chain.PRODUCER, await _next(house), b"\x12\x01x")])


async def data_before_the_first_player(house: House) -> None:
    await house.file.append([NewEntry(chain.PRODUCER, 1, b"")])


async def garbage(house: House) -> None:
    await house.file.append([NewEntry(chain.PRODUCER, await _next(house), b"\xff\xff", Kind.CONTROL)])


async def nothing(house: House) -> None:
    await house.file.append([NewEntry("web-1", 1, b"", Kind.CONTROL)])


async def a_forged_takeover(house: House) -> None:
    for sequence in (1, 2):
        await house.file.append([NewEntry("x", sequence, encode_control(Takeover("", "x")), Kind.CONTROL)])


async def a_map_without_targets(house: House) -> None:
    head = await chain.load(house.file)
    payload = wrong_payloads(head.control(MAP))["a map without targets"]
    await house.file.append([NewEntry(chain.PRODUCER, head.sequence + 1, payload, Kind.CONTROL)])


async def a_trim(house: House) -> None:
    await house.file.trim((await house.file.info()).last)


JAMS = [data_under_the_name, garbage, nothing, a_forged_takeover, a_map_without_targets]


async def as_before(jam: Jam, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an older version let happen; then the log server starts again."""
    with monkeypatch.context() as patched:
        patched.setattr(Guard, "admit", lambda *_: None)
        patched.setattr(Guard, "trim_limit", lambda _, up_to: up_to)
        patched.setattr("logplayer.log.file.log.check_group", lambda _: None)
        await jam(house)
    await house.log_down()
    await house.log_up()


async def cli(*arguments: str) -> tuple[int, str, str]:
    command = (sys.executable, "-m", "logplayer.cli", "log", *arguments)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


async def repair(house: House, *options: str) -> dict[str, Any]:
    """See that no player starts, repair, and return what the command said."""
    with pytest.raises(ControlJammed, match="logplayer log repair"):
        await asyncio.wait_for(Shell(await house.client(), house.config()).run(), PATIENCE)
    code, out, err = await cli("repair", "--log", house.log_address, *options, "--yes", "--json")
    assert code == 0, err
    return dict(json.loads(out))


async def plays_on(house: House) -> None:
    """A player starts, reads past what jammed the log, and delivers; so does the next one."""
    for _ in range(2):
        player = await house.play()
        await house.delivered(await house.append(20))
        assert await player.stop() == STOPPED
    assert (await examine(house.log)).jam is None


@pytest.mark.parametrize("jam", JAMS, ids=lambda jam: jam.__name__)
async def test_a_jammed_log_is_repaired_from_its_last_decision(
    house: House, monkeypatch: pytest.MonkeyPatch, jam: Jam
) -> None:
    await house.targets("ab")
    player = await house.play()
    await house.delivered(await house.append(20))
    assert await player.stop() == STOPPED
    await chain.append(house.file, TargetAdded("c", 3, "tcp://127.0.0.1:9"), None)
    await chain.append(house.file, Quarantined("c", 7), None)
    newest = (await house.file.info()).control
    await house.append(5)
    await as_before(jam, house, monkeypatch)
    await house.append(5)
    facts = await repair(house)
    assert facts["from"] == newest
    control = (await chain.load(house.file)).control(None)
    assert control.members["c"] == TargetAdded("c", 3, "tcp://127.0.0.1:9")
    assert control.quarantined == {"c": {7}}
    await plays_on(house)
    assert await house.problems() == []


@pytest.mark.parametrize("jam", [a_trim, data_before_the_first_player], ids=lambda jam: jam.__name__)
async def test_a_log_without_a_decision_is_repaired_from_what_the_operator_gives(
    house: House, monkeypatch: pytest.MonkeyPatch, jam: Jam
) -> None:
    await house.targets("ab")
    if jam is a_trim:
        player = await house.play()
        await house.delivered(await house.append(20))
        assert await player.stop() == STOPPED
    await as_before(jam, house, monkeypatch)
    code, _, err = await cli("repair", "--log", house.log_address, "--yes")
    assert (code, "--target" in err, "Traceback" in err) == (2, True, False)
    seats = [f"--target={name}={seat.address}" for name, seat in house.seats.items()]
    facts = await repair(house, *seats)
    assert [row["map"] for row in facts["maps"]] == ["hash:a,b"]
    await plays_on(house)
    if jam is not a_trim:
        assert await house.problems() == []


async def test_what_is_wrong_is_shown_and_nothing_is_changed_without_yes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chain.append(house.file, Takeover("", "one"), MAP, (("a", "tcp://127.0.0.1:9"),))
    await as_before(data_under_the_name, house, monkeypatch)
    code, out, err = await cli("verify", "--log", house.log_address, "--json")
    assert (code, "jammed" in err, "not a decision" in json.loads(out)["jam"]) == (1, True, True)
    code, out, err = await cli("repair", "--log", house.log_address)
    assert (code, (await house.file.info()).last) == (1, 2), err
    assert "  target a from 0 tcp://127.0.0.1:9\n  map after 0 hash:a,b\n" in out
    assert "add --yes" in out


async def test_a_running_player_follows_a_repair(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its decisions in memory, so a trim of the newest one did not end it; the repair replaces them."""
    await house.targets("ab")
    player = await house.play()
    await house.delivered(await house.append(20))
    await as_before(a_trim, house, monkeypatch)
    seats = [f"--target=b={house.seats['b'].address}"]
    code, _, err = await cli("repair", "--log", house.log_address, *seats, "--map", "explicit", "--yes")
    assert code == 0, err
    await house.delivered(await house.append(20, targets="b"), "b")
    assert set(player.shell.core.queues) == {"b"}
    assert not player.task.done()


async def test_a_healthy_log_is_left_alone(house: House) -> None:
    await chain.append(house.file, Takeover("", "one"), MAP, (("a", "tcp://127.0.0.1:9"),))
    await chain.append(house.file, MapChanged(MAP), MAP)
    last = (await house.file.info()).last
    code, out, _ = await cli("repair", "--log", house.log_address, "--target", "z=tcp://127.0.0.1:8", "--yes")
    assert (code, "nothing to repair" in out, (await house.file.info()).last) == (0, True, last)
    assert (await cli("verify", "--log", house.log_address))[0] == 0


async def test_a_log_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    code, _, err = await cli("repair", "--log", f"file://{tmp_path}/none", "--yes")
    assert (code, "there is no log" in err) == (2, True)
    assert not (tmp_path / "none").exists()


async def test_trim_by_hand_of_everything_leaves_a_log_that_plays(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    last = await house.append(20)
    await house.delivered(last)
    assert await player.stop() == STOPPED
    code, out, err = await cli("trim", "--log", house.log_address, "--up-to", str(last))
    assert (code, out) == (0, f"the first entry is now {last + 1}; the newest control record was in the way and is "
        f"repeated at {last + 1}\n"), err  # fmt: skip
    player = await house.play()
    await house.delivered(await house.append(20))
    assert not player.task.done()


async def test_trim_by_hand_past_what_a_target_has_is_refused(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    await house.delivered(await house.append(20))
    assert await player.stop() == STOPPED
    has = (await position(house.seats["a"].address, "a")).index
    last = await house.append(5)
    code, out, err = await cli("trim", "--log", house.log_address, "--up-to", str(last))
    assert (code, out, (await house.file.info()).first) == (2, "", 1)
    assert f"a has index {has}" in err
    assert f"--up-to {has}" in err
    await house.seats["b"].down()
    code, out, err = await cli("trim", "--log", house.log_address, "--up-to", str(has))
    assert (code, out, (await house.file.info()).first) == (1, "", 1)
    assert "b cannot be asked" in err
    code, out, err = await cli("trim", "--log", house.log_address, "--up-to", str(last), "--force")
    assert (code, (await house.file.info()).first) == (0, last + 1), err


def test_the_wrong_payloads_are_wrong_for_every_state() -> None:
    assert len(wrong_payloads(ControlState.start(MAP))) >= 14

"""A player waits for its log, leaves a living player alone, and starts in any order with everything else."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logplayer.log.file.log import FileLog
from logplayer.log.protocol import NewEntry
from logplayer.player.ended import STOPPED
from logplayer.player.shell import Shell
from logplayer.target.client import standing
from logplayer.wire.entries import encode_mutation
from tests.player.player_support import PATIENCE, House, Seat, until

pytestmark = pytest.mark.asyncio
BOTH = pytest.mark.parametrize("scheme", ["grpc", "tcp"])
COMMAND = [sys.executable, "-m", "logplayer.cli"]
Process = asyncio.subprocess.Process


@contextlib.asynccontextmanager
async def run(*arguments: str) -> AsyncIterator[Process]:
    """A process of ours while the body runs; what is left of it is killed."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: Process, event: str, seconds: float = PATIENCE) -> dict[str, object]:
    """The next line of JSON with this event."""
    assert process.stdout is not None
    async with asyncio.timeout(seconds):
        while line := await process.stdout.readline():
            if (facts := json.loads(line)).get("event") == event:
                return dict(facts)
    raise AssertionError(f"it ended without {event}: {(await process.communicate())[1].decode()}")


def play(house: House, *more: str) -> list[str]:
    targets = [f"--target={name}={seat.address}" for name, seat in house.seats.items()]
    where = ["--log", house.log_address, "--http", "127.0.0.1:0", "--json"]
    return ["play", "--in-process", *where, *targets, *more]


@BOTH
async def test_a_target_tells_whether_a_player_feeds_it(house: House, scheme: str) -> None:
    [seat] = await house.targets("a", scheme)
    assert not (await standing(seat.address, "a")).connected
    player = await house.play()
    await until(player.live, "the player feeds it")
    now = await standing(seat.address, "a")
    assert now.connected
    assert now.position.session.epoch == player.shell.core.epoch
    await player.stop()
    while (await standing(seat.address, "a")).connected:  # noqa: ASYNC110 - nothing tells of it.
        await asyncio.sleep(0.01)


@BOTH
async def test_a_second_player_leaves_a_living_one_alone(house: House, scheme: str) -> None:
    await house.targets("ab", scheme)
    first = await house.play()
    await until(first.live, "the first player feeds both targets")
    before = (await house.file.info()).last
    async with run(*play(house)) as second:
        out, error = await asyncio.wait_for(second.communicate(), 120)
    assert (second.returncode, out, error.count(b"\n")) == (2, b"", 1)
    assert f"{first.shell.config.player} (epoch {first.shell.core.epoch}, since 20" in error.decode()
    assert "--take-over" in error.decode()
    assert (await house.file.info()).last == before  # Not even a record.
    async with run(*play(house, "--take-over")) as third:
        assert (await said(third, "playing"))["targets"] == 2
        assert (await asyncio.wait_for(first.task, 120)).superseded


async def test_the_same_command_twice_names_the_player_that_has_the_port(house: House) -> None:
    await house.targets("a")
    first = await house.play()
    where = await first.answering()
    async with run(*play(house), "--http", where) as second:
        out, error = await asyncio.wait_for(second.communicate(), 120)
    assert (second.returncode, out, error.count(b"\n")) == (2, b"", 1)
    assert f"the player {first.shell.config.player} (epoch {first.shell.core.epoch}) has the HTTP port {where}" in (
        error.decode()
    )
    assert first.shell.running


async def test_a_player_without_targets_tells_how_many_the_log_has(house: House) -> None:
    await house.targets("abc")
    await (await house.play()).stop()
    async with run("play", "--in-process", "--log", house.log_address, "--http", "127.0.0.1:0", "--json") as player:
        assert (await said(player, "playing"))["targets"] == 3


@BOTH
async def test_a_player_that_was_killed_is_followed_at_once(house: House, scheme: str) -> None:
    await house.targets("ab", scheme)
    async with run(*play(house)) as first:
        await said(first, "playing")
        await house.delivered(await house.append(10))
        first.kill()
        await first.wait()
        shell = Shell(await house.client(), house.config(take_over=False))
        task = asyncio.create_task(shell.run())
        await until(lambda: shell.running or task.done(), "the second has taken over")
        assert not task.done(), task.exception()
        await house.delivered(await house.append(10))
        shell.request_stop()
        await task


@BOTH
async def test_a_player_that_vanished_is_followed_without_a_word_of_an_operator(house: House, scheme: str) -> None:
    """A supervisor starts the next one: the streams of the old one are open for ever, because no kernel closes them."""
    await house.targets("ab", scheme)
    async with run(*play(house)) as first:
        await said(first, "playing")
        await house.delivered(await house.append(10))
        assert first.pid
        os.kill(first.pid, signal.SIGSTOP)
        async with run(*play(house)) as second:
            assert (await said(second, "playing"))["targets"] == 2
            await house.delivered(await house.append(10))
            os.kill(first.pid, signal.SIGCONT)
            assert await asyncio.wait_for(first.wait(), 120) == 3
            assert second.returncode is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_player_waits_for_its_log_and_says_so(house: House, number: signal.Signals) -> None:
    await house.targets("a")
    await house.log_down()
    async with run(*play(house, "--http", f"127.0.0.1:{(port := free_port())}")) as player:
        assert player.stderr is not None
        line = (await asyncio.wait_for(player.stderr.readline(), 120)).decode()
        assert f"waiting for the log at {house.log_address}: " in line
        async with run("status", "--player", f"127.0.0.1:{port}") as status:
            out, _ = await asyncio.wait_for(status.communicate(), 120)
        assert (status.returncode, f"waiting for the log at {house.log_address}" in out.decode()) == (0, True)
        player.send_signal(number)
        assert (await said(player, "ended"))["kind"] == "stopped"
        assert await asyncio.wait_for(player.wait(), 120) == 0


async def test_a_log_that_goes_away_during_the_takeover_is_waited_for(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.targets("ab")
    client = await house.client()
    monkeypatch.setattr(client, "_patience", 0.2)
    await house.log_down()
    shell = Shell(client, house.config())
    task = asyncio.create_task(shell.run())
    await until(lambda: bool(shell.waiting.reason), "it waits")
    await house.log_up()
    await until(lambda: shell.running or task.done(), "it has taken over")
    assert not task.done()
    shell.request_stop()
    assert await task == STOPPED


async def test_a_mistake_is_not_waited_for(house: House, tmp_path: Path) -> None:
    for words in (["--log", "ftp://x"], ["--log", "grpc://10.255.255.1:1"]):
        async with run("play", "--in-process", *words, "--target", "a=tcp://127.0.0.1:1") as player:
            _, error = await asyncio.wait_for(player.communicate(), 120)
        assert (player.returncode, error.count(b"\n")) == (2, 1), error.decode()


@pytest.mark.parametrize("order", list(itertools.permutations(("log", "target", "player"))), ids="-".join)
async def test_log_server_target_and_player_start_in_any_order(tmp_path: Path, order: tuple[str, ...]) -> None:
    log, target = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    opened = await FileLog.open(tmp_path / "wal")
    [last] = await opened.append([NewEntry("p", 1, encode_mutation(b"k", b"v").encoded)])
    await opened.close()
    seat = Seat(tmp_path, "a", "tcp")
    commands = {
        "log": ["log", "serve", "--log", f"file://{tmp_path}/wal", "--listen", log],
        "target": ["target", "serve", "--store", "sqlite", "--path", str(seat.path), "--id", "a",
                   "--listen-tcp", target],
        "player": ["play", "--in-process", "--log", f"grpc://{log}", "--target", f"a=tcp://{target}",
                   "--http", "127.0.0.1:0"],
    }  # fmt: skip
    async with contextlib.AsyncExitStack() as stack:
        for name in order:
            await stack.enter_async_context(run(*commands[name]))
            if name != order[-1]:
                await asyncio.sleep(0.8)  # Long enough to be up, and to miss the others.
        await until(lambda: seat.path.exists() and _index(seat) >= last, "the entry arrives")


def _index(seat: Seat) -> int:
    try:
        return seat.index
    except Exception:  # noqa: BLE001 - the store is being made.
        return 0


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])

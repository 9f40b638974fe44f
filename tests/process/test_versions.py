"""Processes of different releases meet: they agree on the lower version of the protocol, or one refuses the other with
a sentence. A release that speaks other versions is this one with other numbers, in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import free_port

pytestmark = pytest.mark.asyncio
BOTH = pytest.mark.parametrize("scheme", ["grpc", "tcp"])
PATIENCE = 120.0
# The numbers are set before any module can have read them.
RELEASE = """
from logplayer.wire import versions
versions.OURS = versions.Versions({oldest}, {newest})
from logplayer.cli.main import main
main()
"""
LINE = b'{"mutations": [{"key": "k", "value": "v"}]}\n'
OURS, LATER, OVERLAPPING = (1, 1), (2, 3), (1, 2)
ONE, TWO_TO_THREE = "protocol version 1", "protocol versions 2 to 3"
Release = tuple[int, int]
Process = asyncio.subprocess.Process


@contextlib.asynccontextmanager
async def running(release: Release, *arguments: str) -> AsyncIterator[tuple[Process, dict[str, Any]]]:
    """A process of a release while the body runs, and the first thing that it said."""
    process = await start(release, *arguments)
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        assert line, (await process.communicate())[1].decode()
        yield process, json.loads(line)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def start(release: Release, *arguments: str, stdin: int = asyncio.subprocess.DEVNULL) -> Process:
    code = RELEASE.format(oldest=release[0], newest=release[1])
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *arguments, stdin=stdin, stdout=pipe, stderr=pipe
    )


async def finished(release: Release, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Run a command to its end: exit code, output, errors."""
    process = await start(release, *arguments, stdin=asyncio.subprocess.PIPE)
    out, errors = await asyncio.wait_for(process.communicate(stdin), PATIENCE)
    assert process.returncode is not None
    assert "Traceback" not in errors.decode(), errors.decode()
    return process.returncode, out.decode(), errors.decode()


def target(release: Release, name: str, address: str, folder: Path) -> Any:
    scheme, where = address.split("://")
    listen = ("--listen" if scheme == "grpc" else "--listen-tcp", where)
    store = ("--store", "sqlite", "--path", str(folder / f"{name}.db"))
    return running(release, "target", "serve", "--id", name, *listen, *store, "--json")


def serve(release: Release, folder: Path) -> Any:
    where = ("--log", f"file://{folder}/log", "--listen", "127.0.0.1:0")
    return running(release, "log", "serve", *where, "--json")


async def status(player: str, holds: Any) -> dict[str, Any]:
    """The player's status, once something holds for it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            code, out, errors = await finished(OURS, "status", "--player", player, "--json")
            assert code == 0, errors
            facts = json.loads(out)
            if holds(facts | {one["target"]: one for one in facts["targets"]}):
                return dict(facts)
            await asyncio.sleep(0.2)


@BOTH
async def test_a_player_and_a_later_target(tmp_path: Path, scheme: str) -> None:
    """The target waits for an upgrade while the other one gets everything; upgraded, it gets everything too."""
    a, b = (f"{scheme}://127.0.0.1:{free_port()}" for _ in range(2))
    log = f"file://{tmp_path}/log"
    lines = b"".join(b'{"mutations": [{"key": "k%d", "value": "v"}]}\n' % n for n in range(20))
    code, _, errors = await finished(OURS, "log", "append", "--log", log, stdin=lines)
    assert code == 0, errors
    play = ["play", "--in-process", "--log", log, "--http", "127.0.0.1:0", "--json"]
    play += [f"--target=a={a}", f"--target=b={b}"]
    async with target(OURS, "a", a, tmp_path), running(OURS, *play) as (_, started):
        player = started["http"]
        async with target(LATER, "b", b, tmp_path):
            seen = await status(player, lambda now: now["a"]["index"] >= 20 and "version" in now["b"]["error"])
        [refused] = [one for one in seen["targets"] if one["target"] == "b"]
        assert f"the player speaks {ONE}, the target speaks {TWO_TO_THREE}: upgrade the player" in refused["error"]
        assert (refused["state"], refused["index"]) == ("SUSPENDED", -1)
        async with target(OVERLAPPING, "b", b, tmp_path):
            await status(player, lambda now: now["b"]["index"] >= 20 and now["b"]["state"] == "LIVE")


@BOTH
async def test_a_reader_and_a_later_target(tmp_path: Path, scheme: str) -> None:
    address = f"{scheme}://127.0.0.1:{free_port()}"
    async with target(LATER, "a", address, tmp_path):
        code, _, errors = await finished(OURS, "target", "position", address, "--id", "a")
        assert (code, errors.count("\n")) == (2, 1), errors
        assert f"the reader speaks {ONE}, the target speaks {TWO_TO_THREE}: upgrade the reader" in errors
        code, _, errors = await finished(LATER, "target", "position", address, "--id", "a")
        assert code == 0, errors
    async with target(OURS, "a", address, tmp_path):
        code, _, errors = await finished(LATER, "target", "position", address, "--id", "a")
        assert code == 2
        assert f"the reader speaks {TWO_TO_THREE}, the target speaks {ONE}: upgrade the target" in errors
        assert (await finished(OVERLAPPING, "target", "position", address, "--id", "a"))[0] == 0


async def test_clients_and_log_servers(tmp_path: Path) -> None:
    """Refused: nothing is appended. Else the lower version, in which everything works."""
    append = ("log", "append", "--log")
    for server, client, refusal in (
        (LATER, OURS, f"the client speaks {ONE}, the log server speaks {TWO_TO_THREE}: upgrade the client"),
        (OURS, LATER, f"the client speaks {TWO_TO_THREE}, the log server speaks {ONE}: upgrade the log server"),
        (OURS, OVERLAPPING, ""),
        (OVERLAPPING, OURS, ""),
    ):
        async with serve(server, tmp_path) as (_, serving):
            code, out, errors = await finished(client, *append, serving["address"], stdin=LINE)
            if refusal:
                assert (code, errors.count("\n")) == (2, 1), errors
                assert refusal in errors
            else:
                assert code == 0, errors
                code, out, errors = await finished(client, "log", "dump", "--log", serving["address"])
                assert code == 0, errors
    assert len(out.splitlines()) == 2


async def test_a_log_server_that_is_replaced_under_a_player_by_a_later_one(tmp_path: Path) -> None:
    """The player says what is wrong and goes on when the server speaks its version again; nothing is lost."""
    a = f"tcp://127.0.0.1:{free_port()}"
    where = f"127.0.0.1:{free_port()}"
    serve_at = ("log", "serve", "--log", f"file://{tmp_path}/log", "--listen", where, "--json")
    append = ("log", "append", "--log", f"grpc://{where}")
    play = ["play", "--in-process", "--log", f"grpc://{where}", "--http", "127.0.0.1:0", "--json", f"--target=a={a}"]
    async with target(OURS, "a", a, tmp_path), contextlib.AsyncExitStack() as stack:
        async with running(OURS, *serve_at):
            assert (await finished(OURS, *append, stdin=LINE))[0] == 0
            _, started = await stack.enter_async_context(running(OURS, *play))
            player = started["http"]
            await status(player, lambda now: now["a"]["state"] == "LIVE")
        async with running(LATER, *serve_at):
            assert (await finished(LATER, *append, stdin=LINE))[0] == 0
            seen = await status(player, lambda now: "version" in now["log_error"])
            assert (
                f"the client speaks {ONE}, the log server speaks {TWO_TO_THREE}: upgrade the client"
                in seen["log_error"]
            )
        async with running(OVERLAPPING, *serve_at):
            last = json.loads((await finished(OURS, "log", "info", "--log", f"grpc://{where}", "--json"))[1])["last"]
            await status(player, lambda now: now["a"]["index"] >= last)

"""The error for a wrong address names the reason: transport, kind of server, TLS or plain text, no server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logplayer.admin.http_server import HttpServer
from logplayer.core.fence import Position
from logplayer.errors import NotALog, NotATarget, TargetError, TargetUnavailable, UserError
from logplayer.log.client import LogClient
from logplayer.log.file.log import FileLog
from logplayer.log.server import LogServer
from logplayer.target import client
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.wire.framing import frame
from logplayer.wire.recognise import PeerKind, recognise
from logplayer.wire.security import Security
from tests.servers import Authority

# None of these answers takes time; a test that waits for this long waits for an answer that must not be needed.
LONG = 120.0


class Filled(MemoryTarget):
    """It has index 1."""

    def position(self) -> Position:
        return Position(1)


@pytest.fixture
async def target() -> AsyncIterator[dict[str, str]]:
    server = TargetServer({"a": MemoryTarget()})
    addresses = await server.start(grpc="127.0.0.1:0", tcp="127.0.0.1:0")
    yield {address.partition("://")[0]: address.partition("://")[2] for address in addresses}
    await server.stop()


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[str]:
    log = await FileLog.open(tmp_path / "log")
    server = LogServer(log)
    yield f"127.0.0.1:{await server.start()}"
    await server.stop(0)
    await log.close()


@pytest.mark.parametrize(("meant", "there"), [("grpc", "tcp"), ("tcp", "grpc")])
async def test_the_other_transport(target: dict[str, str], meant: str, there: str) -> None:
    said = f"this port speaks {there}://, not {meant}://: use {there}://{target[there]}"
    with pytest.raises(NotATarget) as raised:
        await client.position(f"{meant}://{target[there]}", "a", timeout=LONG)
    assert str(raised.value) == said
    assert isinstance(raised.value, UserError), "to try again does not help"


@pytest.mark.parametrize("scheme", ["grpc", "tcp"])
async def test_nobody(scheme: str) -> None:
    with socket.socket() as bound:  # It does not listen, and nobody else can meanwhile.
        bound.bind(("127.0.0.1", 0))
        address = f"{scheme}://127.0.0.1:{bound.getsockname()[1]}"
        refused = f"no connection to {address}: Connection refused"
        with pytest.raises(TargetUnavailable) as raised:
            await client.position(address, "a", timeout=LONG)
        assert str(raised.value) == refused
        said = ""
        for seconds in (1.0, 4.0, 16.0, 64.0):  # It waits until the time is over, which must be enough for one try.
            with pytest.raises(TargetError) as waited:
                await client.wait_for(address, "a", 7, timeout=seconds)
            said = str(waited.value)
            if said == refused:
                break
        assert said == refused


@pytest.mark.parametrize("scheme", ["grpc", "tcp"])
async def test_whoever_waits_waits_for_the_target_too(scheme: str) -> None:
    """It may have been started in the same moment, as in the first lines of the documentation."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        netloc = f"127.0.0.1:{listening.getsockname()[1]}"
    waiting = asyncio.create_task(client.wait_for(f"{scheme}://{netloc}", "a", 1, timeout=LONG))
    await asyncio.sleep(0)
    server = TargetServer({"a": Filled()})
    await server.start(**{scheme: netloc})
    assert (await waiting).index == 1
    await server.stop()


async def test_a_log_server_is_not_a_target(log: str) -> None:
    with pytest.raises(NotATarget, match="is not a target, maybe a log server"):
        await client.position(f"grpc://{log}", "a", timeout=LONG)
    with pytest.raises(NotATarget, match="this port speaks grpc://"):
        await client.position(f"tcp://{log}", "a", timeout=LONG)


@pytest.mark.parametrize("scheme", ["grpc", "tcp"])
async def test_an_http_port_is_not_a_target(scheme: str) -> None:
    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError("nobody asks")

    server = HttpServer(app)
    netloc = await server.start("127.0.0.1:0")
    with pytest.raises(NotATarget, match="is an HTTP port, for status and metrics: give the port of --listen") as said:
        await client.position(f"{scheme}://{netloc}", "a", timeout=LONG)
    assert isinstance(said.value, UserError)
    with pytest.raises(NotALog, match="is an HTTP port, for status and metrics"):
        await LogClient.open(netloc, open_seconds=0)
    await server.stop()


async def test_a_target_is_not_a_log_server(target: dict[str, str]) -> None:
    with pytest.raises(NotALog, match="is not a log server, maybe a target"):
        await LogClient.open(target["grpc"], open_seconds=0)
    with pytest.raises(NotALog, match="a target listens there, for tcp://"):
        await LogClient.open(target["tcp"], open_seconds=0)


@pytest.mark.parametrize("scheme", ["grpc", "tcp"])
async def test_tls_on_one_side_only(scheme: str, tmp_path: Path, target: dict[str, str]) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    server = TargetServer({"a": MemoryTarget()}, Security(cert=cert, key=key))
    [secret] = await server.start(**{scheme: "127.0.0.1:0"})
    with pytest.raises(TargetError, match="--tls-ca"):
        await client.position(secret, "a", timeout=LONG)
    await server.stop()
    with pytest.raises(TargetError, match="that port speaks plain text; leave --tls-ca out"):
        await client.position(f"{scheme}://{target[scheme]}", "a", timeout=LONG, security=Security(ca=authority.ca))


def test_frames_of_ours_are_taken_for_nothing_else() -> None:
    for stream in (0, 1, 4, 0x15030000):
        for length in (0, 1, 4, 260, 4612):
            for first in (b"\x0a", b"\x12", b"\x1a", b"\x22"):
                assert recognise(frame(stream, first + bytes(length))) in (None, PeerKind.TCP)

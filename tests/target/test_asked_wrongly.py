"""A wrong token, a wrong name and a wrong port are the asker's mistakes: one line, exit code 2, and what to do."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from logplayer.admin.http_client import ask
from logplayer.errors import AddressError, TargetError, Unavailable, UserError
from logplayer.target import client
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.wire.security import Security


@pytest.mark.asyncio
@pytest.mark.parametrize("scheme", ["grpc", "tcp"])
@pytest.mark.parametrize("token", ["", "guess"])
async def test_a_wrong_token_names_the_option(scheme: str, token: str) -> None:
    server = TargetServer({"a": MemoryTarget()}, Security(token="s3cret"))
    [address] = await server.start(**{scheme: "127.0.0.1:0"})
    try:
        with pytest.raises(TargetError, match=r"refused the token: .*; give --token-file") as caught:
            await client.position(address, "a", security=Security(token=token))
    finally:
        await server.stop()
    assert isinstance(caught.value, UserError)


@pytest.mark.asyncio
async def test_a_wrong_name_is_the_askers_mistake() -> None:
    server = TargetServer({"a": MemoryTarget()})
    [address] = await server.start(grpc="127.0.0.1:0")
    try:
        with pytest.raises(UserError) as caught:
            await client.position(address, "b")
    finally:
        await server.stop()
    assert str(caught.value) == f"{address}: no target 'b' is here: there is 'a'"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (b"\0\0\x12\x04\0\0\0\0\0\n", AddressError, "is not a player's HTTP port"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n<b/>", AddressError, "is not a player's HTTP port"),
        (b"\x15\x03\x01\0\x02\x02\n", AddressError, "speaks TLS"),
        (b"", Unavailable, "it hung up"),
    ],
    ids=["grpc", "list", "tls", "nothing"],
)
async def test_another_servers_port_is_no_http_port(answer: bytes, kind: type[Exception], says: str) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(other, "127.0.0.1", 0)
    try:
        with pytest.raises(kind, match=says) as caught:
            await ask(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "/status")
    finally:
        server.close()
    assert "codec" not in str(caught.value)


def test_a_timeout_is_not_negative() -> None:
    command = [sys.executable, "-m", "logplayer.cli", "target", "wait", "tcp://127.0.0.1:1", "--index", "1"]
    done = subprocess.run([*command, "--timeout", "-5"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "-5" in done.stderr) == (2, True)

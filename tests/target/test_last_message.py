"""A target's last message over gRPC: the end of the stream is left to the player, whose failed write would hide it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from logplayer.core.entry import Session
from logplayer.target.bounds import Questions
from logplayer.target.grpc_server import GrpcServer
from logplayer.target.host import Host
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.wire import codec
from logplayer.wire.grpc_link import PLAY
from logplayer.wire.security import Security


@asynccontextmanager
async def playing(security: Security) -> AsyncIterator[Any]:
    """A bare stream, without the player's link, which hangs up by itself."""
    server = TargetServer({"t1": MemoryTarget()}, security)
    [address] = await server.start(grpc="127.0.0.1:0")
    async with grpc.aio.insecure_channel(address.removeprefix("grpc://")) as channel:
        play: Any = channel.stream_stream(PLAY, None, None)
        yield play()
    await server.stop()


@pytest.mark.parametrize(
    ("security", "last"),
    [(Security(), codec.REFUSED), (Security(token="secret"), codec.FAILED)],
    ids=["refused", "failed"],
)
async def test_the_stream_stays_open_behind_it(
    security: Security, last: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = asyncio.Event()  # In place of the two seconds, which a busy machine may need for less.
    monkeypatch.setattr("logplayer.target.grpc_server._leave_the_end_to_the_player", waited.wait)
    async with playing(security) as call:
        if last == codec.REFUSED:
            await call.write(codec.encode_open("another", "log", Session(1, 1)))
        assert (await call.read())[:1] == last
        more = asyncio.ensure_future(call.read())
        await asyncio.sleep(0.2)
        assert not more.done(), "the target has ended the stream"
        waited.set()
        await asyncio.wait({more})  # A player that does not hang up is not waited for without end.
        assert await call.code() is (grpc.StatusCode.OK if last == codec.REFUSED else grpc.StatusCode.UNAUTHENTICATED)
        more.exception()  # It is that of the status.


class GonePlayer:
    """A call whose player was killed after its first message: gRPC says so only when something is written."""

    def __init__(self, said: bytes) -> None:
        self.writes = 0
        self._said = [said]

    def invocation_metadata(self) -> None:
        return None

    def peer(self) -> str:
        return "gone"

    async def read(self) -> bytes:
        if not self._said:
            await asyncio.Event().wait()
        return self._said.pop()

    async def write(self, data: bytes) -> None:
        self.writes += 1
        raise grpc.aio.InternalError


@pytest.mark.parametrize(
    ("security", "said"),
    [
        (Security(), codec.encode_open("t1", "log", Session(1, 1))),
        (Security(), b"\xff\xff"),
        (Security(token="secret"), codec.encode_open("t1", "log", Session(1, 1))),
    ],
    ids=["opened", "malformed", "stranger"],
)
async def test_a_player_that_was_killed_ends_its_stream_without_an_error(security: Security, said: bytes) -> None:
    host, gone = Host("t1", MemoryTarget()), GonePlayer(said)
    await host.start()
    async with asyncio.timeout(60):
        await GrpcServer({"t1": host}, security, Questions())._play(None, gone)
    assert gone.writes == 1
    assert not host.connected, "whoever shows no token gets no further"
    await host.stop()

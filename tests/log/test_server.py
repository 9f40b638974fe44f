"""What is particular to the log server and its client: flow control, reconnects, errors, a port in use."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message

import logplayer.log.server as server_module
from logplayer.errors import LogError, LogUnavailable, Unavailable, VersionMismatch
from logplayer.log.append_service import AppendService
from logplayer.log.client import LogClient
from logplayer.log.file.log import FileLog
from logplayer.log.frame import encode_frame
from logplayer.log.protocol import NewEntry
from logplayer.log.room import Room
from logplayer.log.server import LogServer
from logplayer.testing.conformance.log_check import LogChecker, entry
from logplayer.testing.conformance.log_harness import ServerProcess
from logplayer.testing.conformance.logs import fill, in_time
from logplayer.wire.logplayer.v1 import log_pb2 as pb


class Fountain(FileLog):
    """Serves as many frames as anybody takes, and counts them."""

    taken = 0

    async def read_frames(self, first: int, last: int | None = None) -> AsyncIterator[bytes]:
        while True:
            self.taken += 1
            yield b"".join(encode_frame(self.taken, NewEntry("p", self.taken, bytes(1_000_000)), 1, bytes(8)))


async def test_a_slow_reader_holds_the_server_back(tmp_path: Path) -> None:
    """Flow control: the server is a few megabytes ahead of a reader that stopped reading, never more."""
    log = await Fountain.open(tmp_path / "log")
    server = LogServer(log)
    client = await LogClient.open(f"127.0.0.1:{await server.start()}")
    reader = client.read(1)
    assert (await in_time(reader.__anext__()))[0].index == 1
    before = -1
    while before != log.taken:
        before = log.taken
        await asyncio.sleep(0.3)
        assert log.taken < 40, "the server read far ahead of the reader"
    assert (await in_time(reader.__anext__()))[0].index == 2
    await reader.aclose()  # type: ignore[attr-defined]
    await client.close()
    await server.stop()
    await log.close()


async def test_readers_and_producers_survive_a_restart_of_the_server(tmp_path: Path) -> None:
    server = ServerProcess(f"file://{tmp_path}/log")
    await server.start()
    client = await LogClient.open(server.where, patience_seconds=30)
    watcher = LogChecker()

    async def follow() -> None:
        async for records in client.read(1):
            watcher.see(records)
            if watcher.count == 60:
                return

    reader = asyncio.create_task(follow())
    for round_ in range(3):
        await fill(client, 20, since=1 + 20 * round_)
        if round_ < 2:
            await server.stop()
            await server.start()
    await in_time(reader)
    await client.close()
    assert await server.stop() == 0


async def test_another_log_at_the_same_port_is_refused(tmp_path: Path) -> None:
    server = ServerProcess(f"file://{tmp_path}/one")
    await server.start()
    client = await LogClient.open(server.where, patience_seconds=30)
    await fill(client, 3)
    reader = client.read(1)
    await in_time(reader.__anext__())
    await server.stop()
    other = ServerProcess(f"file://{tmp_path}/two")
    other.where = server.where
    await other.start()
    with pytest.raises(LogError, match="this server has log"):
        await in_time(reader.__anext__())
    await client.close()
    await other.stop()


async def test_a_server_that_says_no_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release from before the first version looks at nothing, and answers."""
    async with contextlib.AsyncExitStack() as stack:
        log = await FileLog.open(tmp_path / "log")
        stack.push_async_callback(log.close)
        server = LogServer(log)
        where = f"127.0.0.1:{await server.start()}"
        stack.push_async_callback(server.stop)
        client = await LogClient.open(where)
        stack.push_async_callback(client.close)
        monkeypatch.setattr(server_module, "require_version", lambda metadata: 0)
        sentence = f"{where}: the log server speaks no protocol version, the client speaks protocol version 1: "
        with pytest.raises(VersionMismatch, match=f"{sentence}upgrade the log server"):
            stack.push_async_callback((await LogClient.open(where)).close)
        with pytest.raises(VersionMismatch, match=sentence):
            await client.info()


async def test_no_server(tmp_path: Path) -> None:
    with pytest.raises(LogUnavailable, match=r"127\.0\.0\.1:1 cannot be reached"):
        await LogClient.open("127.0.0.1:1")


async def test_a_client_that_lost_its_server_gives_up_in_the_end(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    server = LogServer(log)
    client = await LogClient.open(f"127.0.0.1:{await server.start()}", patience_seconds=0.3)
    await fill(client, 1)
    await server.stop(0)
    with pytest.raises(LogUnavailable, match="cannot be reached"):
        await in_time(client.append([entry("p", 2)]))
    await client.close()
    with pytest.raises(LogUnavailable, match="closed"):
        await client.append([entry("p", 2)])
    await log.close()


async def test_a_port_in_use(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    first, second = LogServer(log), LogServer(log)
    port = await first.start()
    with pytest.raises(Unavailable, match=f"cannot listen at 127.0.0.1:{port}: the port is in use"):
        await second.start(port=port)
    await first.stop(0)
    await log.close()


class GoneClient:
    """A call whose client was killed after its first message: gRPC says so only when something is written."""

    def __init__(self, said: Message) -> None:
        self.writes = 0
        self._said = [said.SerializeToString()]

    async def send_initial_metadata(self, metadata: object) -> None:
        pass

    async def read(self) -> bytes:
        if not self._said:
            await asyncio.Event().wait()
        return self._said.pop()

    async def write(self, data: bytes) -> None:
        self.writes += 1
        raise grpc.aio.InternalError


async def test_a_reader_that_was_killed_ends_its_call_without_an_error(tmp_path: Path) -> None:
    log = await Fountain.open(tmp_path / "log")
    gone = GoneClient(pb.ReadRequest(first=1))
    await in_time(LogServer(log)._read(gone))
    assert gone.writes == 1
    await log.close()


async def test_a_producer_that_was_killed_ends_its_stream_without_an_error(tmp_path: Path) -> None:
    """What it had sent is in the log all the same."""
    log = await FileLog.open(tmp_path / "log")
    service = AppendService(log, Room(1 << 20))
    gone = GoneClient(pb.AppendCalls(first=1, entries=[pb.NewEntry(producer="p", sequence=1)]))
    await in_time(service.serve(gone))
    assert (gone.writes, (await log.info()).last) == (1, 1)
    await log.close()

"""The log server under calls without a token, malformed calls, and too many calls."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from logplayer.log.client import LogClient
from logplayer.log.file.log import FileLog
from logplayer.log.grpc_errors import VERSIONS_KEY
from logplayer.log.protocol import BadRequest, NewEntry
from logplayer.log.room import Room
from logplayer.log.server import SERVICE, LogServer
from logplayer.testing.conformance.log_harness import ServerProcess
from logplayer.testing.conformance.logs import in_time
from logplayer.wire.logplayer.v1 import log_pb2 as pb
from logplayer.wire.security import Security

TOKEN = "let-me-in"
WRONG = {"none": None, "empty": "", "wrong": "guess-mine", "prefix": TOKEN[:-1], "longer": TOKEN + "x"}
REQUESTS = {
    "Append": pb.AppendRequest(entries=[pb.NewEntry(producer="stranger", sequence=1, payload=b"x")]),
    "AppendStream": pb.AppendCalls(first=1, entries=[pb.NewEntry(producer="stranger", sequence=1, payload=b"x")]),
    "Read": pb.ReadRequest(first=1, last=1),
    "Info": pb.InfoRequest(),
    "Newest": pb.NewestRequest(producer="p"),
    "Trim": pb.TrimRequest(up_to=1),
    "Alive": pb.AliveRequest(),
}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[FileLog, str]]:
    """A log with one entry, and where it is served to those who show the token."""
    log = await FileLog.open(tmp_path / "log")
    await log.append([NewEntry("p", 1, b"secret")])
    server = LogServer(log, Security(token=TOKEN))
    yield log, f"127.0.0.1:{await server.start()}"
    await server.stop(0)
    await log.close()


async def call(where: str, method: str, body: bytes, token: str | None) -> Any:
    """The code that the server answers to the bytes as they are; a stream is read to its end."""
    metadata: tuple[tuple[str, str], ...] = ((VERSIONS_KEY, "1-1"),)
    if token is not None:
        metadata = (*metadata, ("authorization", f"Bearer {token}"))
    async with grpc.aio.insecure_channel(where, options=[("grpc.max_send_message_length", -1)]) as channel:
        try:
            if method in ("Read", "AppendStream"):  # To the server both are streams, which end after one message.
                stream: Any = channel.unary_stream(f"/{SERVICE}/{method}", None, None)
                async for _ in stream(body, metadata=metadata, timeout=120):
                    pass
            else:
                unary: Any = channel.unary_unary(f"/{SERVICE}/{method}", None, None)
                await unary(body, metadata=metadata, timeout=120)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_every_call_of_the_service_is_among_them() -> None:
    assert set(REQUESTS) == {method.name for method in pb.DESCRIPTOR.services_by_name["Log"].methods}


@pytest.mark.parametrize("method", REQUESTS)
async def test_every_call_asks_for_the_token(served: tuple[FileLog, str], method: str) -> None:
    log, where = served
    body = REQUESTS[method].SerializeToString()
    for name, token in WRONG.items():
        assert await call(where, method, body, token) is grpc.StatusCode.UNAUTHENTICATED, f"{method}, {name}"
    info = await log.info()
    assert (info.first, info.last) == (1, 1), "a refused call did something"
    assert await call(where, method, body, TOKEN) is grpc.StatusCode.OK


@pytest.mark.parametrize("method", REQUESTS)
async def test_a_malformed_request_is_the_callers_mistake(served: tuple[FileLog, str], method: str) -> None:
    for body in (b"\x0a\xff", b"\xff" * 50):
        assert await call(served[1], method, body, TOKEN) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(("first", "last"), [(0, 0), (2**63, 0), (2**64 - 1, 0), (1, 2**63), (1, 2**64 - 1)])
async def test_an_index_that_no_log_has_is_refused(served: tuple[FileLog, str], first: int, last: int) -> None:
    body = pb.ReadRequest(first=first, last=last).SerializeToString()
    assert await in_time(call(served[1], "Read", body, TOKEN)) is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_client_refuses_an_index_that_the_wire_cannot_carry(served: tuple[FileLog, str]) -> None:
    client = await LogClient.open(served[1], security=Security(token=TOKEN))
    for wrong in (-1, 2**63, 2**64):
        with pytest.raises(BadRequest, match="2\\^63"):
            await client.trim(wrong)
        with pytest.raises(BadRequest, match="2\\^63"):
            await anext(aiter(client.read(wrong)))
    await client.close()


def memory_mb(pid: int, key: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(key))


@pytest.mark.parametrize("method", ["Append", "AppendStream"])
async def test_strangers_cannot_fill_the_servers_memory(tmp_path: Path, method: str) -> None:
    """A real process: twenty appends of 22 MB without the token leave no trace in its memory."""
    (tmp_path / "token").write_text(TOKEN)
    server = ServerProcess(f"file://{tmp_path}/log", "--token-file", str(tmp_path / "token"))
    await server.start()
    before = memory_mb(server.pid, "VmRSS")
    body = pb.AppendRequest(entries=[pb.NewEntry(producer="p", sequence=1, payload=bytes(22_000_000))])
    codes = await in_time(
        asyncio.gather(*(call(server.where, method, body.SerializeToString(), "guess") for _ in range(20)))
    )
    peak = memory_mb(server.pid, "VmHWM")
    await server.stop(signal.SIGKILL)
    assert set(codes) == {grpc.StatusCode.UNAUTHENTICATED}
    assert peak < before + 150, f"{before} MB became {peak} MB"


async def test_appends_that_wait_for_the_log_are_bounded_in_bytes(tmp_path: Path) -> None:
    """A log that does not answer holds a few requests in the server's memory; the others stay with their senders."""
    log = await Stuck.open(tmp_path / "log")
    server = LogServer(log)
    where = f"127.0.0.1:{await server.start()}"
    group = pb.AppendRequest()
    for sequence in range(1, 5):
        group.entries.add(producer="p", sequence=sequence, payload=bytes(4_000_000))
    calls = [asyncio.create_task(call(where, "Append", group.SerializeToString(), None)) for _ in range(20)]

    async def full() -> None:
        while log.taken < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    await in_time(full())
    await asyncio.sleep(0.5)
    assert log.taken <= 7, "of 16 MB each"
    log.go.set()
    assert await in_time(asyncio.gather(*calls)) == [grpc.StatusCode.OK] * 20
    await server.stop(0)
    await log.close()


class Stuck(FileLog):
    """Answers no append until it is let go."""

    taken = 0
    go = asyncio.Event()

    async def append(self, entries: Any) -> list[int]:
        self.taken += 1
        await self.go.wait()
        return [0]


async def test_room_is_given_in_turn_and_comes_back_whole() -> None:
    room = Room(100)
    await room.take(60)
    first, second, third = (asyncio.create_task(room.take(count)) for count in (50, 40, 10))
    await asyncio.sleep(0)
    assert not any(task.done() for task in (first, second, third)), "who comes later does not overtake"
    first.cancel()
    await asyncio.wait([first, second])
    assert second.done(), "who gave up holds nobody back"
    room.give(60)
    await third
    granted = asyncio.create_task(room.take(50))
    blocked = asyncio.create_task(room.take(50))
    await asyncio.sleep(0)
    room.give(50)
    blocked.cancel()  # It was given its room, and goes before it knows.
    await asyncio.wait([granted, blocked])
    room.give(50)
    assert room.free == 100

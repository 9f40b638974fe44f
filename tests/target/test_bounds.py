"""What a client can make a target hold in memory: questions without an answer, and frames that never end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from logplayer.core.entry import Session
from logplayer.errors import TargetError
from logplayer.target import bounds, client
from logplayer.target.bounds import Questions, Unfinished
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.testing.conformance.client import ConformanceStream
from logplayer.wire import codec
from logplayer.wire.addresses import parse
from logplayer.wire.framing import CONNECTION, Deframer, frame, frame_head
from logplayer.wire.grpc_link import SERVICE

NEVER = 1 << 40
MIB = 1 << 20


class Served:
    def __init__(self, questions: Questions | None = None) -> None:
        self.server = TargetServer({"t1": MemoryTarget()})
        if questions is not None:
            self.server._questions = questions
        self.grpc, self.tcp = "", ""

    @property
    def questions(self) -> Questions:
        return self.server._questions

    @property
    def port(self) -> int:
        return parse(self.tcp).port


@asynccontextmanager
async def serving(questions: Questions | None = None) -> AsyncIterator[Served]:
    served = Served(questions)
    served.grpc, served.tcp = await served.server.start(grpc="127.0.0.1:0", tcp="127.0.0.1:0")
    yield served
    await served.server.stop()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - what it waits for is inside the server.
            await asyncio.sleep(0.01)


class Asker:
    """A connection over tcp:// that asks for what never comes, and reads the answers."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None]

    @classmethod
    async def ask(cls, port: int, streams: int, each: int) -> Asker:
        asker = cls()
        reader, asker.writer = await asyncio.open_connection("127.0.0.1", port)
        asker._reading = asyncio.create_task(asker._read(reader))
        question = codec.encode_ask(codec.AskPosition("t1", NEVER))
        asker.writer.write(b"".join(frame(number, question) for number in range(1, streams + 1) for _ in range(each)))
        return asker

    async def _read(self, reader: asyncio.StreamReader) -> None:
        deframer = Deframer()
        while data := await reader.read(65536):
            for _, message in deframer.feed(data):
                answer = codec.decode_to_player(message)
                assert isinstance(answer, codec.Failed)
                assert answer.code == codec.EXHAUSTED
                self.failed.append(answer.detail)

    def leave(self) -> None:
        self._reading.cancel()
        self.writer.close()


async def test_questions_of_one_connection_are_bounded_over_all_its_streams() -> None:
    async with serving() as served:
        asker = await Asker.ask(served.port, 1000, 100)
        await until(lambda: bool(asker.failed))
        assert (await client.position(served.tcp, "t1", timeout=120)).index == 0
        assert (await client.position(served.grpc, "t1", timeout=120)).index == 0
        await until(lambda: len(asker.failed) > 900)  # Every stream that was refused its first question.
        assert served.questions.waiting <= bounds.CONNECTION_QUESTIONS_MAX
        assert len(served.server._hosts["t1"]._waiting) <= 2 * bounds.CONNECTION_QUESTIONS_MAX
        assert "questions of this connection wait for an answer already" in asker.failed[0]
        asker.leave()
        await until(lambda: served.questions.waiting == 0)
        assert not served.questions._by_connection


async def test_questions_of_a_server_are_bounded_over_all_connections_and_both_ports() -> None:
    async with serving(Questions(server_max=30, connection_max=20)) as served:
        askers = [await Asker.ask(served.port, 20, 1) for _ in range(3)]
        await until(lambda: sum(len(asker.failed) for asker in askers) == 30)
        assert served.questions.waiting == 30
        for address in (served.grpc, served.tcp):
            with pytest.raises(TargetError, match="30 questions wait for an answer here already"):
                await client.wait_for(address, "t1", NEVER, timeout=120)
            assert (await client.position(address, "t1", timeout=120)).index == 0
        player = await ConformanceStream.connect(served.tcp)  # And a player is served as ever.
        assert isinstance(await player.open("t1", "log", Session(1, 1)), codec.SessionOpened)
        askers[0].leave()
        await until(lambda: served.questions.waiting < 30)
        asked = asyncio.create_task(client.wait_for(served.grpc, "t1", NEVER, timeout=120))
        await until(lambda: served.questions.waiting >= 1)
        asked.cancel()
        for asker in askers[1:]:
            asker.leave()
        await until(lambda: served.questions.waiting == 0)


async def test_questions_over_grpc_are_bounded_for_each_connection() -> None:
    async with serving(Questions(server_max=100, connection_max=5)) as served:
        request = codec.position_request(codec.AskPosition("t1", NEVER)).SerializeToString()
        async with grpc.aio.insecure_channel(parse(served.grpc).netloc) as channel:
            ask: Any = channel.unary_unary(f"/{SERVICE}/WaitFor", None, None)
            calls = [ask(request, timeout=60) for _ in range(5)]
            await until(lambda: served.questions.waiting == 5)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask(request, timeout=60)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            for call in calls:
                call.cancel()
            await until(lambda: served.questions.waiting == 0)


async def test_the_longest_unfinished_frame_has_to_go() -> None:
    """A player whose frame is unfinished too, but short, is served on."""
    async with serving() as served:
        served.server._servers[1]._unfinished = Unfinished(4 * MIB)  # type: ignore[union-attr]
        honest = await asyncio.open_connection("127.0.0.1", served.port)
        opening = frame(1, codec.encode_open("t1", "l" * 100_000, Session(1, 1)))
        honest[1].write(opening[:-1])
        unfinished = served.server._servers[1]._unfinished  # type: ignore[union-attr]
        await until(lambda: unfinished.bytes == len(opening) - 1)
        greedy = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(3)]
        for _, writer in greedy:
            writer.write(frame_head(1, bytes(60 * MIB)) + bytes(2 * MIB))
        reads = [asyncio.create_task(reader.read(1000)) for reader, _ in greedy]
        done, waiting = await asyncio.wait(reads, timeout=120, return_when=asyncio.FIRST_COMPLETED)
        for read in waiting:
            read.cancel()
        [(number, message)] = list(Deframer().feed(done.pop().result()))
        answer = codec.decode_to_player(message)
        assert number == CONNECTION
        assert isinstance(answer, codec.Failed)
        assert answer.code == codec.EXHAUSTED
        honest[1].write(opening[-1:])
        [(_, message)] = list(Deframer().feed(await asyncio.wait_for(honest[0].read(1000), 30)))
        assert isinstance(codec.decode_to_player(message), codec.SessionOpened)
        for _, writer in (*greedy, honest):
            writer.close()
        await until(lambda: unfinished.bytes == 0)


def memory_kib(pid: int, what: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith(what))


@pytest.mark.parametrize("scheme", ["tcp", "grpc"])
async def test_memory_of_a_real_target_under_unfinished_frames(scheme: str, tmp_path: Path) -> None:
    """Twenty strangers send 40 MB each of a frame of 60 MB: docs/operations.md says what that may cost."""
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    command = [sys.executable, "-m", "logplayer.cli", "target", "serve", "--store", "sqlite", "--id", "t1"]
    command += ["--path", str(tmp_path / "t1.db"), "--listen-tcp" if scheme == "tcp" else "--listen", "127.0.0.1:0"]
    command += [] if scheme == "tcp" else ["--token-file", str(token)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        address = next(word.rstrip(",") for word in line.split() if "://" in word)
        before = memory_kib(process.pid, "VmRSS")
        await (flood_tcp if scheme == "tcp" else flood_grpc)(parse(address).port)
        grown = memory_kib(process.pid, "VmHWM") - before
        assert grown < (192 if scheme == "tcp" else 64) * 1024, f"{grown} KiB"
    finally:
        process.kill()
        await process.wait()


async def flood_tcp(port: int) -> None:
    """All at once; who is told to go is gone."""

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(frame_head(1, bytes(60 * MIB)))
        for _ in range(40):
            writer.write(bytes(MIB))
            try:
                await writer.drain()
            except OSError:
                return
        gone = asyncio.create_task(reader.read(1000))
        await asyncio.wait([gone], timeout=1)
        gone.cancel()
        writer.close()

    await asyncio.gather(*(one() for _ in range(20)))


async def flood_grpc(port: int) -> None:
    """Each call of the service, without the token."""

    async def one(method: str) -> None:
        options = [("grpc.max_send_message_length", 64 * MIB), ("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
            ask: Any = channel.unary_unary(f"/{SERVICE}/{method}", None, None)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask(bytes(40 * MIB), timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED

    for _ in range(5):
        await asyncio.gather(*(one(method) for method in ("Position", "WaitFor") * 2))

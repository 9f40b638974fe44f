"""Appends over a stream to a real server: cut in the middle, killed, shared, given up, refused, and always in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from logplayer.errors import LogError, LogFull, LogUnavailable, OtherLog, SequenceGap
from logplayer.log import append_codec, append_service
from logplayer.log.client import LogClient
from logplayer.log.file.log import FileLog
from logplayer.log.grpc_errors import MESSAGE_BYTES_MAX, VERSIONS_KEY
from logplayer.log.protocol import History, Info, NewEntry, Newest, Record
from logplayer.log.server import APPENDS_BYTES_MAX, SERVICE, LogServer
from logplayer.testing.conformance.log_check import entry
from logplayer.testing.conformance.log_harness import ServerProcess
from logplayer.testing.conformance.logs import in_time
from logplayer.wire import versions
from logplayer.wire.logplayer.v1 import log_pb2 as pb
from tests.player.player_support import PATIENCE


@contextlib.asynccontextmanager
async def serving(log: Any) -> AsyncIterator[str]:
    server = LogServer(log)
    try:
        yield f"127.0.0.1:{await server.start()}"
    finally:
        await server.stop(0)


@contextlib.asynccontextmanager
async def connected(where: str, patience_seconds: float = 30) -> AsyncIterator[LogClient]:
    client = await LogClient.open(where, patience_seconds=patience_seconds)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[FileLog]:
    opened = await FileLog.open(tmp_path / "log")
    yield opened
    await opened.close()


class Held:
    """A log that answers when it is let, and refuses what a test says. It takes one call at a time, as most logs do."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.calls: list[list[tuple[str, int]]] = []
        self.bytes = 0
        self.refuse: dict[tuple[str, int], Exception] = {}

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        self.calls.append([(made.producer, made.sequence) for made in entries])
        self.bytes += sum(len(made.payload) for made in entries)
        first = sum(map(len, self.calls)) - len(entries) + 1
        await self.go.wait()
        for made in entries:
            if (made.producer, made.sequence) in self.refuse:
                raise self.refuse[made.producer, made.sequence]
        return list(range(first, first + len(entries)))

    async def info(self) -> Info:
        return Info("held", 1, 0, 0, 0)

    async def newest(self, producer: str) -> Newest:
        return Newest(0, 0)

    def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        raise NotImplementedError

    async def trim(self, up_to: int, history: History | None = None) -> int:
        raise NotImplementedError

    async def close(self) -> None: ...


class Cutter:
    """Stands between a client and its server, and breaks the connection when that many bytes have passed."""

    def __init__(self, where: str, every_bytes: int) -> None:
        self._host, _, port = where.partition(":")
        self._port = int(port)
        self._every = self._left = every_bytes
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts = 0

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port)
        both = (writer, back)
        for pair in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._carry(*pair, both))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, both: Any) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                self._left -= len(data)
                if self._left < 0:
                    self._left = self._every
                    self.cuts += 1
                    to.write(data[: len(data) // 2])  # In the middle of a message.
                    break
                to.write(data)
                await to.drain()
        for writer in both:
            writer.close()


async def payloads(log: FileLog) -> dict[tuple[str, int], list[int]]:
    """The indexes at which the log holds each (producer, sequence)."""
    found: dict[tuple[str, int], list[int]] = {}
    if last := (await log.info()).last:
        async for records in log.read(1, last):
            for record in records:
                found.setdefault((record.producer, record.sequence), []).append(record.index)
    return found


async def test_a_stream_that_is_cut_in_the_middle_again_and_again(log: FileLog) -> None:
    """Eight coroutines share a counter: nothing is lost, nothing is there twice, no answer is somebody else's."""
    async with serving(log) as where:
        cutter = Cutter(where, 1_500_000)
        sequence, answers = 0, dict[int, int]()
        async with connected(await cutter.start()) as client:

            async def produce() -> None:
                nonlocal sequence
                while sequence < 600:
                    sequence += 1
                    mine = sequence
                    [answers[mine]] = await client.append([entry("shared", mine, 20_000)])

            await in_time(asyncio.gather(*(produce() for _ in range(8))))
        await cutter.stop()
        assert cutter.cuts >= 3
        assert await payloads(log) == {("shared", mine): [index] for mine, index in answers.items()}
        assert [answers[mine] for mine in sorted(answers)] == list(range(1, len(answers) + 1))


async def test_coroutines_share_a_producer_while_the_server_is_killed(tmp_path: Path) -> None:
    """One counter, eight coroutines, a real server that dies twice: no gap, nothing twice, nothing lost."""
    server = ServerProcess(f"file://{tmp_path}/log")
    await server.start()
    client = await LogClient.open(server.where, patience_seconds=60)
    sequence, answers = 0, {}

    async def produce() -> None:
        nonlocal sequence
        while sequence < 400:
            sequence += 1
            mine = sequence
            [answers[mine]] = await client.append([entry("shared", mine)])

    async def trouble() -> None:
        for count, number in ((100, signal.SIGTERM), (250, signal.SIGKILL)):
            while len(answers) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await server.stop(number)
            await server.start()

    await in_time(asyncio.gather(trouble(), *(produce() for _ in range(8))))
    assert [answers[mine] for mine in sorted(answers)] == list(range(1, len(answers) + 1))
    await client.close()
    await server.stop()


async def test_two_clients_interleaved(log: FileLog) -> None:
    """Each keeps its own order, and the same entry from both is in the log once."""
    async with serving(log) as where, connected(where) as one, connected(where) as two:
        calls = []
        for sequence in range(1, 201):
            calls += [one.append([entry("a", sequence)]), two.append([entry("b", sequence)])]
            calls += [client.append([entry("both", sequence)]) for client in (one, two)]
        answers = [index for [index] in await in_time(asyncio.gather(*calls))]
        for nth, producer in enumerate(("a", "b", "both")):
            assert answers[nth::4] == sorted(answers[nth::4]), producer
        assert answers[2::4] == answers[3::4]
        assert (await log.info()).last == 600


async def test_calls_pipeline_into_few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a producer's calls are under way before the first is answered, and in order."""
    held, messages = Held(), list[int]()
    decode = append_codec.decode_calls

    def noted(data: bytes, first: int) -> list[list[NewEntry]]:
        calls = decode(data, first)
        messages.append(len(calls))
        return calls

    monkeypatch.setattr(append_service, "decode_calls", noted)
    async with serving(held) as where, connected(where) as client:
        tasks = [asyncio.create_task(client.append([entry("p", sequence)])) for sequence in range(1, 501)]
        while len(held.calls) < 500:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert held.calls == [[("p", sequence)] for sequence in range(1, 501)]
        assert len(messages) <= 10, messages
        held.go.set()
        assert await in_time(asyncio.gather(*tasks)) == [[n] for n in range(1, 501)]


async def test_a_caller_that_gives_up_hurts_nobody(log: FileLog) -> None:
    async with serving(log) as where, connected(where) as client:
        tasks = [asyncio.create_task(client.append([entry("p", sequence)])) for sequence in range(1, 101)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        done = await in_time(asyncio.gather(*tasks, return_exceptions=True))
        assert [index for index in done if isinstance(index, list)] == [[n] for n in range(1, 101) if n % 3 != 1]
        assert await client.append([entry("p", 101)]) == [101], "what they gave up is in the log"


async def test_each_call_gets_its_own_refusal(log: FileLog) -> None:
    async with serving(log) as where, connected(where) as client:
        calls = [[entry("p", 1)], [entry("p", 2), entry("q", 2)], [entry("p", 9)], [entry("p", 2)], [entry("q", 1)]]
        done = await in_time(asyncio.gather(*map(client.append, calls), return_exceptions=True))
        assert [done[n] for n in (0, 3, 4)] == [[1], [2], [3]]
        gaps = [done[1], done[2]]
        assert all(isinstance(gap, SequenceGap) for gap in gaps)
        assert [getattr(gap, "newest", None) for gap in gaps] == [0, 1]


async def test_a_log_that_takes_one_call_at_a_time_refuses_each_by_itself() -> None:
    held = Held()
    held.go.set()
    held.refuse = {("p", 2): LogFull("full"), ("p", 3): ZeroDivisionError("a mistake of ours")}
    async with serving(held) as where, connected(where) as client:
        done = await in_time(
            asyncio.gather(*(client.append([entry("p", n)]) for n in range(1, 5)), return_exceptions=True)
        )
    assert (done[0], done[3]) == ([1], [4])
    assert isinstance(done[1], LogFull)
    assert type(done[2]) is LogError


async def test_large_calls_keep_their_place(log: FileLog) -> None:
    async with serving(log) as where, connected(where) as client:
        lengths = [100, 3_000_000, 100, 100, 4_000_000, 100]
        calls = [client.append([entry("p", sequence, length)]) for sequence, length in enumerate(lengths, 1)]
        assert await in_time(asyncio.gather(*calls)) == [[n] for n in range(1, 7)]


async def test_an_idle_client_finds_a_server_that_was_restarted(log: FileLog) -> None:
    server = LogServer(log)
    port = await server.start()
    async with connected(f"127.0.0.1:{port}") as client:
        assert await client.append([entry("p", 1)]) == [1]
        await server.stop(0)
        server = LogServer(log)
        await server.start(port=port)
        assert await in_time(client.append([entry("p", 2)])) == [2]
    await server.stop(0)


async def test_a_server_that_stops_answers_what_it_has_read() -> None:
    held = Held()
    server = LogServer(held)
    async with connected(f"127.0.0.1:{await server.start()}", 0.2) as client:
        append = asyncio.create_task(client.append([entry("p", 1)]))
        while not held.calls:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        stop = asyncio.create_task(server.stop(3600))  # It need not wait for the client, which stays.
        await asyncio.sleep(0.1)
        held.go.set()
        assert await in_time(append) == [1]
        await in_time(stop)


async def test_another_log_behind_the_same_address_is_refused(tmp_path: Path, log: FileLog) -> None:
    server = LogServer(log)
    port = await server.start()
    async with connected(f"127.0.0.1:{port}") as client:
        await client.append([entry("p", 1)])
        await server.stop(0)
        other = await FileLog.open(tmp_path / "other")
        server = LogServer(other)
        await server.start(port=port)
        with pytest.raises(OtherLog):
            await in_time(client.append([entry("p", 2)]))
        assert (await other.info()).last == 0
    await server.stop(0)
    await other.close()


async def test_close_answers_everybody() -> None:
    async with serving(Held()) as where:
        client = await LogClient.open(where)
        tasks = [asyncio.create_task(client.append([entry("p", sequence)])) for sequence in (1, 2)]
        await asyncio.sleep(0.1)
        await client.close()
        done = await in_time(asyncio.gather(*tasks, return_exceptions=True))
        assert all(isinstance(answer, LogUnavailable) for answer in done)


async def test_a_server_that_answers_too_little_is_not_believed(tmp_path: Path) -> None:
    class Short(FileLog):
        def append_groups(self, groups: Any) -> Any:
            return super().append_groups([group[1:] for group in groups])

    log = await Short.open(tmp_path / "log")
    async with serving(log) as where, connected(where) as client:
        with pytest.raises(LogError, match="gave 1 indexes for 2 entries"):
            await client.append([entry("p", 1), entry("p", 1)])
    await log.close()


async def test_what_waits_for_a_stuck_log_is_bounded_in_bytes() -> None:
    """Forty clients with 8 MB each: the server takes what it has room for, and the rest stays with the clients."""
    held = Held()
    async with serving(held) as where, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(where)) for _ in range(40)]
        tasks = [
            asyncio.create_task(client.append([entry(f"p{nth}", sequence, 1_000_000)]))
            for nth, client in enumerate(clients)
            for sequence in range(1, 9)
        ]
        async with asyncio.timeout(PATIENCE):
            while held.bytes <= APPENDS_BYTES_MAX - MESSAGE_BYTES_MAX:  # noqa: ASYNC110 - the server decides when.
                await asyncio.sleep(0.01)
        before = -1
        while held.bytes != before:
            before = held.bytes
            await asyncio.sleep(0.7)
        assert held.bytes <= APPENDS_BYTES_MAX
        held.go.set()
        await in_time(asyncio.gather(*tasks))


async def test_more_clients_than_streams_take_turns(log: FileLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_service, "STREAMS_MAX", 2)
    monkeypatch.setattr(append_service, "TURN_SECONDS", 0.02)
    async with serving(log) as where, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(where)) for _ in range(6)]

        async def produce(nth: int) -> list[int]:
            return [(await clients[nth].append([entry(f"p{nth}", sequence)]))[0] for sequence in range(1, 101)]

        answers = await in_time(asyncio.gather(*map(produce, range(6))))
        assert sorted(index for mine in answers for index in mine) == list(range(1, 601))
        assert all(mine == sorted(mine) for mine in answers)


async def raw(where: str, *messages: bytes) -> Any:
    """The status of a stream with these messages."""
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(where, options=options) as channel:
        method: Any = channel.stream_stream(f"/{SERVICE}/AppendStream", None, None)
        call = method(iter(messages), timeout=120, metadata=[(VERSIONS_KEY, versions.to_text(versions.OURS))])
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for _ in call:
                pass
        return await call.code()


async def test_a_stream_that_breaks_the_rules_is_ended(log: FileLog) -> None:
    def calls(first: int, sequence: int, count: int = 1) -> bytes:
        made = pb.NewEntry(producer="p", sequence=sequence, payload=bytes(count))
        return pb.AppendCalls(first=first, entries=[made]).SerializeToString()

    async with serving(log) as where:
        assert await raw(where, calls(1, 1), calls(2, 2)) is grpc.StatusCode.OK
        for second in (calls(3, 3), calls(1, 3), b"\xff" * 9, calls(2, 4, append_service.STREAM_BYTES_MAX)):
            assert await raw(where, calls(1, 1), second) is grpc.StatusCode.INVALID_ARGUMENT
        assert (await log.info()).last == 2

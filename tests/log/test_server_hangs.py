"""A log server that hangs: its connections stay open, and gRPC goes on to answer pings, but nothing else comes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from logplayer.errors import LogUnavailable
from logplayer.log import server_watch
from logplayer.log.client import LogClient
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import NewEntry, Record
from logplayer.log.server import LogServer
from logplayer.log.server_watch import WatchTimes
from logplayer.testing.conformance.log_check import entry
from logplayer.testing.conformance.log_harness import ServerProcess
from logplayer.testing.conformance.logs import fill, in_time

STOPS = {"its event loop hangs": signal.SIGUSR1, "the process is stopped": signal.SIGSTOP}
# What an event loop does that waits for a lock or a dead disk in a call of its own.
HANG = """
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: time.sleep(3600))
from logplayer.cli.main import main
main()
"""


class Hanging(ServerProcess):
    """A log server that hangs when it gets SIGUSR1."""

    program = ("-c", HANG)

    def stop_answering(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


@contextlib.asynccontextmanager
async def served(address: str) -> AsyncIterator[Hanging]:
    server = Hanging(address)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(signal.SIGKILL)


@pytest.fixture
async def second(tmp_path: Path) -> AsyncIterator[str]:
    """The server that holds the log; the one that hangs stands before it, so that both serve the same log."""
    log = await FileLog.open(tmp_path / "log")
    server = LogServer(log)
    yield f"127.0.0.1:{await server.start()}"
    await server.stop(0)
    await log.close()


async def indexes(tail: AsyncIterator[list[Record]], count: int) -> list[int]:
    """The next ones that a reader gets."""
    found: list[int] = []
    while len(found) < count:
        found += [record.index for record in await in_time(anext(tail))]
    return found


@pytest.mark.parametrize("number", STOPS.values(), ids=STOPS)
async def test_the_next_server_is_asked(second: str, number: signal.Signals) -> None:
    """Appends that are under way, one in a call of its own, a question, and a reader that only waits."""
    async with served(f"grpc://{second}") as first:
        log = await LogClient.open([first.where, second])
        assert await fill(log, 3) == [1, 2, 3]
        tail = log.read(1)
        assert await indexes(tail, 3) == [1, 2, 3]
        first.stop_answering(number)
        lengths = [100, 2_000_000, 100]
        calls = [log.append([entry("p", sequence, length)]) for sequence, length in enumerate(lengths, 4)]
        info, newest = await in_time(asyncio.gather(log.info(), log.newest("p")))
        assert (info.log_id != "", newest.sequence >= 3) == (True, True)
        assert await in_time(asyncio.gather(*calls)) == [[4], [5], [6]]
        assert await indexes(tail, 3) == [4, 5, 6]
        await tail.aclose()  # type: ignore[attr-defined]
        await log.close()


async def test_who_knows_another_server_leaves_first(second: str) -> None:
    """Before one that knows no other has given up: a takeover holds up all appends, and costs nothing if it is vain."""
    async with served(f"grpc://{second}") as first:
        only = await LogClient.open(first.where, patience_seconds=0)
        both = await LogClient.open([first.where, second])
        assert await fill(both, 3) == [1, 2, 3]
        first.stop_answering(signal.SIGSTOP)
        gives_up = asyncio.ensure_future(only.info())
        moves = asyncio.gather(both.append([entry("p", 4)]), both.info(), anext(both.read(3)))
        both_ways: list[asyncio.Future[Any]] = [gives_up, moves]
        await in_time(asyncio.wait(both_ways, return_when=asyncio.FIRST_COMPLETED))
        assert moves.done()
        assert not gives_up.done()
        assert (await moves)[0] == [4]
        with pytest.raises(LogUnavailable):
            await in_time(gives_up)
        await only.close()
        await both.close()


async def test_callers_are_told_when_there_is_no_other_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call: they would wait for as long as the server hangs."""
    monkeypatch.setattr(server_watch, "ONLY_ONE", WatchTimes(0.5, 0.5))
    async with served(f"file://{tmp_path}/log") as server:
        log = await LogClient.open(server.where, patience_seconds=0.5)
        server.stop_answering(signal.SIGUSR1)
        appends = [log.append([entry("p", 1)]), log.append([entry("p", 2, 2_000_000)])]
        calls = [*appends, log.info(), log.newest("p"), log.trim(0), anext(log.read(1))]
        for told in await in_time(asyncio.gather(*calls, return_exceptions=True)):
            assert isinstance(told, LogUnavailable), told
            assert "does not answer" in str(told)
        await log.close()


class Slow:
    """A log that takes its time, as a disk or an election does."""

    def __init__(self, log: FileLog, seconds: float) -> None:
        self._log = log
        self._seconds = seconds
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        if name in ("append_groups", "read_frames"):
            raise AttributeError(name)
        return getattr(self._log, name)

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        self.calls += 1
        await asyncio.sleep(self._seconds)
        return await self._log.append(entries)


async def test_a_slow_log_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server answers that it is alive; nothing is sent twice, and the second server is left alone."""
    monkeypatch.setattr(server_watch, "ONE_OF_SEVERAL", WatchTimes(0.1, 3.0))
    kept = await FileLog.open(tmp_path / "log")
    slow, other = Slow(kept, 2.0), Slow(kept, 0.0)
    servers = [LogServer(slow), LogServer(other)]
    log = await LogClient.open([f"127.0.0.1:{await server.start()}" for server in servers])
    assert await in_time(asyncio.gather(*(log.append([entry("p", s)]) for s in (1, 2)))) == [[1], [2]]
    assert (slow.calls, other.calls) == (2, 0)
    await log.close()
    for server in servers:
        await server.stop(0)
    await kept.close()


async def test_a_server_of_an_older_version_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the question, and says so: that is an answer."""
    monkeypatch.setattr(server_watch, "ONLY_ONE", WatchTimes(0.1, 3.0))
    monkeypatch.setattr(LogServer, "_alive", LogServer._newest)  # Refused, as what it does not know is.
    kept = await FileLog.open(tmp_path / "log")
    server = LogServer(Slow(kept, 1.0))
    log = await LogClient.open(f"127.0.0.1:{await server.start()}", patience_seconds=0.1)
    assert await in_time(log.append([entry("p", 1)])) == [1]
    await log.close()
    await server.stop(0)
    await kept.close()


@pytest.mark.parametrize("first", [server_watch.ONLY_ONE, server_watch.ONE_OF_SEVERAL])
async def test_who_is_silent_is_waited_for_longer_each_time(first: WatchTimes) -> None:
    """Until it is heard again."""
    asked: list[float] = []
    alive = False

    async def ask(seconds: float) -> bool:
        asked.append(seconds)
        return alive

    watch = server_watch.ServerWatch("here", ask, lambda: None, WatchTimes(0.01, first.answer_seconds))

    async def call() -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with watch.over(waiting):
            await waiting

    for _ in range(7):
        with pytest.raises(grpc.aio.AioRpcError):
            await in_time(call())
    assert asked == [min(24.0, first.answer_seconds * 2**nth) for nth in range(7)]
    alive = True
    heard = asyncio.create_task(call())
    while len(asked) < 9:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert asked[7:9] == [24.0, first.answer_seconds]
    heard.cancel()
    with pytest.raises(asyncio.CancelledError):
        await heard
    await watch.close()


class Balancer:
    """One address for several servers: the first connection goes to the first of them, all others to the second."""

    def __init__(self, first: str, second: str) -> None:
        self._turns = itertools.chain([first], itertools.repeat(second))
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = next(self._turns).partition(":")
        there, back = await asyncio.open_connection(host, int(port))
        for source, to in ((reader, back), (there, writer)):
            self._tasks.add(asyncio.create_task(self._carry(source, to)))

    @staticmethod
    async def _carry(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                to.write(data)
                await to.drain()
        to.close()


async def test_another_connection_to_the_same_address_is_tried(second: str) -> None:
    """It may lead to another server."""
    async with served(f"grpc://{second}") as first:
        balancer = Balancer(first.where, second)
        log = await LogClient.open(await balancer.start())
        assert await fill(log, 3) == [1, 2, 3]
        first.stop_answering(signal.SIGUSR1)
        assert await in_time(asyncio.gather(*(log.append([entry("p", s)]) for s in (4, 5)))) == [[4], [5]]
        assert (await in_time(log.info())).last == 5
        await log.close()
        await balancer.stop()

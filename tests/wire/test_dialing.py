"""Those who want a stream to one address at the same time wait for one connection."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from logplayer.errors import TargetError
from logplayer.wire import codec, connections
from logplayer.wire.addresses import Address
from logplayer.wire.connections import Connections
from logplayer.wire.security import Security
from logplayer.wire.tcp_link import TcpConnection
from logplayer.wire.transport import Link
from tests.wire.wire_diary import Diary, wired


class Dialer:
    """In the place of ``dial``: connections come when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[asyncio.Future[TcpConnection]] = []
        self.cancelled = 0
        monkeypatch.setattr(connections, "dial", self._dial)

    async def _dial(self, address: Address, security: Security, timeout: float, begun: Any) -> TcpConnection:
        self.calls.append(asyncio.get_running_loop().create_future())
        try:
            return await self.calls[-1]
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    @staticmethod
    def connection() -> TcpConnection:
        return wired()[0]


async def waiting(shared: Connections, count: int) -> list[asyncio.Task[Link]]:
    tasks = [asyncio.create_task(shared.connect("tcp://127.0.0.1:1", Diary())) for _ in range(count)]
    await asyncio.sleep(0.01)
    return tasks


async def test_all_who_wait_hear_that_nobody_is_there_and_the_next_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    dialer, shared = Dialer(monkeypatch), Connections()
    tasks = await waiting(shared, 3)
    assert len(dialer.calls) == 1
    dialer.calls[0].set_exception(TargetError("nobody is there"))
    for task in tasks:
        with pytest.raises(TargetError, match="nobody is there"):
            await task
    await waiting(shared, 1)
    assert len(dialer.calls) == 2


async def test_whoever_gives_up_does_not_leave_a_hopeless_attempt_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    dialer, shared = Dialer(monkeypatch), Connections()
    first, second = await waiting(shared, 2)
    first.cancel()
    [third] = await waiting(shared, 1)
    assert len(dialer.calls) == 2
    assert dialer.cancelled == 0, "the second still waits for the first attempt"
    second.cancel()
    await asyncio.sleep(0.01)
    assert dialer.cancelled == 1
    dialer.calls[1].set_result(Dialer.connection())
    await third


async def test_a_connection_that_comes_when_nobody_waits_any_more_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    dialer, shared = Dialer(monkeypatch), Connections()
    [task] = await waiting(shared, 1)
    made = Dialer.connection()
    dialer.calls[0].set_result(made)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.01)
    assert not made.takes_links


async def test_a_connection_that_broke_at_once_is_an_error_and_not_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    dialer, shared = Dialer(monkeypatch), Connections()
    diary = Diary()
    task = asyncio.create_task(shared.connect("tcp://127.0.0.1:1", diary))
    await asyncio.sleep(0.01)
    made = Dialer.connection()
    made.connection_lost(None)
    dialer.calls[0].set_result(made)
    link = await task
    link.send(codec.PROBE)
    assert "broke" in str(await diary.end())

"""For tests of links: a listener that writes down what it hears, and a transport that keeps what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from logplayer.wire import codec
from logplayer.wire.addresses import parse
from logplayer.wire.tcp_link import TcpConnection
from logplayer.wire.turn import Turn


class Diary:
    """A listener that writes down what it hears, in order."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.news = asyncio.Event()

    def received(self, data: bytes) -> None:
        self._note(codec.decode_to_player(data))

    def writable(self) -> None:
        self._note("writable")

    def closed(self, error: Exception | None) -> None:
        self._note(("closed", error))

    def _note(self, what: object) -> None:
        self.heard.append(what)
        self.news.set()

    async def until(self, count: int) -> list[object]:
        """Everything, once ``count`` things were heard."""
        async with asyncio.timeout(120):
            while len(self.heard) < count:
                self.news.clear()
                await self.news.wait()
        return self.heard

    async def end(self) -> Exception | None:
        """The error with which the link closed."""
        async with asyncio.timeout(120):
            while not (self.heard and isinstance(self.heard[-1], tuple) and self.heard[-1][0] == "closed"):
                self.news.clear()
                await self.news.wait()
        error = self.heard[-1][1]
        assert error is None or isinstance(error, Exception)
        return error


class Wire:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **more: None


def wired(turn: Turn | None = None) -> tuple[TcpConnection, Wire]:
    """A connection to nobody, and what it writes."""
    connection, wire = TcpConnection(parse("tcp://127.0.0.1:1"), turn or Turn()), Wire()
    connection.connection_made(wire)  # type: ignore[arg-type]
    return connection, wire

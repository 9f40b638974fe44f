"""A listener for tests: it writes down what it hears."""

from __future__ import annotations

import asyncio

from logplayer.wire import codec


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
        async with asyncio.timeout(10):
            while len(self.heard) < count:
                self.news.clear()
                await self.news.wait()
        return self.heard

    async def end(self) -> Exception | None:
        """The error with which the link closed."""
        async with asyncio.timeout(15):
            while not (self.heard and isinstance(self.heard[-1], tuple) and self.heard[-1][0] == "closed"):
                self.news.clear()
                await self.news.wait()
        return self.heard[-1][1]

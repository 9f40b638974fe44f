"""A TCP proxy that can be told to misbehave: cut what flows, let it stall, or refuse new connections."""

from __future__ import annotations

import asyncio
import contextlib

_CHUNK_BYTES = 64 * 1024


class Proxy:
    """Forwards one port of loopback to another. What it has read when it is cut is lost, as in a real network."""

    def __init__(self, port: int, to_port: int) -> None:
        self.port = port
        self.to_port = to_port
        self.cuts = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False

    async def start(self) -> None:
        """Listen; port 0 takes a free one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and cut everything."""
        if self._server is not None:
            self._server.close()
        self._flowing.set()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection; bytes under way are lost in both directions."""
        self.cuts += 1
        for writer in list(self._writers):
            writer.transport.abort()

    def stall(self) -> None:
        """Let nothing through, and say nothing: both sides see a peer that is silent."""
        self._flowing.clear()

    def flow(self) -> None:
        """Undo stall and refuse."""
        self._refusing = False
        self._flowing.set()

    def refuse(self) -> None:
        """Cut everything, and every new connection at once."""
        self._refusing = True
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            await self._flowing.wait()
            if not self._refusing:
                await self._join(reader, writer)
        except OSError:
            pass  # The target is down, or one side reset the connection.
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.to_port)
        self._writers.add(there_writer)
        ways = [
            asyncio.create_task(self._copy(reader, there_writer)),
            asyncio.create_task(self._copy(there_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._writers.discard(there_writer)
            there_writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()

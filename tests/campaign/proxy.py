"""A TCP proxy that misbehaves on request: cut what flows, hold it back, deliver it late, or refuse connections."""

from __future__ import annotations

import asyncio
import contextlib

_CHUNK_BYTES = 64 * 1024
_HELD_CHUNKS_MAX = 64


class Proxy:
    """Forwards one port of loopback to another."""

    def __init__(self, port: int, to_port: int) -> None:
        self.port = port
        self.to_port = to_port
        self.bytes = 0  # Forwarded so far, in both directions.
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stalled = False
        self._refusing = False

    async def start(self) -> None:
        """Listen; port 0 takes a free one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and cut everything."""
        if self._server is not None:
            self._server.close()
        self.flow()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection; bytes under way are lost in both directions."""
        for connection in list(self._connections):
            connection.cut()

    def delay(self) -> None:
        """Hold back what is under way on the connections of now; new ones are not touched.

        After ``flow`` it arrives, also if its sender has long given up and speaks over another connection.
        """
        for connection in self._connections:
            connection.open.clear()

    def stall(self) -> None:
        """Let nothing through, on new connections neither: both sides see a peer that is silent."""
        self._stalled = True
        self.delay()

    def refuse(self) -> None:
        """Cut everything, and every new connection at once."""
        self._refusing = True
        self.cut()

    def flow(self) -> None:
        """Undo delay, stall and refuse."""
        self._stalled = self._refusing = False
        for connection in self._connections:
            connection.open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        connection = _Connection(self, writer)
        if self._stalled:
            connection.open.clear()
        self._connections.add(connection)
        try:
            if not self._refusing:
                await connection.run(reader)
        except OSError:
            pass  # The target is down.
        finally:
            self._connections.discard(connection)
            connection.cut()


class _Connection:
    """Both directions of one connection. Each ends when its own sender is done and all that was held is delivered."""

    def __init__(self, proxy: Proxy, writer: asyncio.StreamWriter) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self._proxy = proxy
        self._writers = [writer]

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def run(self, reader: asyncio.StreamReader) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._proxy.to_port)
        here_writer = self._writers[0]
        self._writers.append(there_writer)
        await asyncio.gather(self._copy(reader, there_writer), self._copy(there_reader, here_writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held: asyncio.Queue[bytes] = asyncio.Queue(_HELD_CHUNKS_MAX)
        reading = asyncio.create_task(self._read(reader, held))
        try:
            while data := await held.get():
                await self.open.wait()
                self._proxy.bytes += len(data)
                if writer.transport.is_closing():
                    continue  # The receiver is gone; what else comes is for nobody.
                with contextlib.suppress(OSError):
                    writer.write(data)
                    await writer.drain()
            with contextlib.suppress(OSError, RuntimeError):
                writer.write_eof()
        finally:
            reading.cancel()

    @staticmethod
    async def _read(reader: asyncio.StreamReader, held: asyncio.Queue[bytes]) -> None:
        """Read ahead of what is delivered: a sender that resets its connection has still sent what it sent."""
        data = b"more"
        while data:
            try:
                data = await reader.read(_CHUNK_BYTES)
            except OSError:
                data = b""
            await held.put(data)

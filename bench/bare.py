"""Streams with nothing around them: what the transports themselves cost, as the limit for the player.

A message is one or more pieces, each with a head: the target's number, the transaction's number, the length of the
payload. The receiver decodes the payload and puts it into a dict, as the memory target does, and answers each message
with eight bytes. There is no session, no fence, no index, no digest, no window, no catch-up.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc
import grpc.aio

from bench.contest import Workload
from logplayer.wire.codec import decode_transaction
from logplayer.wire.entries import encode_mutation
from logplayer.wire.framing import CONNECTION, Deframer, frame
from logplayer.wire.grpc_link import CHANNEL_OPTIONS, EOF, SERVER_OPTIONS

METHOD = "/bare/Play"
JOIN_BYTES = 256 * 1024  # As the player's own limit for a batch.
HEAD = struct.Struct(">IQI")
Note = Callable[[int, int], None]


def pieces(workload: Workload, number: int) -> dict[int, bytes]:
    """What each target gets of a transaction, ready to be sent."""
    found = {}
    for target, pairs in workload.parts(number).items():
        payload = b"".join(encode_mutation(key, value).encoded for key, value in pairs)
        found[target] = HEAD.pack(target, number, len(payload)) + payload
    return found


class Receiver:
    """The targets' side: stores what comes, and notes when it is stored."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._data: dict[bytes, bytes | None] = {}

    def take(self, message: bytes) -> bytes:
        """Apply a message; the answer to it."""
        position = number = 0
        while position < len(message):
            target, number, length = HEAD.unpack_from(message, position)
            position += HEAD.size
            self._data.update(decode_transaction(message[position : position + length]))
            self._note(target, number)
            position += length
        return number.to_bytes(8, "big")


async def serve_grpc(receiver: Receiver) -> tuple[Any, int]:
    """A server and its port."""

    async def play(_request: Any, context: Any) -> None:
        while (data := await context.read()) is not EOF:
            await context.write(receiver.take(data))

    server = grpc.aio.server(options=SERVER_OPTIONS)
    _, service, method = METHOD.split("/")
    handler = grpc.stream_stream_rpc_method_handler(play)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, int(port)


async def serve_tcp(receiver: Receiver) -> tuple[asyncio.Server, int]:
    """A server and its port."""

    class Peer(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            self.deframer = Deframer()

        def data_received(self, data: bytes) -> None:
            for stream, message in self.deframer.feed(data):
                self.transport.write(frame(stream, receiver.take(message)))

    server = await asyncio.get_running_loop().create_server(Peer, "127.0.0.1", 0)
    return server, int(server.sockets[0].getsockname()[1])


class Sender(Protocol):
    """One stream to one target."""

    queued: int  # Bytes that are not yet handed to the transport.
    answered: int  # The newest transaction that the peer has answered.

    async def open(self, port: int) -> None: ...

    def send(self, data: bytes) -> None:
        """Queue a piece for the next message."""

    def flush(self) -> None:
        """Nothing more comes for now: send what is queued."""

    async def close(self) -> None: ...


class GrpcSender:
    """One gRPC stream with one writer task and one reader task."""

    _call: Any  # The type stubs of grpc.aio lag behind the library.
    _channel: Any

    async def open(self, port: int) -> None:
        self.queued = self.answered = 0
        self._queue: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", CHANNEL_OPTIONS)
        self._call = self._channel.stream_stream(METHOD)()
        await self._call.wait_for_connection()
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]

    def send(self, data: bytes) -> None:
        self._queue.append(data)
        self.queued += len(data)

    def flush(self) -> None:
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                data = _joined(self._queue)
                await self._call.write(data)
                self.queued -= len(data)

    async def _read(self) -> None:
        while (data := await self._call.read()) is not EOF:
            self.answered = int.from_bytes(data, "big")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()


class TcpSender(asyncio.Protocol):
    """One framed stream."""

    async def open(self, port: int) -> None:
        self.queued = self.answered = 0
        self._queue: deque[bytes] = deque()
        self._deframer = Deframer()
        self._paused = False
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", port)

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    def send(self, data: bytes) -> None:
        self._queue.append(data)
        self.queued += len(data)

    def flush(self) -> None:
        while self._queue and not self._paused:
            data = _joined(self._queue)
            self.queued -= len(data)
            self._transport.write(frame(CONNECTION, data))

    def data_received(self, data: bytes) -> None:
        for _, message in self._deframer.feed(data):
            self.answered = int.from_bytes(message, "big")

    async def close(self) -> None:
        self._transport.close()


SHARED = "tcp_shared"  # One connection for all targets: what leaves for them at once is one message with one answer.
SENDERS: dict[str, type[GrpcSender] | type[TcpSender]] = {"grpc": GrpcSender, "tcp": TcpSender, SHARED: TcpSender}


def _joined(queue: deque[bytes]) -> bytes:
    """Everything that is queued, up to a limit, as one message."""
    first = queue.popleft()
    if not queue:
        return first
    return b"".join((first, *_more(queue, len(first))))


def _more(queue: deque[bytes], have: int) -> Iterator[bytes]:
    while queue and have + len(queue[0]) <= JOIN_BYTES:
        have += len(queue[0])
        yield queue.popleft()

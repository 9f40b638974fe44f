"""The log servers that a client knows: one of them is asked, the next one when that one is away.

Several log servers may serve one replicated log. Each could write to it at any time: whoever wants to append compares
and sets the log's position, so an entry of a dead server that is still under way is either in the log before the next
server reads it, or refused. That is all the fencing that there is, and no server has to know of another.

Two that write at the same time only slow each other down. So all clients ask the first server that they know of, as
long as it answers. One that had to go to another server looks every ``BACK_SECONDS`` whether the first is there again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import grpc

from logplayer.log import server_watch
from logplayer.log.grpc_errors import COMMON_OPTIONS, LOG_ID_KEY, is_away
from logplayer.log.server import SERVICE
from logplayer.log.server_watch import ServerWatch, WatchTimes
from logplayer.wire.grpc_credentials import channel_credentials
from logplayer.wire.logplayer.v1 import log_pb2 as pb
from logplayer.wire.security import Security

BACK_SECONDS = 5.0
PROBE_SECONDS = 1.0
CLOSE_SECONDS = 1.5  # A probe may be under way.
Metadata = tuple[tuple[str, str], ...]
_OPTIONS = [
    *COMMON_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


def _serialize(request: Any) -> bytes:
    data: bytes = request.SerializeToString()
    return data


class LogEndpoint:
    """One log server: its channel, and its methods by name."""

    def __init__(self, where: str, security: Security, times: WatchTimes) -> None:
        self.where = where
        self.metadata: Metadata = ()
        self._credentials = channel_credentials(security)
        self._closing: set[asyncio.Task[None]] = set()
        self._connect(_OPTIONS)
        self._watch = ServerWatch(where, self._is_alive, self._connect_again, times)
        self.heard = self._watch.heard

    def _connect(self, options: list[tuple[str, int]]) -> None:
        if self._credentials is None:
            self.channel = grpc.aio.insecure_channel(self.where, options=options)
        else:
            self.channel = grpc.aio.secure_channel(self.where, self._credentials, options=options)
        replies: dict[str, Any] = {
            "Append": pb.AppendReply,
            "Info": pb.InfoReply,
            "Newest": pb.NewestReply,
            "Trim": pb.InfoReply,
            "Alive": pb.AliveReply,
        }
        self.unary: dict[str, Any] = {
            method: self.channel.unary_unary(f"/{SERVICE}/{method}", _serialize, reply.FromString)
            for method, reply in replies.items()
        }
        self.read: Any = self.channel.unary_stream(f"/{SERVICE}/Read", _serialize, response_deserializer=None)
        self.appends: Any = self.channel.stream_stream(f"/{SERVICE}/AppendStream", None, None)  # Bytes both ways.

    def _connect_again(self) -> None:
        """The server hangs: another connection may lead to another one, if several share the address."""
        closing = asyncio.get_running_loop().create_task(self.channel.close(CLOSE_SECONDS))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        self._connect([*_OPTIONS, ("grpc.use_local_subchannel_pool", 1)])  # Or it would be the same connection.

    def watched(self, call: Any) -> AbstractContextManager[None]:
        """While it is entered, ``call`` ends with an ``AioRpcError`` if the server hangs."""
        return self._watch.over(call)

    async def _is_alive(self, seconds: float) -> bool:
        """Whether its event loop runs: any answer says so. A lost connection shows by itself in each call."""
        try:
            await self.unary["Alive"](pb.AliveRequest(), metadata=self.metadata, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        return True

    async def close(self) -> None:
        await self._watch.close()
        await asyncio.gather(self.channel.close(None), *self._closing)


class ServerPool:
    """Belongs to one event loop. ``moved`` is called when the first server is asked again."""

    def __init__(self, hosts: tuple[str, ...], security: Security, moved: Callable[[], None]) -> None:
        times = server_watch.ONE_OF_SEVERAL if len(hosts) > 1 else server_watch.ONLY_ONE
        self._endpoints = [LogEndpoint(host, security, times) for host in hosts]
        self._at = 0
        self._moved = moved
        self._going_back: asyncio.Task[None] | None = None
        self.metadata = ()

    @property
    def metadata(self) -> Metadata:
        """What every call says."""
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: Metadata) -> None:
        self._metadata = metadata
        for endpoint in self._endpoints:
            endpoint.metadata = tuple(pair for pair in metadata if pair[0] != LOG_ID_KEY)

    @property
    def current(self) -> LogEndpoint:
        return self._endpoints[self._at]

    @property
    def several(self) -> bool:
        return len(self._endpoints) > 1

    async def call(self, method: str, request: Any, **options: Any) -> Any:
        """One try, at the current server."""
        endpoint = self.current
        call = endpoint.unary[method](request, metadata=self.metadata, **options)
        try:
            with endpoint.watched(call):
                reply = await call
            endpoint.heard()
            return reply
        except grpc.aio.AioRpcError as error:
            self.failed(endpoint, error)
            raise

    def failed(self, endpoint: LogEndpoint, error: grpc.aio.AioRpcError | None = None) -> None:
        """A call to ``endpoint`` failed: if it is away, or its log is, the next one is asked from now on."""
        if not self.several or endpoint is not self.current or (error is not None and not is_away(error)):
            return
        self._at = (self._at + 1) % len(self._endpoints)
        if self._at and self._going_back is None:
            self._going_back = asyncio.get_running_loop().create_task(self._go_back())

    async def _go_back(self) -> None:
        """Until the first server answers, for the same log."""
        first = self._endpoints[0]
        while self._at:
            await asyncio.sleep(BACK_SECONDS)
            try:
                await first.unary["Info"](pb.InfoRequest(), metadata=self.metadata, timeout=PROBE_SECONDS)
            except grpc.aio.AioRpcError:
                continue
            if self._at:
                self._at = 0
                self._moved()
        self._going_back = None

    async def close(self) -> None:
        if self._going_back is not None:
            self._going_back.cancel()
            await asyncio.wait([self._going_back])
        await asyncio.gather(*(endpoint.close() for endpoint in self._endpoints))

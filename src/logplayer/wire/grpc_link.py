"""A link over gRPC: one bidirectional stream on a channel of its own, bytes in and bytes out.

A channel per link, with its own connection: a reconnect then reads the certificates again, and one target's
trouble is nobody else's. One task reads and one task writes, because two writers at once end a stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import grpc
import grpc.aio

from logplayer.core.invariants import broken
from logplayer.errors import NotATarget, TargetError, TargetUnavailable, VersionMismatch
from logplayer.wire import codec
from logplayer.wire.addresses import Address
from logplayer.wire.codec import MESSAGE_BYTES_MAX
from logplayer.wire.grpc_credentials import channel_credentials
from logplayer.wire.recognise import mixed_up, why_not
from logplayer.wire.security import Security, call_metadata
from logplayer.wire.transport import LinkListener

SERVICE = "logplayer.v1.Target"
PLAY = f"/{SERVICE}/Play"

# The type stubs of grpc.aio lag behind the library, so channels and calls are Any here.
EOF: Any = getattr(grpc.aio, "EOF")  # noqa: B009

# What a channel and a server agree on. Keepalive finds a dead host, not a hung process: the player has its own
# deadline for progress. The ping timeout is an internal option; without it a dead peer takes a minute to find.
_BOTH_SIDES = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
CHANNEL_OPTIONS = [
    *_BOTH_SIDES,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
]
SERVER_OPTIONS = [
    *_BOTH_SIDES,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
]


def open_channel(address: Address, security: Security) -> Any:
    """A channel to the target; nothing is sent yet."""
    credentials = channel_credentials(security)
    if credentials is None:
        return grpc.aio.insecure_channel(address.netloc, CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address.netloc, credentials, CHANNEL_OPTIONS)


async def wait_until_ready(channel: Any, address: Address, security: Security, timeout: float) -> None:
    """Raise TargetError if there is no connection within ``timeout`` seconds.

    A connection that is refused is reported at once, as over tcp://, instead of after gRPC's own retries: a player has
    its own, and whoever asks at a terminal wants to know.
    """
    try:
        async with asyncio.timeout(timeout):
            state = channel.get_state(try_to_connect=True)
            while state is not grpc.ChannelConnectivity.READY:
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    raise await _unreachable(address, security)
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    except TimeoutError:
        raise TargetUnavailable(f"no connection to {address} within {timeout:g} s") from None


async def _unreachable(address: Address, security: Security) -> TargetError:
    why, found = await why_not(address, security)
    mixed = mixed_up(str(address), address.netloc, found)
    return NotATarget(mixed) if mixed else TargetUnavailable(f"no connection to {address}: {why}")


def describe(address: Address, code: grpc.StatusCode, details: str | None) -> TargetError | None:
    """What the status of a finished call means, in one line; None if it ended in order."""
    if code is grpc.StatusCode.OK:
        return None
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return codec.not_admitted(str(address), details)
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        return VersionMismatch(f"{address}: {details}")
    if code is grpc.StatusCode.NOT_FOUND:
        return NotATarget(f"{address}: {details}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return NotATarget(f"the server at {address} is not a target, maybe a log server; give the target's port")
    kind = TargetUnavailable if code is grpc.StatusCode.UNAVAILABLE else TargetError
    return kind(f"the stream to {address} ended: {code.name}: {details}")


async def connect(address: Address, listener: LinkListener, security: Security, timeout: float) -> GrpcLink:
    """Open a channel and a stream on it."""
    channel = open_channel(address, security)
    try:
        await wait_until_ready(channel, address, security, timeout)
        # Without serializers the stream carries bytes as they are.
        call = channel.stream_stream(PLAY)(metadata=call_metadata(security))
    except BaseException:
        await channel.close()
        raise
    return GrpcLink(address, channel, call, listener)


class GrpcLink:
    """See :class:`logplayer.wire.transport.Link`."""

    def __init__(self, address: Address, channel: Any, call: Any, listener: LinkListener) -> None:
        self._address = address
        self._channel = channel
        self._call = call
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._sending = False
        self._open = True
        self._out: deque[bytes] = deque()
        self._wake: asyncio.Future[None] = self._loop.create_future()
        self._writer = self._loop.create_task(self._write())
        self._reader = self._loop.create_task(self._read())

    def send(self, data: bytes) -> None:
        if not self._open:
            return
        if self._sending:
            raise broken("OneWriter", address=str(self._address))
        self._sending = True
        self._put(data)

    def send_control(self, data: bytes) -> None:
        if self._open:
            self._put(data)

    def close(self) -> None:
        self._end(None)

    def _put(self, data: bytes) -> None:
        self._out.append(data)
        if not self._wake.done():
            self._wake.set_result(None)

    async def _write(self) -> None:
        """The only writer. Says that more may be sent once gRPC has taken all that was."""
        try:
            while True:
                await self._wake
                self._wake = self._loop.create_future()
                while self._out:
                    await self._call.write(self._out.popleft())
                if not self._open:
                    return
                if self._sending:
                    self._sending = False
                    self._listener.writable()
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            return  # The reader learns why the stream ended, and tells it.

    async def _read(self) -> None:
        error: Exception | None = None
        try:
            while True:
                data = await self._call.read()
                if not self._open:
                    return
                if data is EOF:
                    break
                # A write that is under way may fail when the target ends the stream, and hide how it ended. So the
                # last message counts, and not the status that follows it.
                if data[:1] == codec.FAILED:
                    self._end(codec.failure(str(self._address), data))
                    return
                self._listener.received(data)
                if data[:1] == codec.REFUSED:
                    self._end(None)
                    return
            error = describe(self._address, await self._call.code(), await self._call.details())
        except grpc.aio.AioRpcError as failed:
            error = describe(self._address, failed.code(), failed.details())
        except asyncio.CancelledError:
            # Either close() cancelled this task, or something outside cancelled the call under it.
            error = TargetError(f"the stream to {self._address} was cancelled")
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if not self._open:
            return
        self._open = False
        self._writer.cancel()
        self._call.cancel()
        self._loop.call_soon(self._listener.closed, error)
        self._closing = self._loop.create_task(self._channel.close())

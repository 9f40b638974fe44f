"""A link over TCP: length-prefixed messages on an asyncio protocol, with TLS by ``ssl``."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import cast

from logplayer.core.invariant import broken
from logplayer.errors import Malformed, TargetError
from logplayer.wire import codec
from logplayer.wire.address import Address
from logplayer.wire.framing import Deframer, frame
from logplayer.wire.security import Security, client_context
from logplayer.wire.transport import Listener

# What may wait in this process for the socket, before writable() waits too.
WRITE_BUFFER_BYTES = 256 * 1024


async def connect(address: Address, listener: Listener, security: Security, timeout: float) -> TcpLink:
    """Connect, do the TLS handshake, and show the token."""
    loop = asyncio.get_running_loop()
    try:
        context = client_context(security)
        # Not wait_for: up to Python 3.11 it can swallow a cancellation.
        async with asyncio.timeout(timeout):
            _, protocol = await loop.create_connection(
                lambda: TcpLink(address, listener), address.host, address.port, ssl=context
            )
    except TimeoutError:
        raise TargetError(f"no connection to {address} within {timeout:g} s") from None
    except ssl.SSLError as error:
        raise TargetError(f"TLS with {address} failed: {error}") from None
    except OSError as error:
        raise TargetError(f"no connection to {address}: {error.strerror or error}") from None
    if security.token:
        protocol.show(security.token)
    return protocol


def tune(transport: asyncio.BaseTransport) -> None:
    """Small frames leave at once, and a host that vanished without a word is found while the stream is idle."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class TcpLink(asyncio.Protocol):
    """See :class:`logplayer.wire.transport.Link`."""

    def __init__(self, address: Address, listener: Listener) -> None:
        self._address = address
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._deframer = Deframer()
        self._transport: asyncio.Transport
        self._open = True
        self._sending = False
        self._paused = False
        self._error: Exception | None = None

    # --- Link ---

    def send(self, data: bytes) -> None:
        if not self._open:
            return
        if self._sending:
            raise broken("OneWriter", address=str(self._address))
        self._sending = True
        self._transport.write(frame(data))
        if not self._paused:
            self._loop.call_soon(self._writable)

    def close(self) -> None:
        self._end(None)

    def show(self, token: str) -> None:
        """Send the token as the first frame."""
        self._transport.write(frame(codec.encode_auth(token)))

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        tune(transport)

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._deframer.feed(data)
        except Malformed as error:
            self._end(TargetError(f"{self._address} does not speak this protocol: {error}"))
            return
        for message in messages:
            if not self._open:
                return
            if message[:1] == codec.FAILED:
                self._end(codec.failure(str(self._address), message))
                return
            self._listener.received(message)
            if message[:1] == codec.REFUSED:
                self._end(None)  # The target waits for this side to close, as its last words might be lost otherwise.

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._writable()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._end(TargetError(f"the connection to {self._address} broke: {exc}"))
        elif not self._deframer.idle:
            self._end(TargetError(f"the connection to {self._address} ended inside a message"))
        else:
            self._end(None)

    # --- Inside ---

    def _writable(self) -> None:
        if self._open and self._sending and not self._paused:
            self._sending = False
            self._listener.writable()

    def _end(self, error: Exception | None) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.call_soon(self._listener.closed, error)
        self._transport.abort()

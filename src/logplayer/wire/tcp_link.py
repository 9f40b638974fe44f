"""Links over TCP: frames on an asyncio protocol, with TLS by ``ssl``. The links to one address may share a connection.

What the links of a connection send within one turn of the event loop leaves with one write: at the end of the turn, or
when whoever uses them says that nothing more comes.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from itertools import count
from typing import cast

from logplayer.core.invariant import broken
from logplayer.errors import Malformed, TargetError
from logplayer.wire import codec
from logplayer.wire.address import Address
from logplayer.wire.framing import CONNECTION, Deframer, frame, frame_head
from logplayer.wire.security import Security, client_context
from logplayer.wire.transport import Listener

# What may wait in this process for the socket, before writable() waits too.
WRITE_BUFFER_BYTES = 256 * 1024
# After a write of less than so much, nobody waits to send more: the peer needs the processor sooner than we do. So the
# links hear that they may send again when it answers, when somebody has more to send, or after this time.
PROMPT_BYTES = 64 * 1024
REST_SECONDS = 0.002

# Hears of the first message of a turn; whether it will say when nothing more comes, by calling end_turn().
Begun = Callable[["TcpConnection"], bool]


def _leave_it(connection: TcpConnection) -> bool:
    """For those who leave it to the end of the turn."""
    return False


async def dial(address: Address, security: Security, timeout: float, begun: Begun = _leave_it) -> TcpConnection:
    """Connect, do the TLS handshake, and show the token."""
    loop = asyncio.get_running_loop()
    try:
        context = client_context(security)
        # Not wait_for: up to Python 3.11 it can swallow a cancellation.
        async with asyncio.timeout(timeout):
            _, connection = await loop.create_connection(
                lambda: TcpConnection(address, begun), address.host, address.port, ssl=context
            )
    except TimeoutError:
        raise TargetError(f"no connection to {address} within {timeout:g} s") from None
    except ssl.SSLError as error:
        raise TargetError(f"TLS with {address} failed: {error}") from None
    except OSError as error:
        raise TargetError(f"no connection to {address}: {error.strerror or error}") from None
    if security.token:
        connection.show(security.token)
    return connection


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


class TcpConnection(asyncio.Protocol):
    """One connection and the links on it. It ends with the last of them."""

    def __init__(self, address: Address, begun: Begun) -> None:
        self.address = address
        self._begun = begun
        self._loop = asyncio.get_running_loop()
        self._deframer = Deframer()
        self._transport: asyncio.Transport
        self._links: dict[int, TcpLink] = {}  # By number, which a link has once it has sent.
        self._silent: set[TcpLink] = set()  # Those that have not.
        self._numbers = count(1)
        self._open = True
        self._retired = False
        self._paused = False
        self._written = 0  # In this turn, as bytes.
        self._rest: asyncio.TimerHandle | None = None
        self.turning = False  # The end of this turn of the loop is awaited.
        self.out: list[bytes] = []  # What leaves at the end of this turn.
        self.sent: list[TcpLink] = []  # Who has sent and not yet heard that it may send again.

    @property
    def takes_links(self) -> bool:
        """Whether another link may join. Not once somebody has cut a link: the peer may have been silent."""
        return self._open and not self._retired

    def link(self, listener: Listener) -> TcpLink:
        """A new stream to the peer."""
        link = TcpLink(self, listener)
        self._silent.add(link)
        if not self._open:  # It broke between the handshake and now.
            self._loop.call_soon(link.end, TargetError(f"the connection to {self.address} broke"))
        return link

    def show(self, token: str) -> None:
        """Send the token as the first frame."""
        self._transport.write(frame(CONNECTION, codec.encode_auth(token)))

    def close_if_idle(self) -> None:
        """Nobody wants it any more, unless there are links."""
        if not self._links and not self._silent:
            self._end(None)

    # --- For its links ---

    def number(self, link: TcpLink) -> int:
        """For a link's first message: numbers rise in the order in which streams begin."""
        number = next(self._numbers)
        self._silent.discard(link)
        self._links[number] = link
        return number

    def begin(self) -> None:
        """The first link has something to send in this turn. If there are no others, nothing will join it."""
        self.turning = True
        if len(self._links) + len(self._silent) == 1:
            self._flush()
        if not self._begun(self):
            self._loop.call_soon(self._turn)

    def end_turn(self) -> None:
        """Nothing more comes: send what waits. Only then is it time to think of the next turn."""
        self.turning = False
        self._flush()
        written, self._written = self._written, 0
        if self._rest is not None:
            self._rest.cancel()  # That of an earlier turn: it would cut this one short.
            self._rest = None
        if written < PROMPT_BYTES:
            self._rest = self._loop.call_later(REST_SECONDS, self._turn)
        else:
            self._loop.call_soon(self._turn)

    def settle(self) -> None:
        """Somebody has more to send: whoever has sent may send again now."""
        if self.sent and not self.turning and not self._paused:
            self._release()

    def _flush(self) -> None:
        if self.out and self._open:
            data = b"".join(self.out)
            self.out = []
            self._written += len(data)
            self._transport.write(data)

    def leave(self, link: TcpLink, *, cut: bool) -> None:
        """A link has ended; with ``cut``, by this side."""
        if not self._open:
            return
        self._silent.discard(link)
        self._links.pop(link.number, None)
        if cut:
            self._retired = True
        if not self._links and not self._silent:
            self._end(None)
        elif cut and link.number:
            self.out.append(frame_head(link.number, b""))  # Behind what the link has sent.
            if not self.turning:
                self.begin()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        tune(transport)

    def data_received(self, data: bytes) -> None:
        self.settle()
        try:
            for number, message in self._deframer.feed(data):
                link = self._links.get(number)
                if link is not None:
                    link.received(message)
                elif number == CONNECTION and message[:1] == codec.FAILED:
                    self._end(codec.failure(str(self.address), message))
                    return
        except Malformed as error:
            self._end(TargetError(f"{self.address} does not speak this protocol: {error}"))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._release()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._end(TargetError(f"the connection to {self.address} broke: {exc}"))
        elif not self._deframer.idle:
            self._end(TargetError(f"the connection to {self.address} ended inside a message"))
        else:
            self._end(None)

    # --- Inside ---

    def _turn(self) -> None:
        """The turn of the loop is over in which somebody began to send, or the rest behind it."""
        self.turning = False
        self._flush()
        self._written = 0
        if not self._paused:
            self._release()

    def _release(self) -> None:
        sent, self.sent = self.sent, []
        for link in sent:
            link.writable()

    def _end(self, error: Exception | None) -> None:
        if not self._open:
            return
        self._open = False
        links = [*self._links.values(), *self._silent]
        self._links.clear()
        self._silent.clear()
        for link in links:
            link.end(error)
        self.out.clear()
        self._transport.abort()


class TcpLink:
    """See :class:`logplayer.wire.transport.Link`."""

    __slots__ = ("_connection", "_listener", "_open", "_sending", "number")

    def __init__(self, connection: TcpConnection, listener: Listener) -> None:
        self.number = 0
        self._connection = connection
        self._listener = listener
        self._open = True
        self._sending = False

    # --- Link ---

    def send(self, data: bytes) -> None:
        if not self._open:
            return
        if self._sending:
            raise broken("OneWriter", address=str(self._connection.address), stream=self.number)
        self._sending = True
        connection = self._connection
        if not self.number:
            self.number = connection.number(self)
        connection.sent.append(self)
        out = connection.out
        out.append(frame_head(self.number, data))
        out.append(data)
        if not connection.turning:
            connection.begin()

    def close(self) -> None:
        self._close(None, cut=True)

    # --- For the connection ---

    def received(self, message: bytes) -> None:
        first = message[:1]
        if first == codec.FAILED:
            self._close(codec.failure(str(self._connection.address), message), cut=False)
            return
        if first == codec.REFUSED:
            self._close(None, cut=False)  # Before it is heard: to close the link then is not to cut it.
        self._listener.received(message)

    def writable(self) -> None:
        if self._open and self._sending:
            self._sending = False
            self._listener.writable()

    def end(self, error: Exception | None) -> None:
        """The connection is gone, or the stream."""
        if self._open:
            self._open = False
            asyncio.get_running_loop().call_soon(self._listener.closed, error)

    def _close(self, error: Exception | None, *, cut: bool) -> None:
        if self._open:
            self.end(error)
            self._connection.leave(self, cut=cut)

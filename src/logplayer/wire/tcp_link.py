"""Links over TCP: frames on an asyncio protocol, with TLS by ``ssl``. The links to one address may share a connection.

A connection gathers what its links send in one turn and writes it at once, and it alone decides when a link may send
again: ``wire.turn`` says how and why.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from itertools import count
from typing import cast

from logplayer.core.invariants import broken
from logplayer.errors import Malformed, NotATarget, TargetError, TargetUnavailable
from logplayer.wire import codec
from logplayer.wire.addresses import Address
from logplayer.wire.framing import CONNECTION, Deframer, frame, frame_head
from logplayer.wire.recognise import mixed_up, reason, recognise, tls_trouble
from logplayer.wire.security import Security, client_context
from logplayer.wire.transport import LinkListener
from logplayer.wire.turn import Turn

# What may wait in this process for the socket, before writable() waits too.
WRITE_BUFFER_BYTES = 256 * 1024
# After a write of less than this the links rest: the peer needs the processor sooner than we do.
PROMPT_BYTES = 64 * 1024
REST_SECONDS = 0.002


async def dial(address: Address, security: Security, timeout: float, turn: Turn | None = None) -> TcpConnection:
    """Connect, do the TLS handshake, and show the token. Without a ``turn`` that others share it has one of its own."""
    turn = turn or Turn()
    loop = asyncio.get_running_loop()
    try:
        context = client_context(security)
        # Not wait_for: up to Python 3.11 it can swallow a cancellation.
        async with asyncio.timeout(timeout):
            _, connection = await loop.create_connection(
                lambda: TcpConnection(address, turn), address.host, address.port, ssl=context
            )
    except TimeoutError:
        raise TargetUnavailable(f"no connection to {address} within {timeout:g} s") from None
    except ssl.SSLError as error:
        raise TargetError(f"TLS with {address} failed: {tls_trouble(error)}") from None
    except OSError as error:
        raise TargetUnavailable(f"no connection to {address}: {reason(error)}") from None
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

    def __init__(self, address: Address, turn: Turn) -> None:
        self.address = address
        self._turn = turn
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
        self._gathering = False  # Since the first frame of a turn, until it ends.
        self._out: list[bytes] = []  # What leaves at the end of this turn.
        self._sent: list[TcpLink] = []  # Those that have not heard that they may send again.

    @property
    def takes_links(self) -> bool:
        """Whether another link may join. Not once somebody has cut a link: the peer may have been silent."""
        return self._open and not self._retired

    def link(self, listener: LinkListener) -> TcpLink:
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

    def send(self, link: TcpLink, data: bytes) -> None:
        """A message after which the link waits until it may send again."""
        self._sent.append(link)
        self.gather(link, data)

    def gather(self, link: TcpLink, data: bytes) -> None:
        """Write it at the end of this turn, with what the other links send."""
        out = self._out
        out.append(frame_head(link.number, data))
        out.append(data)
        if not self._gathering:
            self._begin_turn()

    def _begin_turn(self) -> None:
        """The first frame of a turn. If there are no other links, nothing will join it."""
        self._gathering = True
        if len(self._links) + len(self._silent) == 1:
            self._flush()
        if not self._turn.gathers(self):
            self._loop.call_soon(self._release)

    # --- For the turn ---

    def end_turn(self) -> None:
        """Write what was gathered, and rest if it was little. A rest that began earlier would be too short."""
        self._gathering = False
        self._flush()
        written, self._written = self._written, 0
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if not self._sent:
            return
        if written < PROMPT_BYTES:
            self._rest = self._loop.call_later(REST_SECONDS, self._release)
        else:
            self._loop.call_soon(self._release)

    def end_rest(self) -> None:
        """The links that have sent may send again now, unless there is no room, or their messages are still here."""
        if not self._sent or self._gathering or self._paused:
            return
        sent, self._sent = self._sent, []
        self._turn.begin()
        try:
            for link in sent:
                link.writable()
        finally:
            self._turn.end()

    def _release(self) -> None:
        """The rest is over, or the iteration of the loop in which a link began to send outside of a turn."""
        self._gathering = False
        self._flush()
        self._written = 0
        self.end_rest()

    def _flush(self) -> None:
        if self._out and self._open:
            data = b"".join(self._out)
            self._out = []
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
            self.gather(link, b"")  # After what the link has sent.

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        tune(transport)

    def data_received(self, data: bytes) -> None:
        self._turn.begin()
        try:
            self.end_rest()
            for number, message in self._deframer.feed(data):
                link = self._links.get(number)
                if link is not None:
                    link.received(message)
                elif number == CONNECTION and message[:1] == codec.FAILED:
                    self._end(codec.failure(str(self.address), message))
                    return
        except Malformed as error:
            self._end(self._foreign(data) or TargetError(f"{self.address} does not speak this protocol: {error}"))
        finally:
            self._turn.end()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.end_rest()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._end(TargetUnavailable(f"the connection to {self.address} broke: {exc}"))
        elif not self._deframer.idle:
            cut = TargetError(f"the connection to {self.address} ended inside a message")
            self._end(self._foreign(self._deframer.unfinished) or cut)
        else:
            self._end(None)

    # --- Inside ---

    def _foreign(self, data: bytes) -> TargetError | None:
        """What to report if ``data``, which is not a frame of ours, is the beginning of another protocol."""
        mixed = mixed_up(str(self.address), self.address.netloc, recognise(data))
        return NotATarget(mixed) if mixed else None

    def _end(self, error: Exception | None) -> None:
        if not self._open:
            return
        self._open = False
        links = [*self._links.values(), *self._silent]
        self._links.clear()
        self._silent.clear()
        for link in links:
            link.end(error)
        self._out.clear()
        self._transport.abort()


class TcpLink:
    """See :class:`logplayer.wire.transport.Link`."""

    __slots__ = ("_connection", "_listener", "_open", "_sending", "number")

    def __init__(self, connection: TcpConnection, listener: LinkListener) -> None:
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
        if not self.number:
            self.number = self._connection.number(self)
        self._connection.send(self, data)

    def send_control(self, data: bytes) -> None:
        if self._open:
            if not self.number:
                self.number = self._connection.number(self)
            self._connection.gather(self, data)

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

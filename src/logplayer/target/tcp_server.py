"""The target's service over framed TCP."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Coroutine, Mapping
from typing import cast

from logplayer.errors import LogPlayerError, Malformed, UserError
from logplayer.target.ack_round import AckRound
from logplayer.target.host import Host
from logplayer.target.stream import ACK_SECONDS, Stream
from logplayer.wire import codec
from logplayer.wire.address import Address
from logplayer.wire.framing import Deframer, frame
from logplayer.wire.security import Security, ServerContexts
from logplayer.wire.tcp_link import WRITE_BUFFER_BYTES, tune

# What somebody may send before the token is known to be right.
_STRANGER_BYTES_MAX = 16 * 1024
_HANDSHAKE_SECONDS = 10.0
# How long a connection may say nothing at all.
_FIRST_MESSAGE_SECONDS = 30.0
# How long a player may take to hear that its stream has ended before the connection is cut.
_LINGER_SECONDS = 5.0
_log = logging.getLogger(__name__)


class TcpServer:
    """Listens at one port for any number of players.

    Connections are accepted here and not by asyncio's server, because each handshake then uses the certificate that
    is in the files at that time.
    """

    def __init__(self, hosts: Mapping[str, Host], security: Security) -> None:
        self._hosts = hosts
        self._security = security
        self.acks = AckRound(ACK_SECONDS)
        self._contexts = ServerContexts(security)
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None
        self.peers: set[TcpPeer] = set()

    async def start(self, address: Address) -> int:
        """Listen; the port that was bound."""
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, where = infos[0]
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            raise UserError(f"cannot listen at {address}: {error.strerror or error}") from None
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(where)
            sock.listen(128)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            raise UserError(f"cannot listen at {address}: {error.strerror}; is the port in use?") from None
        self._socket = sock
        self._spawn(self._accept(sock))
        return int(sock.getsockname()[1])

    async def stop(self) -> None:
        """Cut every connection."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        for peer in list(self.peers):
            peer.cut()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                _log.warning("cannot accept a connection: %s", error.strerror)
                await asyncio.sleep(0.1)  # Out of descriptors: the next try is not better at once.
                continue
            self._spawn(self._welcome(connection))

    async def _welcome(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        context = self._contexts.current()
        limit = _HANDSHAKE_SECONDS if context is not None else None
        try:
            await loop.connect_accepted_socket(
                lambda: TcpPeer(self), connection, ssl=context, ssl_handshake_timeout=limit
            )
        except (OSError, ssl.SSLError):
            connection.close()  # A stranger, a scanner, or a peer without our CA; it was told by TLS.

    @property
    def hosts(self) -> Mapping[str, Host]:
        return self._hosts

    @property
    def security(self) -> Security:
        return self._security


class TcpPeer(asyncio.Protocol):
    """See :class:`logplayer.target.stream.Peer`."""

    def __init__(self, server: TcpServer) -> None:
        self._server = server
        self._stream = Stream(server.hosts, self, server.acks)
        self._known = not server.security.token
        self._deframer = Deframer(codec.MESSAGE_BYTES_MAX if self._known else _STRANGER_BYTES_MAX)
        self._first = True
        self._transport: asyncio.Transport
        self._patience: asyncio.TimerHandle
        self._clogged = False
        self._said_all = False

    # --- Peer ---

    def flush(self) -> None:
        while not self._clogged and not self._said_all:
            data = self._stream.take()
            if data is not None:
                self._transport.write(frame(data))
            elif self._stream.ended:
                self._finish()
            else:
                return

    def pause(self) -> None:
        self._transport.pause_reading()

    def resume(self) -> None:
        self._transport.resume_reading()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        tune(transport)
        self._server.peers.add(self)
        self._patience = asyncio.get_running_loop().call_later(_FIRST_MESSAGE_SECONDS, self.cut)

    def data_received(self, data: bytes) -> None:
        if self._stream.ended:
            return  # What was under way when the stream ended; see _finish.
        try:
            for message in self._deframer.feed(data):
                if self._first and not self._admit(message):
                    continue
                self._stream.received(message)
        except Malformed as error:
            self._fail(codec.INVALID, str(error))

    def pause_writing(self) -> None:
        self._clogged = True

    def resume_writing(self) -> None:
        self._clogged = False
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.peers.discard(self)
        self._patience.cancel()
        self._said_all = True
        self._stream.gone()

    # --- Inside ---

    def cut(self) -> None:
        """Close at once."""
        self._transport.abort()

    def _admit(self, message: bytes) -> bool:
        """Whether the first message is for the stream: not if it was the token, nor if there should have been one."""
        self._first = False
        self._patience.cancel()
        try:
            auth = codec.decode_to_target(message)
        except LogPlayerError:
            auth = codec.Probe()
        if not isinstance(auth, codec.Auth):
            if not self._known:
                self._fail(codec.UNAUTHENTICATED, "this target wants a token")
            return self._known
        if not self._server.security.permits(auth.token):
            self._fail(codec.UNAUTHENTICATED, "the token is wrong")
            return False
        self._known = True
        self._deframer.limit = codec.MESSAGE_BYTES_MAX
        return False

    def _fail(self, code: int, detail: str) -> None:
        if not self._stream.ended:
            self._stream.failure = (code, detail)
            self._stream.ended = True
        self.flush()

    def _finish(self) -> None:
        """Say why, and let the player close.

        Closing first could destroy the last message: what the player still sends would meet a closed socket, and
        the reset that answers it drops what the player has not read.
        """
        self._said_all = True
        if self._stream.failure is not None:
            self._transport.write(frame(codec.encode_failed(*self._stream.failure)))
        self._transport.resume_reading()
        loop = asyncio.get_running_loop()
        loop.call_later(_LINGER_SECONDS, self._transport.abort)

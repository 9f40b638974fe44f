"""The target's service over framed TCP."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Coroutine, Mapping

from logplayer.errors import UserError
from logplayer.target.ack_round import AckRound
from logplayer.target.host import Host
from logplayer.target.stream import ACK_SECONDS
from logplayer.target.tcp_peer import TcpPeer
from logplayer.wire.address import Address
from logplayer.wire.security import Security, ServerContexts

_HANDSHAKE_SECONDS = 10.0
_log = logging.getLogger(__name__)


class TcpServer:
    """Listens at one port for any number of players.

    Connections are accepted here and not by asyncio's server, because each handshake then uses the certificate that
    is in the files at that time.
    """

    def __init__(self, hosts: Mapping[str, Host], security: Security) -> None:
        self._hosts = hosts
        self._security = security
        self._acks = AckRound(ACK_SECONDS)
        self._contexts = ServerContexts(security)
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None
        self._peers: set[TcpPeer] = set()

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
        for peer in list(self._peers):
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
            await loop.connect_accepted_socket(self._peer, connection, ssl=context, ssl_handshake_timeout=limit)
        except (OSError, ssl.SSLError):
            connection.close()  # A stranger, a scanner, or a peer without our CA; it was told by TLS.

    def _peer(self) -> TcpPeer:
        return TcpPeer(self._hosts, self._acks, self._security, self._peers)

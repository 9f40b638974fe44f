"""The target's service over framed TCP."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping

from logplayer.target.ack_coalescing import AckRound
from logplayer.target.bounds import Questions, Unfinished
from logplayer.target.host import Host
from logplayer.target.stream import ACK_SECONDS
from logplayer.target.tcp_peer import TcpPeer
from logplayer.wire.addresses import Address
from logplayer.wire.listening import Listener
from logplayer.wire.security import Security

_HANDSHAKE_SECONDS = 10.0


class TcpServer:
    """Listens at one port for any number of players."""

    def __init__(self, hosts: Mapping[str, Host], security: Security, questions: Questions) -> None:
        self._hosts = hosts
        self._questions = questions
        self._unfinished: Unfinished[TcpPeer] = Unfinished()
        self._security = security
        self._acks = AckRound(ACK_SECONDS)
        self._listener = Listener(self._welcome, security, "--listen-tcp")
        self._peers: set[TcpPeer] = set()

    async def start(self, address: Address) -> int:
        """Listen; the port that was bound."""
        _, port = await self._listener.start(address.host, address.port)
        return port

    async def stop(self) -> None:
        """Cut every connection."""
        await self._listener.stop()
        for peer in list(self._peers):
            peer.cut()

    async def _welcome(self, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        limit = _HANDSHAKE_SECONDS if context is not None else None
        await loop.connect_accepted_socket(self._peer, connection, ssl=context, ssl_handshake_timeout=limit)

    def _peer(self) -> TcpPeer:
        return TcpPeer(self._hosts, self._acks, self._security, self._peers, self._questions, self._unfinished)

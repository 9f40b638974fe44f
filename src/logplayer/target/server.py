"""Serves targets over gRPC and framed TCP. Both feed the same :class:`logplayer.target.stream.Stream`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from logplayer.core.fence import Position
from logplayer.errors import UserError
from logplayer.target.grpc_server import GrpcServer
from logplayer.target.host import Host, Trace
from logplayer.target.protocol import Target
from logplayer.target.tcp_server import TcpServer
from logplayer.wire.address import Address, parse_netloc
from logplayer.wire.security import NONE, Security, require_protection


class TargetServer:
    """One or more targets behind one or two ports.

    A store has one server at a time. Two would still be safe, because the store's own transaction checks every
    change, but each would answer readers from what it committed itself.
    """

    def __init__(self, targets: Mapping[str, Target], security: Security = NONE, trace: Trace | None = None) -> None:
        self.addresses: list[str] = []
        self._hosts = {name: Host(name, target, trace) for name, target in targets.items()}
        self._security = security
        self._servers: list[GrpcServer | TcpServer] = []

    async def start(self, *, grpc: str = "", tcp: str = "") -> list[str]:
        """Listen at ``HOST:PORT`` for each transport that is given; the addresses as players write them.

        Port 0 takes any free port. Nothing listens if anything is wrong: an address in use, a certificate that
        cannot be read, plain text beyond loopback, a store that cannot be read.
        """
        listeners = [(scheme, *parse_netloc(netloc)) for scheme, netloc in (("grpc", grpc), ("tcp", tcp)) if netloc]
        if not listeners:
            raise UserError("a target server needs an address to listen at")
        for _, host, _ in listeners:
            require_protection(self._security, host, server=True)
        try:
            for hosted in self._hosts.values():
                await hosted.start()
            for scheme, host, port in listeners:
                server = (GrpcServer if scheme == "grpc" else TcpServer)(self._hosts, self._security)
                self._servers.append(server)
                bound = await server.start(Address(scheme, host, port))
                self.addresses.append(str(Address(scheme, host, bound)))
        except BaseException:
            await self.stop()
            raise
        return self.addresses

    def position(self, name: str) -> Position:
        """What is durable in the target ``name``."""
        return self._hosts[name].position

    async def stop(self) -> None:
        """End the streams, finish the commits that run, close the stores. Players see a closed stream."""
        await asyncio.gather(*(server.stop() for server in self._servers))
        await asyncio.gather(*(host.stop() for host in self._hosts.values()))

"""Serves targets over gRPC and framed TCP. Both feed the same :class:`logplayer.target.stream.Stream`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from logplayer.core.fence import Position
from logplayer.errors import UserError
from logplayer.target.bounds import Questions
from logplayer.target.grpc_server import GrpcServer
from logplayer.target.host import Host, TraceSink
from logplayer.target.protocol import Target
from logplayer.target.tcp_server import TcpServer
from logplayer.wire.addresses import Address, parse_netloc
from logplayer.wire.security import NONE, Security, require_protection


class TargetServer:
    """One or more targets at one or two ports: ``async with`` serves them, or ``start`` and ``stop``.

    A store has one server at a time. Two would still be safe, because the store's own transaction checks every
    change, but each would answer readers from what it committed itself.

    Args:
        targets: Each store under the name of its target.
        security: Certificate and token; without them only loopback is served.
        trace: Takes notes of what each target does, for a check of recorded runs; leave it out.
        listen: Where ``async with`` listens: ``tcp://host:port`` or ``grpc://host:port``; port 0 takes a free one.

    Raises:
        ConfigError: Plain text beyond loopback, or a certificate that cannot be read.
        Unavailable: Somebody else listens there.

    Example:
        >>> async with lp.TargetServer({"a": lp.SqliteTarget("a.db", "a")}) as server:  # doctest: +SKIP
        ...     print(server.address)
    """

    def __init__(
        self,
        targets: Mapping[str, Target],
        security: Security = NONE,
        trace: TraceSink | None = None,
        *,
        listen: str = "tcp://127.0.0.1:0",
    ) -> None:
        self.addresses: list[str] = []
        self._listen = listen
        self._hosts = {name: Host(name, target, trace) for name, target in targets.items()}
        self._security = security
        self._questions = Questions()
        self._servers: list[GrpcServer | TcpServer] = []

    async def start(self, *, grpc: str = "", tcp: str = "") -> list[str]:
        """Listen at ``HOST:PORT`` for each transport that is given; the addresses as players write them.

        Port 0 takes any free port. Nothing listens if anything is wrong.

        Args:
            grpc: Where to listen for gRPC, if anywhere.
            tcp: Where to listen for framed TCP, if anywhere.

        Raises:
            UserError: No address is given, or one cannot be listened at.
            ConfigError: Plain text beyond loopback, or a certificate that cannot be read.
            Unavailable: Somebody else listens there.
            Exception: What a store raises if its position cannot be read.

        Example:
            >>> await server.start(grpc="127.0.0.1:7201", tcp="127.0.0.1:0")  # doctest: +SKIP
            ['grpc://127.0.0.1:7201', 'tcp://127.0.0.1:40113']
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
                server = (GrpcServer if scheme == "grpc" else TcpServer)(self._hosts, self._security, self._questions)
                self._servers.append(server)
                bound = await server.start(Address(scheme, host, port))
                self.addresses.append(str(Address(scheme, host, bound)))
        except BaseException:
            await self.stop()
            raise
        return self.addresses

    @property
    def address(self) -> str:
        """The address as players write it; the first one, if it listens at two.

        Raises:
            UserError: It does not listen yet.
        """
        if not self.addresses:
            raise UserError("the target server does not listen yet; use it with 'async with', or await its start()")
        return self.addresses[0]

    async def __aenter__(self) -> TargetServer:
        scheme, _, netloc = self._listen.partition("://")
        if scheme not in ("grpc", "tcp"):
            raise UserError(
                f"a target server cannot listen at {self._listen!r}; write tcp://host:port or grpc://host:port"
            )
        await (self.start(grpc=netloc) if scheme == "grpc" else self.start(tcp=netloc))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def hosts(self) -> Mapping[str, Host]:
        """The targets that are served here, by name."""
        return self._hosts

    def position(self, name: str) -> Position:
        """What is durable in one of its targets.

        Args:
            name: The target's name.

        Raises:
            KeyError: No target of that name is served here.

        Example:
            >>> server.position("a").index  # doctest: +SKIP
            42
        """
        return self._hosts[name].position

    async def stop(self) -> None:
        """End the streams, finish the commits that run, close the stores. Players see a closed stream.

        Example:
            >>> await server.stop()  # doctest: +SKIP
        """
        await asyncio.gather(*(server.stop() for server in self._servers))
        await asyncio.gather(*(host.stop() for host in self._hosts.values()))

"""Listening at a port, for the servers that are not gRPC's; and one way to say that a port cannot be listened at.

asyncio's own servers read their certificate once, when they start, and never show the one that it was renewed with. So
connections are accepted here, and each handshake uses the certificate that is in the files at that time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial

from logplayer.errors import AddressError, LogPlayerError, Unavailable
from logplayer.wire.addresses import netloc
from logplayer.wire.security import Security, ServerContexts

# What may mend itself: the process that has the port ends, the network that has the host's address comes up.
_FOR_NOW = {
    errno.EADDRINUSE: "the port is in use; stop what uses it, or choose another",
    errno.EADDRNOTAVAIL: "this machine does not have that address now; wait for its network, or choose another",
}
_NO_SUCH_ADDRESS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # Such as ::1 for localhost, on a machine without IPv6.
_BACKLOG = 128
_log = logging.getLogger(__name__)

Welcome = Callable[[socket.socket, ssl.SSLContext | None], Awaitable[None]]


def cannot_listen(host: str, port: int, option: str, error: OSError) -> LogPlayerError:
    """What to say when ``host:port``, which the user gave with ``option``, cannot be listened at."""
    where = f"cannot listen at {netloc(host, port)}"
    if error.errno in _FOR_NOW:
        return Unavailable(f"{where}: {_FOR_NOW[error.errno]} with {option}")
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        return Unavailable(f"{where}: {error.strerror}; wait for the name service, or give a number with {option}")
    return AddressError(f"{where}: {error.strerror or error}; choose another with {option}")


def require_free(host: str, port: int, option: str) -> None:
    """Raise if nobody can listen there. For gRPC, which does not say why it cannot, and writes to stderr by itself."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
            if port:
                probe.listen(1)  # Two sockets may be bound to a port with SO_REUSEADDR; only one may listen.
    except OSError as error:
        raise cannot_listen(host, port, option, error) from None


class Listener:
    """Accepts connections; ``welcome`` runs for each of them, and at most ``at_once`` of these run at the same time.

    One more ends the oldest one: peers that are slow on purpose do not shut out those that come after them.
    """

    def __init__(self, welcome: Welcome, security: Security, option: str, at_once: int = 1024) -> None:
        self._welcome = welcome
        self._contexts = ServerContexts(security)
        self._option = option
        self._at_once = at_once
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._welcomed: dict[asyncio.Task[None], None] = {}  # In the order in which they came.

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen at every address that ``host`` has; returns the first one and its port."""
        try:
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise cannot_listen(host, port, self._option, error) from None
        away: OSError | None = None
        for family, kind, protocol, _, where in infos:
            taken = self._sockets[0].getsockname()[1] if self._sockets else port
            try:
                self._sockets.append(_bind(family, kind, protocol, (where[0], taken, *where[2:])))
            except OSError as error:
                away = error
                if error.errno not in _NO_SUCH_ADDRESS:
                    break
        if away is not None and (not self._sockets or away.errno not in _NO_SUCH_ADDRESS):
            self._close()
            raise cannot_listen(host, port, self._option, away) from None
        loop = asyncio.get_running_loop()
        self._accepting = [loop.create_task(self._accept(sock)) for sock in self._sockets]
        taken_host, taken_port = self._sockets[0].getsockname()[:2]
        return taken_host, taken_port

    async def stop(self) -> None:
        """Accept no more, and end what ``welcome`` still does."""
        tasks = [*self._accepting, *self._welcomed]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._close()

    def _close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._sockets = []

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                _log.warning("cannot accept a connection: %s", error.strerror)
                await asyncio.sleep(0.1)  # Out of descriptors: the next try is not better at once.
                continue
            if len(self._welcomed) >= self._at_once:
                self._end_oldest()
            task = loop.create_task(self._serve(connection))
            self._welcomed[task] = None
            task.add_done_callback(partial(self._served, connection))

    def _end_oldest(self) -> None:
        oldest = next((task for task in self._welcomed if not task.cancelling()), None)
        if oldest is not None:
            oldest.cancel()

    def _served(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._welcomed.pop(task, None)
        if task.cancelled():
            connection.close()  # Perhaps before it was even looked at.

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await self._welcome(connection, self._contexts.current())
        except (OSError, ssl.SSLError, TimeoutError):
            connection.close()  # A stranger, a scanner, or a peer without our CA; TLS has answered it.


def _bind(family: int, kind: int, protocol: int, where: tuple[str | int, ...]) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock

"""HTTP at one address: uvicorn speaks it, our listener accepts, and nobody can make it cost much.

uvicorn's own server reads a certificate once, when it starts, and takes any number of connections for any time. So the
connections are accepted by :class:`logplayer.wire.listening.Listener`, as for ``tcp://``: each handshake uses the
certificate that is in the files at that time, and one connection too many ends the oldest. uvicorn gets each accepted
socket, and runs the application on the event loop that is there, which may be uvloop's, in a thread of a Spark driver.

A connection carries one request, and has ``TURN_SECONDS`` for all of it: handshake, question and answer. A stream of
events is let off, once its token was looked at. What comes before the token is looked at is bounded by h11 (the
head) and by uvicorn (it stops reading a body that the application does not take).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from logplayer.wire.addresses import netloc, parse_netloc
from logplayer.wire.listening import Listener
from logplayer.wire.security import NONE, Security, require_protection

HEAD_BYTES_MAX = 64 << 10
CONNECTIONS_MAX = 128
TURN_SECONDS = 10.0
ENDLESS = "endless"  # In the state of a request: call it, and the connection may last.

AsgiMessage = MutableMapping[str, Any]
App = Callable[
    [AsgiMessage, Callable[[], Awaitable[AsgiMessage]], Callable[[AsgiMessage], Awaitable[None]]], Awaitable[None]
]


class HttpServer:
    """Serves an ASGI application at one address."""

    def __init__(self, app: App, security: Security = NONE, option: str = "--http") -> None:
        self._security = security
        self._option = option
        self._listener: Listener | None = None
        self._state = ServerState()
        self._config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",  # Strangers who do not speak HTTP are not news.
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )

    async def start(self, listen: str) -> str:
        """Listen, and return the address that was taken."""
        host, port = parse_netloc(listen)
        require_protection(self._security, host, server=True)
        self._config.load()
        self._listener = Listener(self._welcome, self._security, self._option, CONNECTIONS_MAX)
        return netloc(*await self._listener.start(host, port))

    async def stop(self) -> None:
        """Accept no more, and end what is under way."""
        if self._listener is not None:
            await self._listener.stop()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _welcome(self, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(TURN_SECONDS) as deadline:
            made = _Connection(self._config, self._state, {ENDLESS: lambda: deadline.reschedule(None)}, loop)
            transport, _ = await loop.connect_accepted_socket(lambda: made, connection, ssl=context)
            try:
                await made.over
            finally:
                transport.abort()


class _Connection(H11Protocol):
    """uvicorn's end of one connection; ``over`` is done when it is closed."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, app_state: dict[str, Any], loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(config, state, app_state, loop)
        self.over: asyncio.Future[None] = loop.create_future()

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.ProtocolError:  # More came after a question that was answered, or refused: it was the last one.
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Somebody who has asked all and says nothing more still waits for the answer; TLS cannot be half closed."""
        return self.scheme == "http" and self.cycle is not None and not self.cycle.more_body

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.over.done():
            self.over.set_result(None)

"""The connections of one player: its streams to one tcp:// address share one, and its turn gathers what they send."""

from __future__ import annotations

import asyncio

from logplayer.wire import addresses
from logplayer.wire.addresses import Address
from logplayer.wire.security import NONE, Security, require_protection
from logplayer.wire.tcp_link import TcpConnection, dial
from logplayer.wire.transport import Link, LinkListener, connect
from logplayer.wire.turn import Turn


class _Dialing:
    """A connection that is being made, and how many wait for it."""

    def __init__(self, address: Address, security: Security, timeout: float, turn: Turn) -> None:
        self.waiting = 0
        self.task = asyncio.get_running_loop().create_task(dial(address, security, timeout, turn))
        self.task.add_done_callback(_retrieve)

    def joinable(self) -> bool:
        """Whether a newcomer may use it."""
        task = self.task
        return not task.done() or (not task.cancelled() and task.exception() is None and task.result().takes_links)

    async def wait(self) -> TcpConnection:
        """The connection. If every waiting call is cancelled, so is the attempt."""
        self.waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self.waiting -= 1

    def give_up(self) -> None:
        """One of the waiting calls was cancelled."""
        if self.waiting:
            return
        if self.task.done():
            if not self.task.cancelled() and self.task.exception() is None:
                self.task.result().close_if_idle()
        else:
            self.task.cancel()


class Connections:
    """Opens streams, and keeps one connection for each tcp:// address while it has streams."""

    def __init__(self, security: Security = NONE) -> None:
        self._security = security
        self._dialing: dict[Address, _Dialing] = {}
        self._turn = Turn()

    async def connect(self, address: str, listener: LinkListener, timeout: float = 10.0) -> Link:
        """As :func:`logplayer.wire.transport.connect`, but it may share a connection with other streams."""
        parsed = addresses.parse(address)
        if parsed.scheme != "tcp":
            return await connect(address, listener, self._security, timeout)
        require_protection(self._security, parsed.host, server=False)
        dialing = self._dialing.get(parsed)
        if dialing is None or not dialing.joinable():
            dialing = self._dialing[parsed] = _Dialing(parsed, self._security, timeout, self._turn)
        try:
            connection = await dialing.wait()
        except asyncio.CancelledError:
            # Whoever waits has waited long enough: the next one tries again and does not join a hopeless attempt.
            if self._dialing.get(parsed) is dialing:
                del self._dialing[parsed]
            dialing.give_up()
            raise
        return connection.link(listener)

    def turn(self) -> Turn:
        """Enter it around whatever may send: what is sent inside leaves at its end, with one write per connection."""
        return self._turn


def _retrieve(task: asyncio.Task[TcpConnection]) -> None:
    """Look at the error, which nobody may be left to do."""
    if not task.cancelled():
        task.exception()

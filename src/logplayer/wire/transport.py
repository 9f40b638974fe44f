"""How a player speaks to a target: the same messages over gRPC or over framed TCP, chosen by the address.

Callbacks, not coroutines: the pure core can drive hundreds of links without a task for each message. The caller's
duties are three:

1. After :func:`connect` a link is writable. After ``send`` it is not, until the listener hears ``writable()``.
2. Callbacks come from the event loop, never from inside ``send`` or ``close``, and must not block. (``writable()`` may
   also come when the caller enters ``Connections.turn()``, before what is inside of it.)
3. ``writable()`` says that the message was handed to the transport, not that it was delivered, nor that it will be.

When it is called, and how many messages leave with one write, is the transport's business alone: see ``wire.turn``.
"""

from __future__ import annotations

from typing import Protocol

from logplayer.wire import addresses
from logplayer.wire.security import NONE, Security, require_protection


class LinkListener(Protocol):
    """Hears what happens on a link."""

    def received(self, data: bytes) -> None:
        """One encoded ``ToPlayer`` message."""

    def writable(self) -> None:
        """The last message was handed to the transport; the next may come."""

    def closed(self, error: Exception | None) -> None:
        """The link is gone; called exactly once, and nothing is called after it.

        ``error`` is None if this side closed it, or if the target ended the stream in order (after a Refused).
        """


class Link(Protocol):
    """One open stream to a target."""

    def send(self, data: bytes) -> None:
        """Send one encoded ``ToTarget`` message; at most one may be outstanding. On a closed link it does nothing."""

    def send_control(self, data: bytes) -> None:
        """The same for a short message, after whatever was sent before it; at any time, and no ``writable()`` follows.

        For an Open, a probe, a question: what comes rarely and need not be counted.
        """

    def close(self) -> None:
        """Cut the stream. What was sent may or may not arrive; ``closed(None)`` follows. Safe to call again."""


async def connect(address: str, listener: LinkListener, security: Security = NONE, timeout: float = 10.0) -> Link:
    """Open a stream to the target at ``address``.

    Raises AddressError for an address that cannot be understood, ConfigError for plain text beyond loopback, and
    TargetError if there is no connection within ``timeout`` seconds; the listener then hears nothing.
    """
    parsed = addresses.parse(address)
    require_protection(security, parsed.host, server=False)
    if parsed.scheme == "grpc":
        from logplayer.wire import grpc_link

        return await grpc_link.connect(parsed, listener, security, timeout)
    from logplayer.wire import tcp_link

    return (await tcp_link.dial(parsed, security, timeout)).link(listener)

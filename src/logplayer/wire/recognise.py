"""Another server than the expected one, recognised by its first bytes: an address that was mixed up is said as such.

A gRPC server begins with an HTTP/2 SETTINGS frame, a tcp:// target answers what it does not understand with ``Failed``,
a server that wants TLS answers plain text with an alert, and an HTTP port with a status line. No two of these look
alike, see each test below.
"""

from __future__ import annotations

import asyncio
import enum
import os
import ssl

from logplayer.wire import codec
from logplayer.wire.addresses import Address
from logplayer.wire.framing import HEAD_BYTES
from logplayer.wire.security import Security, client_context

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # An HTTP/2 client's first words.
_SECONDS = 2.0


class PeerKind(enum.Enum):
    """What answers at an address."""

    GRPC = "grpc://"
    TCP = "tcp://"
    TLS = "TLS"
    HTTP = "http://"


def recognise(data: bytes) -> PeerKind | None:
    """The protocol that begins with these bytes; None if it is not known.

    As a frame of ours, a SETTINGS frame would be on stream 0 and begin with a byte that no message begins with; an
    alert or a status line would be a frame over every limit; and ``Failed`` on stream 0 would be no frame of HTTP/2.
    """
    if data[3:9] == b"\x04\0\0\0\0\0":
        return PeerKind.GRPC
    if data[:2] == b"\x15\x03":
        return PeerKind.TLS
    if data[:5] == b"HTTP/":
        return PeerKind.HTTP
    if data[4:8] == bytes(4) and data[HEAD_BYTES : HEAD_BYTES + 1] == codec.FAILED:
        return PeerKind.TCP
    return None


def mixed_up(address: str, netloc: str, found: PeerKind | None) -> str:
    """What a user who gave ``address`` should know, where ``found`` answers; empty if it is nothing."""
    if found is PeerKind.TLS:
        return f"{netloc} speaks TLS, and this side plain text: give --tls-ca"
    if found is PeerKind.HTTP:
        return f"{netloc} is an HTTP port, for status and metrics: give the port of --listen or --listen-tcp"
    if found is None or address.startswith(found.value):
        return ""
    return f"this port speaks {found.value}, not {address.partition('://')[0]}://: use {found.value}{netloc}"


async def why_not(address: Address, security: Security) -> tuple[str, PeerKind | None]:
    """Why there is no gRPC connection to ``address``, which gRPC does not say, and what answers there instead."""
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=_context(security))
            try:
                writer.write(_PREFACE)
                data = await reader.read(64)
                return "it does not speak gRPC" if data else hung_up(security), recognise(data)
            finally:
                writer.close()
    except TimeoutError:
        return "nobody answers there", None
    except ssl.SSLError as error:
        return f"TLS failed: {tls_trouble(error)}", None
    except OSError as error:
        return reason(error), None


def hung_up(security: Security) -> str:
    """What to say of a server that closes without a word: gRPC's does that to a peer whose TLS it does not like."""
    return "it hung up" if security.client_tls else "it hung up; if it speaks TLS, give --tls-ca"


def reason(error: OSError) -> str:
    """The system's words for why there is no connection, which asyncio's own replace."""
    number = error.errno or 0  # A name that is not found has a negative one, of its own table.
    return os.strerror(number) if number > 0 else error.strerror or str(error)


def tls_trouble(error: ssl.SSLError) -> str:
    """What is wrong with a handshake, and what to do if it is that the other side speaks plain text."""
    if error.reason == "WRONG_VERSION_NUMBER":
        return "that port speaks plain text; leave --tls-ca out, or serve it with --tls-cert and --tls-key"
    return str(error)


def _context(security: Security) -> ssl.SSLContext | None:
    context = client_context(security)
    if context is not None:
        context.set_alpn_protocols(["h2"])
    return context

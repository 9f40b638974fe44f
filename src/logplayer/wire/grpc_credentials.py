"""Credentials as gRPC wants them; apart from :mod:`logplayer.wire.security`, which all load and which needs no gRPC."""

from __future__ import annotations

from typing import Any

import grpc

from logplayer.errors import ConfigError
from logplayer.wire.security import SYSTEM, Security, SecurityWatch, read_file, server_context


def channel_credentials(security: Security) -> grpc.ChannelCredentials | None:
    """Credentials for one channel; None for plain text."""
    if not security.client_tls:
        return None
    roots = None if security.ca in ("", SYSTEM) else read_file(security.ca, "CA")
    key = read_file(security.key, "key") if security.key else None
    chain = read_file(security.cert, "certificate") if security.cert else None
    return grpc.ssl_channel_credentials(roots, key, chain)


def server_credentials(security: Security) -> grpc.ServerCredentials | None:
    """Credentials of a gRPC server that follow their files; None for plain text."""
    if not security.server_tls:
        return None
    watch = SecurityWatch(security)

    def fetch() -> Any:
        # gRPC asks at each handshake; None means: what you have is current. Files that cannot be read while
        # they are being replaced must not end the server, so the old certificate serves until they can.
        try:
            return _certificates(security) if watch.changed() else None
        except ConfigError:
            watch.forget()
            return None

    return grpc.dynamic_ssl_server_credentials(_certificates(security), fetch, bool(security.ca))


def _certificates(security: Security) -> grpc.ServerCertificateConfiguration:
    if security.cert:
        server_context(security)  # gRPC does not say which file is wrong; ssl does.
    roots = read_file(security.ca, "CA") if security.ca else None
    pair = (read_file(security.key, "key"), read_file(security.cert, "certificate"))
    return grpc.ssl_server_certificate_configuration([pair], roots)

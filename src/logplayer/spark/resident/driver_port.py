"""The port at which a driver hears its tasks, and how both sides of it are protected.

Heartbeats decide how far the log is trimmed and when the job ends, so the port asks for a token that is made for this
run and travels with the tasks. On loopback that is all. Beyond loopback the token must not be read on the way: the
driver serves TLS with the configured certificate, which must be valid for the driver's host, and the tasks trust the
configured CA. Without a certificate the driver refuses to listen, unless plain text is meant (``insecure``).
"""

from __future__ import annotations

from collections.abc import Callable

from logplayer.admin.access import Access
from logplayer.admin.app import Facts, question_app
from logplayer.admin.http_server import HttpServer
from logplayer.errors import ConfigError
from logplayer.wire.addresses import is_loopback, netloc, parse_netloc
from logplayer.wire.security import SYSTEM, Security


async def listen(
    answer: Callable[[Facts], Facts], host: str, security: Security, token: str, bind: str = ""
) -> tuple[HttpServer, str]:
    """Serve ``answer`` where tasks reach ``host``; the server and its address. ``bind``: listen there instead."""
    if not (is_loopback(host) or security.server_tls or security.insecure):
        raise ConfigError(
            f"the driver's host {host} is not loopback, and players report to it: give a certificate and key for "
            f"{host} (--tls-cert, --tls-key, or [security]), or --insecure if plain text is meant"
        )
    own = _driver_side(security, host, token)
    server = HttpServer(question_app(answer, Access(own)), own)
    taken = await server.start(netloc(bind or host, 0))
    return server, netloc(host, parse_netloc(taken)[1])


def _driver_side(security: Security, host: str, token: str) -> Security:
    if is_loopback(host):
        return Security(token=token)
    return Security(cert=security.cert, key=security.key, token=token, insecure=security.insecure)


def task_side(security: Security, driver: str, token: str) -> Security:
    """How a task reaches the driver's port at ``driver``."""
    if is_loopback(parse_netloc(driver)[0]) or not security.server_tls:
        return Security(token=token, insecure=security.insecure)
    return Security(ca=security.ca or SYSTEM, token=token)

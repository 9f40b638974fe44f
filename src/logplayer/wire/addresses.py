"""Addresses of targets: ``grpc://host:port`` and ``tcp://host:port``."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from logplayer.errors import AddressError

SCHEMES = ("grpc", "tcp")


class Address(NamedTuple):
    """Where to connect to, and how to speak there."""

    scheme: str
    host: str
    port: int

    @property
    def netloc(self) -> str:
        """``host:port``, with brackets around an IPv6 address."""
        return netloc(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}"


def netloc(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def parse(text: str) -> Address:
    """The parts of a target's address."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in SCHEMES:
        raise AddressError(f"{text!r} is not a target's address; write grpc://HOST:PORT or tcp://HOST:PORT")
    host, port = parse_netloc(rest, text)
    if port == 0:
        raise AddressError(f"{text!r} has port 0, where nobody can listen; write the target's port")
    return Address(scheme, host, port)


def parse_netloc(netloc: str, told: str = "") -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; port 0 is allowed, for listeners that take any free port."""
    told = told or netloc
    try:
        parts = urlsplit(f"//{netloc}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise AddressError(f"{told!r} is not HOST:PORT ({error})") from None
    if not host or port is None or parts.path or parts.query or parts.fragment or "@" in netloc:
        raise AddressError(f"{told!r} is not HOST:PORT, for example 127.0.0.1:7200")
    return host, port


def is_loopback(host: str) -> bool:
    """Whether ``host`` surely stays on this machine; a name other than localhost does not count."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

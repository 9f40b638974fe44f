"""The security options that every command with a connection shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from logplayer.wire.security import Security, read_token

F = TypeVar("F", bound=Callable[..., Any])

_CLIENT = {
    "tls-ca": "Trust servers with a certificate from this CA file ('system': the system's roots).",
    "tls-cert": "Show this certificate (mutual TLS).",
    "tls-key": "The certificate's private key.",
    "token-file": "Show the token in this file.",
}
_SERVER = {
    "tls-cert": "Serve TLS with this certificate.",
    "tls-key": "The certificate's private key.",
    "tls-ca": "Demand client certificates from this CA (mutual TLS).",
    "token-file": "Demand the token in this file.",
}


def security_options(*, server: bool) -> Callable[[F], F]:
    """Add the options; the command gets them as the keywords of :func:`security_from`."""

    def decorate(command: F) -> F:
        insecure = click.option("--insecure", is_flag=True, help="Allow plain text beyond loopback.")
        command = insecure(command)
        for name, text in reversed((_SERVER if server else _CLIENT).items()):
            command = click.option(f"--{name}", default="", metavar="FILE", help=text)(command)
        return command

    return decorate


def security_from(tls_ca: str, tls_cert: str, tls_key: str, token_file: str, insecure: bool) -> Security:
    """The Security that the options describe."""
    token = read_token(token_file) if token_file else ""
    return Security(ca=tls_ca, cert=tls_cert, key=tls_key, token=token, insecure=insecure)

"""The security options that every command with a connection shares."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import click

from logplayer.config import security_of
from logplayer.wire.security import Security

F = TypeVar("F", bound=Callable[..., Any])

_CLIENT = {
    "tls-ca": "Trust servers with a certificate from this CA file ('system': the system's roots).",
    "tls-cert": "Show this certificate (mutual TLS).",
    "tls-key": "The certificate's private key.",
    "token-file": "Show the token in this file.",
    "user": "The user of an etcd or NATS cluster.",
    "password-file": "The user's password is in this file.",
    "nkey-file": "Sign in to a NATS cluster with this .creds file or nkey seed.",
}
_SERVER = {
    "tls-cert": "Serve TLS with this certificate.",
    "tls-key": "The certificate's private key.",
    "tls-ca": "Demand client certificates from this CA (mutual TLS).",
    "token-file": "Demand the token in this file.",
}


def security_options(*, server: bool) -> Callable[[F], F]:
    """Add the options; the command gets them as the keywords of :func:`security_from` or :func:`section_of`.

    What a client shows may also be in the environment, as LOGPLAYER_TLS_CA and so on. A server's may not: the same
    variable would make it demand what the client beside it only trusts.
    """

    def decorate(command: F) -> F:
        insecure = click.option(
            "--insecure", is_flag=True, envvar=_variable("insecure", server), help="Allow plain text beyond loopback."
        )
        command = insecure(command)
        for name, text in reversed((_SERVER if server else _CLIENT).items()):
            command = _option(name, text, _variable(name, server))(command)
        return command

    return decorate


def log_security_options(command: F) -> F:
    """For a command that is a server itself: how it reaches the cluster that keeps its log, as --log-tls-ca and so on.

    The command gets them as keywords that begin with ``log_``.
    """
    command = click.option(
        "--log-insecure", is_flag=True, envvar="LOGPLAYER_LOG_INSECURE", help="Allow plain text to that cluster."
    )(command)
    for name, text in reversed(_CLIENT.items()):
        if name != "token-file":  # Only log servers have tokens.
            about = f"For the cluster that keeps the log: {text[0].lower()}{text[1:]}"
            command = _option(f"log-{name}", about, _variable(f"log-{name}", server=False))(command)
    return command


def _option(name: str, text: str, variable: str | None) -> Callable[[F], F]:
    kind = "NAME" if name.endswith("user") else "FILE"
    return click.option(f"--{name}", default="", envvar=variable, metavar=kind, help=text)


def _variable(name: str, server: bool) -> str | None:
    return None if server else f"LOGPLAYER_{name.upper().replace('-', '_')}"


def section_of(
    tls_ca: str = "",
    tls_cert: str = "",
    tls_key: str = "",
    token_file: str = "",
    insecure: bool = False,
    user: str = "",
    password_file: str = "",
    nkey_file: str = "",
) -> dict[str, Any]:
    """The options under the names that they have in the section [security] of the file."""
    names = {"user": user, "password_file": password_file, "nkey_file": nkey_file}
    return {"ca": tls_ca, "cert": tls_cert, "key": tls_key, "token_file": token_file, "insecure": insecure, **names}


OPTIONS = tuple(inspect.signature(section_of).parameters)
"""The keywords that the options come as; a server lacks some of them."""


def security_from(**options: Any) -> Security:
    """The Security that the options describe, for commands that read no file."""
    return security_of(**section_of(**options))

"""How a client shows a NATS cluster who it is: TLS, a user and a password, an nkey or a .creds file."""

from __future__ import annotations

import importlib.util
from typing import Any

from nats.aio.client import RawCredentials

from logplayer.errors import ConfigError, LogError, UserError
from logplayer.wire.security import Security, client_context, read_file

_JWT = "-----BEGIN NATS USER JWT-----"


class NatsNotAdmitted(LogError, UserError):
    """The cluster wants a user, another password, or another key."""


def connect_options(security: Security) -> dict[str, Any]:
    """What the client library's ``connect`` is to be called with; files are read now."""
    options: dict[str, Any] = {}
    if context := client_context(security):
        options["tls"] = context
    if security.user:
        options |= {"user": security.user, "password": security.password}
    if security.nkey:
        if importlib.util.find_spec("nkeys") is None:
            raise ConfigError("an nkey or .creds file needs the package nkeys; pip install 'logplayer[nats]'")
        text = security.nkey if is_nkey_text(security.nkey) else read_file(security.nkey, "nkey").decode()
        options |= {"user_credentials": RawCredentials(text)} if _JWT in text else {"nkeys_seed_str": text.strip()}
    return options


def is_nkey_text(nkey: str) -> bool:
    """Whether it is the key itself and not a file's path."""
    return nkey.startswith((_JWT, "SU")) and "/" not in nkey.partition("\n")[0]


def not_admitted(where: str, why: object) -> NatsNotAdmitted:
    return NatsNotAdmitted(
        f"{where} refused us: {why}; give a user with --user and --password-file, or a key with --nkey-file"
    )

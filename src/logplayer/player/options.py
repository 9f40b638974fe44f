"""The options that the player's commands share, merged with ``logplayer.toml``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from logplayer import config as files
from logplayer.core.entry import ExplicitMap, HashMap, ShardMap
from logplayer.errors import ConfigError, UserError
from logplayer.log.address import parse as parse_log
from logplayer.wire.address import parse as parse_target
from logplayer.wire.options import security_from
from logplayer.wire.security import NONE, Security


@dataclass(frozen=True, slots=True)
class Merged:
    """The file's settings with the command line's on top."""

    file: files.Config
    log: str
    targets: dict[str, str]
    map: ShardMap
    security: Security

    @property
    def log_security(self) -> Security | None:
        """How the log server is reached; None leaves it to the environment."""
        return None if self.security == NONE else self.security


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--config, --log: every command that touches a log has them."""
    command = click.option("--log", "log_address", default="", envvar="LOGPLAYER_LOG", help="The log's address.")(
        command
    )
    return click.option("--config", "config_path", default=None, metavar="FILE", help="Default: logplayer.toml here.")(
        command
    )


def player_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--player: where a running player answers questions."""
    return click.option(
        "--player",
        "address",
        default=files.STATUS_ADDRESS,
        show_default=True,
        envvar="LOGPLAYER_STATUS",
        metavar="HOST:PORT",
        help="The player's status address.",
    )(command)


def merge(
    config_path: str | None, log_address: str, targets: Sequence[str] = (), secure: dict[str, Any] | None = None
) -> Merged:
    """Check everything before anything is opened."""
    file = files.load(config_path)
    address = log_address or file.log
    if not address:
        raise ConfigError("no log is given; use --log ADDRESS, or [log] address in logplayer.toml")
    parse_log(address)
    named = _named(targets) if targets else dict(file.targets)
    for name, where in named.items():
        try:
            parse_target(where)
        except UserError as error:
            raise ConfigError(f"target {name}: {error}") from None
    shard_map = file.map
    if targets:
        shard_map = HashMap(tuple(named)) if isinstance(file.map, ExplicitMap) and not file.path else file.map
    return Merged(file, address, named, shard_map, _security(file, secure or {}))


def _named(pairs: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for pair in pairs:
        name, address = parse_pair(pair)
        if name in named:
            raise ConfigError(f"--target gives {name} twice, at {named[name]} and at {address}; leave one out")
        named[name] = address
    return named


def parse_pair(pair: str) -> tuple[str, str]:
    """``NAME=ADDRESS``."""
    name, found, address = pair.partition("=")
    if not found or not name or not address:
        raise ConfigError(f"--target {pair!r} is not NAME=ADDRESS, for example shard1=grpc://127.0.0.1:7201")
    return name, address


def _security(file: files.Config, secure: dict[str, Any]) -> Security:
    from_file = {
        "tls_ca": file.security.get("ca", ""),
        "tls_cert": file.security.get("cert", ""),
        "tls_key": file.security.get("key", ""),
        "token_file": file.security.get("token_file", ""),
        "insecure": file.security.get("insecure", False),
    }
    try:
        return security_from(**{key: secure.get(key) or value for key, value in from_file.items()})
    except ConfigError as error:
        if not file.security:
            raise
        raise ConfigError(f"{file.path}: [security] {error}") from None

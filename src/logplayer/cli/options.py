"""The options that the player's commands share, merged with ``logplayer.toml``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import click

from logplayer import config as files
from logplayer.cli.security import section_of
from logplayer.config import Config
from logplayer.core.entry import ExplicitMap, ShardMap
from logplayer.errors import ConfigError, UserError
from logplayer.log.open import parse as parse_log
from logplayer.names import check_target
from logplayer.target.stores.tables.mapping import TableMapping, read_mapping
from logplayer.wire.addresses import parse as parse_target


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
        default=files.HTTP_ADDRESS,
        show_default=True,
        envvar="LOGPLAYER_HTTP",
        metavar="HOST:PORT",
        help="The player's HTTP address.",
    )(command)


def place_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--place: what decides where the rows of a table live."""
    text = "Key column that decides where rows live (hash[tag] maps)."
    return click.option("--place", multiple=True, metavar="[TABLE=]COLUMN", help=text)(command)


def parse_places(given: Sequence[str]) -> dict[str, str]:
    """The column that ``--place`` gives each table; the table ``""`` stands for all."""
    places = {}
    for one in given:
        table, _, column = one.rpartition("=")
        if not column:
            raise ConfigError(f"--place {one!r} names no column; write COLUMN, or TABLE=COLUMN")
        places[table] = column
    return places


def operator_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--operator-token-file: who may act over HTTP."""
    text = "Demand the token in this file for every action over HTTP, the page's included."
    return click.option("--operator-token-file", default="", metavar="FILE", help=text)(command)


def merge(
    config_path: str | None, log_address: str, targets: Sequence[str] = (), secure: dict[str, Any] | None = None
) -> Config:
    """The file's settings with the command line's on top, checked before anything is opened."""
    file = files.load(config_path, section_of(**(secure or {})))
    address = log_address or file.log
    if not address:
        raise ConfigError("no log is given; use --log ADDRESS, or [log] address in logplayer.toml")
    parse_log(address)
    named = named_targets(targets) if targets else dict(file.targets)
    for name, where in named.items():
        try:
            parse_target(where)
        except UserError as error:
            raise ConfigError(f"target {name}: {error}") from None
    return replace(file, log=address, targets=named, map=_map(file, named))


def _map(file: Config, named: dict[str, str]) -> ShardMap | None:
    """The file's map, if it fits the targets. None means hash over all targets, wherever they were given."""
    if file.map is None:
        return None
    for name in () if isinstance(file.map, ExplicitMap) else file.map.targets:
        if named and name not in named:
            raise ConfigError(
                f"{file.path}: [map] names the target {name!r}, but no --target gives it: add --target {name}=ADDRESS, "
                "or take it out of [map]"
            )
    return file.map


def named_targets(pairs: Sequence[str]) -> dict[str, str]:
    """What ``--target NAME=ADDRESS`` gives."""
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
    return check_target(name, "--target "), address


def mapping_from(file: str, configured: TableMapping) -> TableMapping:
    """What --mapping says, or else the configuration."""
    if file and configured:
        raise UserError("--mapping and [tables] of --config say the same thing; give one of them")
    return read_mapping(file) if file else configured

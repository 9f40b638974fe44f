"""The one configuration: where the log and the targets are, how they are reached, and how a player works.

``logplayer.toml`` and the command line make a :class:`Config` (options win over the file), Spark ships it whole to its
tasks, and the player reads it. A setting is declared here and nowhere else, so none can be lost on the way. Every error
names the file, the key and what to change.
"""

from __future__ import annotations

import difflib
import os
import socket
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from logplayer.core.entry import ExplicitMap, HashMap, RangeMap, ShardMap
from logplayer.core.limits import Limits
from logplayer.core.routing import Owner, owner_of
from logplayer.errors import ConfigError, UserError
from logplayer.log.open import parse as parse_log
from logplayer.names import check_target
from logplayer.target.stores.tables.mapping import NO_MAPPING, TableMapping, mapping_of
from logplayer.wire.addresses import parse as parse_target
from logplayer.wire.addresses import parse_netloc
from logplayer.wire.security import NONE, Security, read_token

DEFAULT_PATH = "logplayer.toml"
HTTP_ADDRESS = "127.0.0.1:7200"

# section -> key -> type. A section that ends in .* has one table per name.
SCHEMA: dict[str, dict[str, type]] = {
    "log": {"address": str},
    "player": {
        "group": str,
        "http": str,
        "engine": str,
        "trims": bool,
        "trims_unroutable": bool,
        "tick_ms": int,
        "drain_ms_max": int,
    },
    "limits": {item.name: int for item in fields(Limits)},
    "map": {"kind": str, "targets": list, "bounds": list, "by": str},
    "targets.*": {"address": str},
    "security": {
        "ca": str,
        "cert": str,
        "key": str,
        "token_file": str,
        "insecure": bool,
        "user": str,
        "password_file": str,
        "nkey_file": str,
    },
    "spark": {"master": str, "groups": int},
    "tables.*": {"name": str, "columns": dict, "ignore": list, "constants": dict},
}
ENGINES = ("spark", "in-process")
_TYPES = {str: "text in quotes", int: "a whole number", bool: "true or false", list: "a list of texts"}


def player_name() -> str:
    """Host and process: what an operator sees when this player takes over."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs, and how many tasks play."""

    master: str = "local[*]"
    groups: int = 0  # 0: as many as the targets are worth and as fit.


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a player, checked. The default of a field is the default of its key in the file.

    ``targets`` (name -> address) and ``map`` become the log's first members and map if it has none yet; afterwards the
    log's own records decide, and ``targets`` only says where a member is reached.

    It can be pickled. Its ``security`` then carries the content of its files: see :mod:`logplayer.wire.security`.

    Example:
        >>> Config(log="grpc://127.0.0.1:7100", targets={"a": "tcp://127.0.0.1:7201"}).trims
        False
    """

    log: str = ""
    targets: Mapping[str, str] = field(default_factory=dict)
    map: ShardMap | None = None  # None: hash over all targets, those of the command line included.
    group: str = ""
    limits: Limits = field(default_factory=Limits)
    security: Security = NONE  # Of the log, the targets and HTTP alike.
    http: str = HTTP_ADDRESS
    engine: str = "spark"
    trims: bool = False  # Trim what all targets have. Only a player that plays to every member may.
    trims_unroutable: bool = False  # Trim also what reached no target. Such entries are then gone for good.
    tick_ms: int = 50  # Too low: CPU for nothing. Too high: deadlines and idle targets are noticed late.
    drain_ms_max: int = 10_000  # How long a graceful stop waits for acks.
    spark: SparkSettings = SparkSettings()
    tables: TableMapping = NO_MAPPING  # How targets in tables name what the log has.
    path: str = ""  # The file that it was read from; empty if there is none.

    # Not in the file.
    player: str = field(default_factory=player_name)
    application: int = 0  # The number of the Spark application that this player belongs to; 0: none.
    operator_token: str = field(default="", repr=False)  # Demanded of whoever acts over HTTP; empty: ``security``'s.
    take_over: bool = True  # Replace a player that plays now. False: leave it alone, and raise ConfigError.
    standby: bool = False  # Wait until nobody plays before each takeover, and stand by again when superseded.
    archived: int | None = None  # With an archive policy: how far the archive reaches. None: no policy.
    catch_up_readers_max: int = 2  # Readers at once. Too high: catch-up competes with the main stream.
    catch_up_bytes: int = 4 << 20  # How much of the log one catch-up read takes. Bounds its memory.
    owner: Owner | None = None  # A user's own pure function key -> target, in place of ``map``.
    owns: Callable[[str], bool] | None = None  # Which members this player plays to; None: all.


def load(path: str | None, secure: Mapping[str, Any] | None = None) -> Config:
    """Read the file at ``path``; without one, logplayer.toml in the current directory if it is there.

    ``secure`` has the same keys as the section [security], and wins over it.
    """
    if path is None:
        if not Path(DEFAULT_PATH).exists():
            return read({}, "", secure)
        path = DEFAULT_PATH
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}; correct that line") from None
    return read(table, path, secure)


def read(table: Mapping[str, Any], path: str, secure: Mapping[str, Any] | None = None) -> Config:
    """Check the parsed file and turn it into a Config."""
    table = _spelled_out(table)
    _check_shape(table, path)
    player = dict(table.get("player", {}))
    engine = player.get("engine", "spark")
    if engine not in ENGINES:
        raise _wrong(path, "player", "engine", engine, f"use one of {', '.join(ENGINES)}")
    for key in ("tick_ms", "drain_ms_max"):
        if player.get(key, 1) < 1:
            raise _wrong(path, "player", key, player[key], "use at least 1")
    limits = _limits(table.get("limits", {}), path)
    if player.get("tick_ms", 1) > limits.tick_ms_max:
        raise _wrong(path, "player", "tick_ms", player["tick_ms"], f"use at most tick_ms_max = {limits.tick_ms_max}")
    targets = {name: item["address"] for name, item in table.get("targets", {}).items() if "address" in item}
    for name in table.get("targets", {}):
        if name not in targets:
            raise ConfigError(f'{path}: [targets.{name}] has no address; add: address = "grpc://host:port"')
    _check_addresses(table, targets, path)
    spark = table.get("spark", {})
    if spark.get("groups", 0) < 0:
        raise _wrong(path, "spark", "groups", spark["groups"], "use 0 (as many as fit) or more")
    return Config(
        path=path,
        log=table.get("log", {}).get("address", ""),
        limits=limits,
        map=_map(table["map"], tuple(targets), path) if "map" in table else None,
        targets=targets,
        security=_security(table.get("security", {}), secure or {}, path),
        spark=SparkSettings(**spark),
        tables=mapping_of(table["tables"], path) if "tables" in table else NO_MAPPING,
        **player,
    )


def security_of(
    ca: str = "",
    cert: str = "",
    key: str = "",
    token_file: str = "",
    insecure: bool = False,
    user: str = "",
    password_file: str = "",
    nkey_file: str = "",
) -> Security:
    """Make the Security that the keys of [security] describe. Token and password are read now, the rest when needed."""
    token = read_token(token_file) if token_file else ""
    password = read_token(password_file, "password") if password_file else ""
    return Security(ca, cert, key, token, insecure, user, password, nkey_file)


def _security(content: Mapping[str, Any], secure: Mapping[str, Any], path: str) -> Security:
    try:
        return security_of(**{**content, **{key: value for key, value in secure.items() if value}})
    except ConfigError as error:
        if not content:
            raise
        raise ConfigError(f"{path}: [security] {error}") from None


def _spelled_out(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """``[targets] a = "grpc://..."`` is short for ``[targets.a] address = "grpc://..."``."""
    targets = table.get("targets")
    if not isinstance(targets, dict):
        return table
    sections = {name: {"address": item} if isinstance(item, str) else item for name, item in targets.items()}
    return {**table, "targets": sections}


def _check_addresses(table: Mapping[str, Any], targets: Mapping[str, str], path: str) -> None:
    """Every name and address can be understood; whether somebody is there shows later."""
    for name in targets:
        check_target(name, f"{path}: [targets] ")
    checks: list[tuple[str, str, str, Callable[[str], object]]] = [
        ("log", "address", table.get("log", {}).get("address", ""), parse_log),
        ("player", "http", table.get("player", {}).get("http", ""), parse_netloc),
        *((f"targets.{name}", "address", address, parse_target) for name, address in targets.items()),
    ]
    for section, key, address, parse in checks:
        if address or section.startswith("targets."):
            try:
                parse(address)
            except UserError as error:
                raise _wrong(path, section, key, address, str(error)) from None


def _check_shape(table: Mapping[str, Any], path: str) -> None:
    """Every section and key is known, and every value has its type."""
    sections = {name.removesuffix(".*") for name in SCHEMA}
    for section, content in table.items():
        if section not in sections:
            raise ConfigError(f"{path}: there is no section [{section}]; {_suggest(section, sections)}")
        if not isinstance(content, dict):
            raise ConfigError(
                f"{path}: {section} = {content!r} must be a section: write [{section}] on a line of its own"
            )
        if section == "tables":
            continue  # mapping_of checks it.
        if f"{section}.*" not in SCHEMA:
            _check_keys(path, section, content, SCHEMA[section])
            continue
        for name, item in content.items():
            if not isinstance(item, dict):
                raise ConfigError(
                    f"{path}: [{section}] {name} = {item!r} must be an address in quotes, "
                    f"or a section: write [{section}.{name}]"
                )
            _check_keys(path, f"{section}.{name}", item, SCHEMA[f"{section}.*"])


def _check_keys(path: str, section: str, content: Mapping[str, Any], known: Mapping[str, type]) -> None:
    for key, value in content.items():
        if key not in known:
            raise ConfigError(f"{path}: [{section}] has no key {key!r}; {_suggest(key, known)}")
        wanted = known[key]
        if type(value) is not wanted or (isinstance(value, list) and not all(isinstance(item, str) for item in value)):
            raise _wrong(path, section, key, value, f"must be {_TYPES[wanted]}")


def _limits(content: Mapping[str, Any], path: str) -> Limits:
    try:
        return Limits(**content)
    except ConfigError as error:
        raise ConfigError(f"{path}: [limits] {error}") from None


def _map(content: Mapping[str, Any], targets: tuple[str, ...], path: str) -> ShardMap | None:
    kind = content.get("kind", "hash")
    names = tuple(content.get("targets", targets))
    for name in names:
        if targets and name not in targets:
            raise ConfigError(
                f"{path}: [map] names the target {name!r}, but there is no section [targets.{name}]; add it"
            )
    if kind == "explicit":
        return ExplicitMap()
    if kind not in ("hash", "range"):
        raise _wrong(path, "map", "kind", kind, "use hash, range or explicit")
    by = content.get("by", "")
    if by and kind != "hash":
        raise _wrong(path, "map", "by", by, "only a hash map hashes a part of the key")
    if kind == "hash" and "targets" not in content and not by:
        return None  # Over all targets, and the command line may give others.
    bounds = tuple(bound.encode() for bound in content.get("bounds", ()))
    shard_map: ShardMap = HashMap(names, by) if kind == "hash" else RangeMap(bounds, names)
    try:
        owner_of(shard_map)
    except UserError as error:
        raise ConfigError(f"{path}: [map] {error}") from None
    return shard_map


def _wrong(path: str, section: str, key: str, value: object, what: str) -> ConfigError:
    return ConfigError(f"{path}: [{section}] {key} = {value!r}: {what}")


def _suggest(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(sorted(known))}"

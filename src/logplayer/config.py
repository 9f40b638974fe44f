"""``logplayer.toml``: one file that says where the log and the targets are, and how a player works.

Every error names the file, the key and what to change. Options on the command line win over the file.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from logplayer.core.entry import ExplicitMap, HashMap, RangeMap, ShardMap
from logplayer.core.limits import Limits
from logplayer.core.route import owner_of
from logplayer.errors import ConfigError, UserError
from logplayer.log.address import parse as parse_log
from logplayer.wire.address import parse as parse_target
from logplayer.wire.address import parse_netloc

DEFAULT_PATH = "logplayer.toml"
STATUS_ADDRESS = "127.0.0.1:7200"

# section -> key -> type. A section that ends in .* has one table per name.
SCHEMA: dict[str, dict[str, type]] = {
    "log": {"address": str},
    "player": {"group": str, "status": str, "engine": str, "trims": bool, "tick_ms": int, "drain_ms_max": int},
    "limits": {item.name: int for item in fields(Limits)},
    "map": {"kind": str, "targets": list, "bounds": list},
    "targets.*": {"address": str},
    "security": {"ca": str, "cert": str, "key": str, "token_file": str, "insecure": bool},
    "spark": {"master": str, "groups": int},
}
ENGINES = ("spark", "in-process")
_TYPES = {str: "text in quotes", int: "a whole number", bool: "true or false", list: "a list of texts"}


@dataclass(frozen=True, slots=True)
class Config:
    """What the file says, checked; ``path`` is empty if there is none."""

    path: str = ""
    log: str = ""
    group: str = ""
    status: str = STATUS_ADDRESS
    engine: str = "spark"
    trims: bool = False
    tick_ms: int = 50
    drain_ms_max: int = 10_000
    limits: Limits = field(default_factory=Limits)
    map: ShardMap = field(default_factory=ExplicitMap)
    targets: Mapping[str, str] = field(default_factory=dict)
    security: Mapping[str, Any] = field(default_factory=dict)
    master: str = "local[*]"
    groups: int = 0  # 0: as many as fit.


def load(path: str | None) -> Config:
    """The file at ``path``; without one, logplayer.toml in the current directory if it is there."""
    if path is None:
        if not Path(DEFAULT_PATH).exists():
            return Config()
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
    return read(table, path)


def read(table: Mapping[str, Any], path: str) -> Config:
    """Check the parsed file and turn it into a Config."""
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
        map=_map(table.get("map", {}), tuple(targets), path),
        targets=targets,
        security=dict(table.get("security", {})),
        master=spark.get("master", "local[*]"),
        groups=spark.get("groups", 0),
        **player,
    )


def _check_addresses(table: Mapping[str, Any], targets: Mapping[str, str], path: str) -> None:
    """Every address can be understood; whether somebody is there shows later."""
    checks: list[tuple[str, str, str, Callable[[str], object]]] = [
        ("log", "address", table.get("log", {}).get("address", ""), parse_log),
        ("player", "status", table.get("player", {}).get("status", ""), parse_netloc),
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
        if f"{section}.*" not in SCHEMA:
            _check_keys(path, section, content, SCHEMA[section])
            continue
        for name, item in content.items():
            if not isinstance(item, dict):
                raise ConfigError(f"{path}: [{section}] {name} must be a section of its own: write [{section}.{name}]")
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


def _map(content: Mapping[str, Any], targets: tuple[str, ...], path: str) -> ShardMap:
    kind = content.get("kind", "hash" if targets else "explicit")
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
    bounds = tuple(bound.encode() for bound in content.get("bounds", ()))
    shard_map: ShardMap = HashMap(names) if kind == "hash" else RangeMap(bounds, names)
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

"""The stores that come with LogPlayer, by name. Each is imported only when it is used, as each has its own extra."""

from __future__ import annotations

import importlib
from typing import Any

from logplayer.errors import ConfigError
from logplayer.target.places import check_url
from logplayer.target.protocol import Store
from logplayer.target.stores.tables.mapping import TableMapping, read_mapping

# name -> (module, class, the option that names its data, the extra that it needs)
STORES = {
    "sqlite": ("logplayer.target.stores.sqlite", "SqliteTarget", "path", ""),
    "postgres": ("logplayer.target.stores.postgres", "PostgresTarget", "url", "postgres"),
    "redis": ("logplayer.target.stores.redis", "RedisTarget", "url", "redis"),
    "sqlite-tables": ("logplayer.target.stores.tables.sqlite", "SqliteTables", "path", ""),
    "postgres-tables": ("logplayer.target.stores.tables.postgres", "PostgresTables", "url", "postgres"),
    "mysql-tables": ("logplayer.target.stores.tables.mysql", "MysqlTables", "url", "mysql"),
    "rocksdb": ("logplayer.target.stores.rocksdb", "RocksTarget", "path", "rocksdb"),
}


# Those that write into tables of the user's own, and take a mapping.
TABLE_STORES = tuple(kind for kind in STORES if kind.endswith("-tables"))


def open_store(
    kind: str,
    name: str,
    *,
    path: str = "",
    url: str = "",
    read_only: bool = False,
    schema: str = "",
    mapping: str | TableMapping = "",
) -> Store:
    """The store of the target ``name``, made if it is not there.

    ``mapping`` says how a store of tables names them, or is the file whose ``[tables]`` does; ``schema`` is where
    PostgreSQL has them.
    """
    if kind not in STORES:
        raise ConfigError(f"no store is called {kind!r}; there are {', '.join(STORES)}")
    module, cls, where, extra = STORES[kind]
    given, other = (path, url) if where == "path" else (url, path)
    if not given or other:
        wrong = "--url" if where == "path" else "--path"
        raise ConfigError(f"the store {kind} needs --{where}" + (f", and takes no {wrong}" if other else ""))
    if where == "url":
        check_url(given)
    try:
        make = getattr(importlib.import_module(module), cls)
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("logplayer"):
            raise
        raise ConfigError(f"the store {kind} needs {error.name}: pip install 'logplayer[{extra}]'") from None
    store = make(given, name, **_settings(kind, read_only, schema, mapping))
    assert isinstance(store, Store)
    return store


def _settings(kind: str, read_only: bool, schema: str, mapping: str | TableMapping) -> dict[str, Any]:
    """What a store is made with beside its place and name."""
    if schema and kind != "postgres-tables":
        raise ConfigError(f"--schema is for --store postgres-tables; {kind} has none")
    if mapping and kind not in TABLE_STORES:
        raise ConfigError(f"--mapping is for stores of tables ({', '.join(TABLE_STORES)}); {kind} has none")
    settings: dict[str, Any] = {"read_only": True} if read_only else {}
    if schema:
        settings["schema"] = schema
    if mapping:
        settings["mapping"] = read_mapping(mapping) if isinstance(mapping, str) else mapping
    return settings

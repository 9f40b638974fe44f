"""The stores that come with LogPlayer, by name. Each is imported only when it is used, as each has its own extra."""

from __future__ import annotations

import importlib

from logplayer.errors import ConfigError
from logplayer.target.places import check_url
from logplayer.target.protocol import Store

# name -> (module, class, the option that names its data, the extra that it needs)
STORES = {
    "sqlite": ("logplayer.target.stores.sqlite", "SqliteTarget", "path", ""),
    "postgres": ("logplayer.target.stores.postgres", "PostgresTarget", "url", "postgres"),
    "redis": ("logplayer.target.stores.redis", "RedisTarget", "url", "redis"),
    "rocksdb": ("logplayer.target.stores.rocksdb", "RocksTarget", "path", "rocksdb"),
}


def open_store(kind: str, name: str, *, path: str = "", url: str = "", read_only: bool = False) -> Store:
    """The store of the target ``name``, made if it is not there."""
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
    store = make(given, name, read_only=True) if read_only else make(given, name)
    assert isinstance(store, Store)
    return store

"""LogPlayer plays a write-ahead log into many storage shards.

Every entry reaches each of its shards exactly once and in order, whatever crashes. The names here are the public API
(docs/api.md); everything else is private and may change. Importing this package is cheap: a name loads its module, and
with it gRPC or a store's driver, when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from logplayer import outbox as outbox
    from logplayer import spark as spark
    from logplayer import sync as sync
    from logplayer.api.opened import OpenedLog, open_log
    from logplayer.api.player import EmbeddedPlayer as Player
    from logplayer.api.player import HashShards
    from logplayer.config import Config
    from logplayer.core.entry import ExplicitMap, HashMap, Mutation, RangeMap, Row
    from logplayer.core.fence import Position
    from logplayer.core.limits import Limits
    from logplayer.errors import (
        AddressError,
        ConfigError,
        ControlJammed,
        ControlRefused,
        CorruptEntry,
        DamagedLog,
        EntryTooLarge,
        Fenced,
        LogDiverged,
        LogError,
        LogFormatError,
        LogFull,
        LogPlayerError,
        LogUnavailable,
        Malformed,
        NotALog,
        NotATarget,
        OtherLog,
        OutOfSync,
        Poison,
        ProducerConflict,
        SequenceGap,
        Superseded,
        TargetError,
        TargetUnavailable,
        Trimmed,
        Unavailable,
        UserError,
        VersionMismatch,
    )
    from logplayer.log.file.backup import LogBackup, backup_log, restore_log
    from logplayer.log.mutations import ddl, delete, json_value, put, table
    from logplayer.log.producer import Producer, Receipt
    from logplayer.log.protocol import BadRequest, History, Info, Log, NewEntry, Newest, Record
    from logplayer.player.ended import Ended, EndKind
    from logplayer.spark.session import make_session
    from logplayer.target.client import consistent_cut, position, wait_for
    from logplayer.target.protocol import Change, Target
    from logplayer.target.server import TargetServer
    from logplayer.target.stores.memory import MemoryTarget
    from logplayer.target.stores.postgres import PostgresTarget
    from logplayer.target.stores.redis import RedisTarget
    from logplayer.target.stores.rocksdb import RocksTarget
    from logplayer.target.stores.sqlite import SqliteTarget
    from logplayer.target.stores.tables.mysql import MysqlTables
    from logplayer.target.stores.tables.postgres import PostgresTables
    from logplayer.target.stores.tables.sqlite import SqliteTables
    from logplayer.wire.codec import decode_position, encode_position
    from logplayer.wire.entries import encode_mutation
    from logplayer.wire.security import Security
    from logplayer.wire.values import Json

# Public name -> where it is. Type checkers read the imports above; a test compares the two.
_WHERE: dict[str, tuple[str, str]] = {
    "AddressError": ("logplayer.errors", "AddressError"),
    "BadRequest": ("logplayer.log.protocol", "BadRequest"),
    "Change": ("logplayer.target.protocol", "Change"),
    "Config": ("logplayer.config", "Config"),
    "ConfigError": ("logplayer.errors", "ConfigError"),
    "ControlJammed": ("logplayer.errors", "ControlJammed"),
    "ControlRefused": ("logplayer.errors", "ControlRefused"),
    "CorruptEntry": ("logplayer.errors", "CorruptEntry"),
    "DamagedLog": ("logplayer.errors", "DamagedLog"),
    "EndKind": ("logplayer.player.ended", "EndKind"),
    "Ended": ("logplayer.player.ended", "Ended"),
    "EntryTooLarge": ("logplayer.errors", "EntryTooLarge"),
    "ExplicitMap": ("logplayer.core.entry", "ExplicitMap"),
    "Fenced": ("logplayer.errors", "Fenced"),
    "HashMap": ("logplayer.core.entry", "HashMap"),
    "HashShards": ("logplayer.api.player", "HashShards"),
    "History": ("logplayer.log.protocol", "History"),
    "Info": ("logplayer.log.protocol", "Info"),
    "Json": ("logplayer.wire.values", "Json"),
    "Limits": ("logplayer.core.limits", "Limits"),
    "Log": ("logplayer.log.protocol", "Log"),
    "LogBackup": ("logplayer.log.file.backup", "LogBackup"),
    "LogError": ("logplayer.errors", "LogError"),
    "LogFormatError": ("logplayer.errors", "LogFormatError"),
    "LogDiverged": ("logplayer.errors", "LogDiverged"),
    "LogFull": ("logplayer.errors", "LogFull"),
    "LogPlayerError": ("logplayer.errors", "LogPlayerError"),
    "LogUnavailable": ("logplayer.errors", "LogUnavailable"),
    "Malformed": ("logplayer.errors", "Malformed"),
    "MemoryTarget": ("logplayer.target.stores.memory", "MemoryTarget"),
    "Mutation": ("logplayer.core.entry", "Mutation"),
    "MysqlTables": ("logplayer.target.stores.tables.mysql", "MysqlTables"),
    "NewEntry": ("logplayer.log.protocol", "NewEntry"),
    "Newest": ("logplayer.log.protocol", "Newest"),
    "NotALog": ("logplayer.errors", "NotALog"),
    "NotATarget": ("logplayer.errors", "NotATarget"),
    "OpenedLog": ("logplayer.api.opened", "OpenedLog"),
    "OtherLog": ("logplayer.errors", "OtherLog"),
    "OutOfSync": ("logplayer.errors", "OutOfSync"),
    "Player": ("logplayer.api.player", "EmbeddedPlayer"),
    "Poison": ("logplayer.errors", "Poison"),
    "Position": ("logplayer.core.fence", "Position"),
    "PostgresTables": ("logplayer.target.stores.tables.postgres", "PostgresTables"),
    "PostgresTarget": ("logplayer.target.stores.postgres", "PostgresTarget"),
    "Producer": ("logplayer.log.producer", "Producer"),
    "ProducerConflict": ("logplayer.errors", "ProducerConflict"),
    "RangeMap": ("logplayer.core.entry", "RangeMap"),
    "Receipt": ("logplayer.log.producer", "Receipt"),
    "Record": ("logplayer.log.protocol", "Record"),
    "RedisTarget": ("logplayer.target.stores.redis", "RedisTarget"),
    "RocksTarget": ("logplayer.target.stores.rocksdb", "RocksTarget"),
    "Row": ("logplayer.core.entry", "Row"),
    "Security": ("logplayer.wire.security", "Security"),
    "SequenceGap": ("logplayer.errors", "SequenceGap"),
    "SqliteTables": ("logplayer.target.stores.tables.sqlite", "SqliteTables"),
    "SqliteTarget": ("logplayer.target.stores.sqlite", "SqliteTarget"),
    "Superseded": ("logplayer.errors", "Superseded"),
    "Target": ("logplayer.target.protocol", "Target"),
    "TargetError": ("logplayer.errors", "TargetError"),
    "TargetServer": ("logplayer.target.server", "TargetServer"),
    "TargetUnavailable": ("logplayer.errors", "TargetUnavailable"),
    "Trimmed": ("logplayer.errors", "Trimmed"),
    "Unavailable": ("logplayer.errors", "Unavailable"),
    "UserError": ("logplayer.errors", "UserError"),
    "VersionMismatch": ("logplayer.errors", "VersionMismatch"),
    "backup_log": ("logplayer.log.file.backup", "backup_log"),
    "consistent_cut": ("logplayer.target.client", "consistent_cut"),
    "decode_position": ("logplayer.wire.codec", "decode_position"),
    "ddl": ("logplayer.log.mutations", "ddl"),
    "delete": ("logplayer.log.mutations", "delete"),
    "encode_mutation": ("logplayer.wire.entries", "encode_mutation"),
    "encode_position": ("logplayer.wire.codec", "encode_position"),
    "json_value": ("logplayer.log.mutations", "json_value"),
    "make_session": ("logplayer.spark.session", "make_session"),
    "open_log": ("logplayer.api.opened", "open_log"),
    "position": ("logplayer.target.client", "position"),
    "put": ("logplayer.log.mutations", "put"),
    "restore_log": ("logplayer.log.file.backup", "restore_log"),
    "table": ("logplayer.log.mutations", "table"),
    "wait_for": ("logplayer.target.client", "wait_for"),
}

__all__ = [
    "AddressError",
    "BadRequest",
    "Change",
    "Config",
    "ConfigError",
    "ControlJammed",
    "ControlRefused",
    "CorruptEntry",
    "DamagedLog",
    "EndKind",
    "Ended",
    "EntryTooLarge",
    "ExplicitMap",
    "Fenced",
    "HashMap",
    "HashShards",
    "History",
    "Info",
    "Json",
    "Limits",
    "Log",
    "LogBackup",
    "LogDiverged",
    "LogError",
    "LogFormatError",
    "LogFull",
    "LogPlayerError",
    "LogUnavailable",
    "Malformed",
    "MemoryTarget",
    "Mutation",
    "MysqlTables",
    "NewEntry",
    "Newest",
    "NotALog",
    "NotATarget",
    "OpenedLog",
    "OtherLog",
    "OutOfSync",
    "Player",
    "Poison",
    "Position",
    "PostgresTables",
    "PostgresTarget",
    "Producer",
    "ProducerConflict",
    "RangeMap",
    "Receipt",
    "Record",
    "RedisTarget",
    "RocksTarget",
    "Row",
    "Security",
    "SequenceGap",
    "SqliteTables",
    "SqliteTarget",
    "Superseded",
    "Target",
    "TargetError",
    "TargetServer",
    "TargetUnavailable",
    "Trimmed",
    "Unavailable",
    "UserError",
    "VersionMismatch",
    "__version__",
    "backup_log",
    "consistent_cut",
    "ddl",
    "decode_position",
    "delete",
    "encode_mutation",
    "encode_position",
    "json_value",
    "make_session",
    "open_log",
    "outbox",
    "position",
    "put",
    "restore_log",
    "spark",
    "sync",
    "table",
    "wait_for",
]


if not TYPE_CHECKING:  # To a type checker it would say that every name is there.

    def __getattr__(name: str) -> Any:
        """Load the module of a public name when it is first asked for."""
        if name in ("outbox", "spark", "sync"):
            return importlib.import_module(f"logplayer.{name}")
        try:
            module, inside = _WHERE[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        found = globals()[name] = getattr(importlib.import_module(module), inside)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

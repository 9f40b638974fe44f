"""What users may rely on: the names of ``logplayer``, and that asking for one loads no more than it needs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import logplayer
from logplayer import errors

BACKUP = {"LogBackup", "backup_log", "restore_log"}
LOG = {
    "BadRequest",
    "History",
    "Info",
    "Log",
    "NewEntry",
    "Newest",
    "OpenedLog",
    "Record",
    "encode_mutation",
    "open_log",
    "sync",
}
PRODUCERS = {"Json", "Mutation", "Producer", "Receipt", "ddl", "delete", "json_value", "outbox", "put", "table"}
TARGETS = {"Change", "Position", "Row", "Target", "TargetServer", "decode_position", "encode_position"}
STORES = {
    "MemoryTarget",
    "MysqlTables",
    "PostgresTables",
    "PostgresTarget",
    "RedisTarget",
    "RocksTarget",
    "SqliteTables",
    "SqliteTarget",
}
PLAYER = {
    "Config",
    "EndKind",
    "Ended",
    "ExplicitMap",
    "HashMap",
    "HashShards",
    "Limits",
    "Player",
    "RangeMap",
    "Security",
}
READS = {"consistent_cut", "make_session", "position", "spark", "wait_for"}
ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
EXPORTED = BACKUP | LOG | PRODUCERS | TARGETS | STORES | PLAYER | READS | ERRORS | {"__version__"}
HEAVY = (
    "grpc",
    "pyspark",
    "click",
    "google",
    "psycopg",
    "pymysql",
    "redis",
    "rocksdict",
    "nats",
    "confluent_kafka",
    "asyncio",
)
SOURCE = Path(logplayer.__file__)

pytestmark = pytest.mark.usefixtures("no_garbage")


def test_the_list_is_as_documented() -> None:
    assert set(logplayer.__all__) == EXPORTED
    assert sorted(set(logplayer.__all__)) == sorted(logplayer.__all__)
    assert set(logplayer.__all__) <= set(dir(logplayer))


@pytest.mark.parametrize("name", sorted(EXPORTED))
def test_each_name_is_there(name: str) -> None:
    assert getattr(logplayer, name) is not None


def test_type_checkers_see_the_same_names() -> None:
    """They do not run ``__getattr__``: what it gives is imported for them, from the same place."""
    told: dict[str, tuple[str, str]] = {}
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("logplayer."):
            told |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
    assert told == logplayer._WHERE


def test_a_name_that_is_not_there_is_said_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'logplayer' has no attribute 'Shard'"):
        logplayer.Shard  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("asked", "may"),
    [("", ()), ("NewEntry", ()), ("HashMap", ()), ("LogError", ()), ("SqliteTarget", ("google", "asyncio"))],
)
def test_a_name_loads_no_more_than_it_needs(asked: str, may: tuple[str, ...]) -> None:
    use = f"logplayer.{asked}" if asked else "pass"
    script = f"import json, sys, logplayer; {use}; print(json.dumps([n for n in {HEAVY} if n in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert set(json.loads(done.stdout)) <= set(may)

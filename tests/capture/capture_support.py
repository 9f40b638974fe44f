"""A source, a capture of it in this process or in one that can be killed, and the log folded by code of its own."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from logplayer.capture.postgres import capture_postgres
from logplayer.capture.settings import CaptureSettings, Choices
from logplayer.log.open import open_log
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

DEFAULT = Choices()
Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]
CHILD = """
import sys
from logplayer import crashpoint
from logplayer.capture import appender, snapshot
crashpoint.armed = sys.argv.pop(1) or None
appender.MARK_SECONDS = 0.2
snapshot.CHUNK_BYTES = 2000
from logplayer.cli.main import main
main()
"""


class Source:
    """A database of its own in a PostgreSQL that tests share."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url.rsplit("/", 1)[0] + f"/{name}"
        self.slot = name
        self.db = psycopg.connect(self.url, autocommit=True)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.db.execute(statement)

    def rows(self, *tables: str) -> Rows:
        """What the source has, by plain SQL, all tables at one moment."""
        out: Rows = {}
        with self.db.transaction():
            self.db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            for table in tables:
                cursor = self.db.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))
                names = [column.name for column in cursor.description or ()]
                key = self._key(table)
                rows = [dict(zip(names, row, strict=True)) for row in cursor]
                out[table] = {tuple(row[name] for name in key): row for row in rows}
        return out

    def _key(self, table: str) -> list[str]:
        query = (
            "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(n, o) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n "
            "WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY k.o"
        )
        return [name for (name,) in self.db.execute(query, (f'"{table}"',))]

    def confirmed(self) -> str:
        query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
        row = self.db.execute(query, (self.slot,)).fetchone()
        return row[0] if row else ""


@contextmanager
def new_source(server: str, name: str) -> Iterator[Source]:
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    source = Source(server, name)
    try:
        yield source
    finally:
        source.db.close()
        with psycopg.connect(server, autocommit=True) as db:
            query = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s"
            db.execute(query, (name,))
            for _ in range(100):
                try:
                    query = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s"
                    db.execute(query, (name,))
                    break
                except psycopg.errors.ObjectInUse:
                    db.execute("SELECT pg_sleep(0.1)")
            db.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


async def capture(
    source: Source, directory: Path, *tables: str, choices: Choices = DEFAULT, **more: Any
) -> tuple[int, list[str]]:
    """Everything that the source has now into the log; how many entries that was, and what the capture said."""
    said: list[str] = []
    log = await open_log(f"file://{directory}/wal")
    try:
        settings = CaptureSettings(source.url, source.slot, source.slot, tables, choices=choices, **more)
        async with asyncio.timeout(120):
            entries = await capture_postgres(
                log, settings, stop=asyncio.Event(), until_now=True, say=lambda what, facts: said.append(what)
            )
        return entries, said
    finally:
        await log.close()


def child(source: Source, directory: Path, tables: str, crash: str = "", *options: str) -> subprocess.Popen[str]:
    """A capture in a process of its own, which dies by SIGKILL at the place ``crash``."""
    command = [sys.executable, "-c", CHILD, crash, "capture", "postgres", "--url", source.url, "--slot", source.slot]
    command += ["--tables", tables, "--log", f"file://{directory}/wal", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> str:
    process.send_signal(number)
    return process.communicate(timeout=120)[0]


async def entries(directory: Path) -> list[tuple[int, str, int, bytes]]:
    """Everything that can be read in the log: index, producer, sequence, payload."""
    log = await open_log(f"file://{directory}/wal", readonly=True)
    try:
        info = await log.info()
        if info.last < info.first:
            return []
        return [
            (record.index, record.producer, record.sequence, record.payload)
            async for records in log.read(info.first, info.last)
            for record in records
        ]
    finally:
        await log.close()


def fold(found: list[tuple[int, str, int, bytes]], tables: tuple[str, ...]) -> Rows:
    """The tables after all entries, with the rules of a database: nothing is patched or moved that is not there."""
    state: Rows = {table: {} for table in tables}
    for index, _, _, payload in found:
        for mutation in pb.Transaction.FromString(payload).mutations:
            if not mutation.table:
                continue
            rows = state[mutation.table]
            key = {column.name: value(column.value) for column in mutation.columns if column.key}
            new = {column.name: value(column.value) for column in mutation.columns if not column.key}
            at = tuple(key.values())
            if mutation.op == pb.PUT:
                rows[at] = key | new
            elif mutation.op == pb.DELETE:
                rows.pop(at, None)
            else:
                assert at in rows, f"entry {index} patches {mutation.key!r}, which is not there"
                row = rows.pop(at) | new
                rows[tuple(row[name] for name in key)] = row
    return state


def value(value: pb.Value) -> Any:
    """A value by the documentation of entry.proto."""
    kind = value.WhichOneof("kind")
    if kind is None:
        return None
    raw = getattr(value, kind)
    if kind == "decimal":
        return Decimal(raw)
    if kind in ("timestamp_us", "local_timestamp_us"):
        zone = UTC if kind == "timestamp_us" else None
        return datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=raw)
    if kind == "date_days":
        return date(1970, 1, 1) + timedelta(days=raw)
    if kind == "time_us":
        return (datetime(1970, 1, 1) + timedelta(microseconds=raw)).time()
    if kind == "uuid":
        return UUID(bytes=raw)
    if kind == "json":
        import json

        return json.loads(raw)
    if kind == "array":
        return [globals()["value"](item) for item in raw.items]
    return raw


def sequences(found: list[tuple[int, str, int, bytes]], producer: str) -> list[int]:
    return [sequence for _, name, sequence, _ in found if name == producer]

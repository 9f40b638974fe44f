"""A source in which others write without a pause: the slot moves on, and ``--until-now`` ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import psycopg
import pytest

from logplayer.capture import appender, postgres
from logplayer.capture.pg_stream import PgStream
from logplayer.capture.settings import CaptureSettings
from logplayer.log.open import open_log
from tests.capture.capture_support import Source, capture, entries
from tests.capture.test_capture import same


@contextmanager
def foreign_traffic(source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Empty transactions without an end, as PostgreSQL 14 sends them of every other table's, and no silence at all."""
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(source.url, autocommit=True) as db:
            while not stop.is_set():
                db.execute("SELECT pg_logical_emit_message(true, 'somebody else', repeat('x', 200))")

    found = PgStream.messages

    async def messages(self: PgStream, ask: bool = False) -> AsyncIterator[list[bytes]]:
        async for some in found(self, ask):
            if some or stop.is_set():
                yield some

    monkeypatch.setattr(PgStream, "messages", messages)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


async def test_until_now_ends_although_others_never_pause(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    with foreign_traffic(source, monkeypatch):
        source.run(*["INSERT INTO t DEFAULT VALUES"] * 3)
        await capture(source, tmp_path, "t")
    same(source, await entries(tmp_path), "t")


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_slot_moves_on_while_other_tables_are_busy(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    """Also if what others write is streamed, so that there is never a second without a message."""
    monkeypatch.setattr(postgres, "HEARTBEAT_BYTES", 1000)
    monkeypatch.setattr(postgres, "HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr(appender, "MARK_SECONDS", 0.1)
    source.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE busy (id serial)")
    await capture(source, tmp_path, "t")
    before = source.confirmed()
    log = await open_log(f"file://{tmp_path}/wal")
    stop = asyncio.Event()
    settings = CaptureSettings(source.url, source.slot, source.slot, ("t",))
    with foreign_traffic(source, monkeypatch) if streamed else nullcontext():
        running = asyncio.create_task(postgres.capture_postgres(log, settings, stop=stop))
        await moves_on(source, before, running)
        stop.set()
        await running
    await log.close()
    same(source, await entries(tmp_path), "t")


async def moves_on(source: Source, before: str, running: asyncio.Task[int]) -> None:
    async with asyncio.timeout(120):
        while source.confirmed() == before:
            source.run("INSERT INTO busy SELECT FROM generate_series(1, 100)")
            await asyncio.sleep(0.05)
            assert not running.done()

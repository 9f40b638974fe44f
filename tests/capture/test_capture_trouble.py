"""Trouble with the real thing: a log whose disk is full, a slot that PostgreSQL gave up, a source that is a standby."""

from __future__ import annotations

import asyncio
import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from logplayer.capture.settings import CaptureStopped
from tests.campaign.databases import PostgresServer
from tests.capture.capture_support import Source, capture, child, end, entries, fold, sequences
from tests.player.player_support import until
from tests.servers import find_postgres, missing

SETTINGS = ("wal_level=logical", "fsync=off", "autovacuum=off")


@pytest.fixture
def server() -> Iterator[Path]:
    if find_postgres() is None:
        missing("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory(prefix="lp-trouble-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def wait_for(process: object, word: str) -> None:
    for line in process.stdout:  # type: ignore[attr-defined]
        if word in line:
            return
    raise AssertionError(f"the capture ended before it said {word!r}")


async def test_a_full_log_is_waited_for_and_nothing_is_lost_or_twice(source: Source, tmp_path: Path) -> None:
    """A real log in a real process, which may write no byte more until there is room again."""
    source.run("CREATE TABLE t (id serial PRIMARY KEY, v text)")
    process = child(source, tmp_path, "t")
    wait_for(process, "capturing")
    before = source.confirmed()
    no_limit = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    source.run("INSERT INTO t (v) SELECT repeat('x', 1000) FROM generate_series(1, 50)", "INSERT INTO t DEFAULT VALUES")
    await asyncio.to_thread(wait_for, process, "the log does not take entries now")
    await asyncio.sleep(2.5)  # It would confirm once a second.
    assert source.confirmed() == before
    assert process.poll() is None
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, no_limit)
    await until(lambda: source.confirmed() != before, "the log has room")
    end(process, signal.SIGTERM)
    await capture(source, tmp_path, "t")
    found = await entries(tmp_path)
    assert fold(found, ("t",)) == source.rows("t")
    numbers = sequences(found, f"capture/{source.slot}")
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == 2 + 2  # begin, done, and each transaction once.


async def test_a_slot_that_postgres_gave_up_stops_with_the_remedy(server: Path, tmp_path: Path) -> None:
    """``max_slot_wal_keep_size`` is a promise of PostgreSQL to the disk and not to the capture."""
    small = ("max_slot_wal_keep_size=1MB", "min_wal_size=32MB", "max_wal_size=32MB")
    primary = PostgresServer(server / "primary", *SETTINGS, *small)
    try:
        source = Source(primary.url("postgres"), "postgres")
        source.run("CREATE TABLE t (id serial PRIMARY KEY)")
        await capture(source, tmp_path, "t")
        source.run("INSERT INTO t DEFAULT VALUES")
        for _ in range(4):
            source.run("SELECT pg_switch_wal()", "CREATE TABLE IF NOT EXISTS other (v text)")
            source.run("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 5000)", "CHECKPOINT")
        status = source.db.execute("SELECT wal_status FROM pg_replication_slots").fetchone()
        assert status == ("lost",)
        with pytest.raises(CaptureStopped, match=r"removed what slot postgres needed.*new --slot") as stopped:
            await capture(source, tmp_path, "t")
        assert stopped.value.reason == "slot_lost"
        source.db.close()
    finally:
        primary.crash()


async def test_a_source_that_became_a_standby_is_waited_for(server: Path, tmp_path: Path) -> None:
    primary = PostgresServer(server / "primary", *SETTINGS)
    source = Source(primary.url("postgres"), "postgres")
    process = None
    try:
        source.run("CREATE TABLE t (id serial PRIMARY KEY)")
        await capture(source, tmp_path, "t")
        process = child(source, tmp_path, "t")
        wait_for(process, "capturing")
        source.run("INSERT INTO t DEFAULT VALUES")
        source.db.close()
        primary.stop()
        primary.make_standby()
        primary.start()
        await asyncio.to_thread(wait_for, process, "the source is a standby now")
        assert process.poll() is None
        primary.promote()
        source.db = psycopg.connect(source.url, autocommit=True)
        source.run("INSERT INTO t DEFAULT VALUES")
        await asyncio.to_thread(wait_for, process, "capturing again")
        end(process, signal.SIGTERM)
        await capture(source, tmp_path, "t")
        found = await entries(tmp_path)
        assert fold(found, ("t",)) == source.rows("t")
        assert len(sequences(found, f"capture/{source.slot}")) == 2 + 2
        source.db.close()
    finally:
        if process is not None and process.poll() is None:
            end(process)
        primary.crash()

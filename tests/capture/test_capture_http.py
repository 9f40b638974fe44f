"""What a capture shows over HTTP: from its own process, with a real source."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from logplayer.admin.app import serve
from logplayer.admin.capture_face import capture_face
from logplayer.admin.http_client import ask
from logplayer.capture.appender import Appender, Item
from logplayer.capture.postgres import capture_postgres
from logplayer.capture.settings import CaptureSettings, CaptureStopped, stop_reason
from logplayer.errors import EntryTooLarge, LogFull, Unavailable, UserError
from logplayer.log.open import open_log
from logplayer.observe.instruments import CaptureCounts, CaptureStage, Received
from tests.admin.test_http import get, send
from tests.admin.test_metrics import scrape, value
from tests.capture.capture_support import Source, child, end
from tests.player.player_support import until


def test_counts_follow_transactions_into_the_log() -> None:
    counts = CaptureCounts()
    assert (counts.lag_bytes, counts.lag_seconds(5.0)) == (0, 0.0)
    counts.find(10, 10)
    counts.source_lsn = 100
    for lsn, second, rows in ((20, 1, 3), (30, 2, 1), (40, 3, 2)):
        counts.receive(Received(lsn, second * 1_000_000, rows))
    assert (counts.lag_bytes, counts.lag_seconds(5.0)) == (90, 4.0)
    counts.make_durable(30, 5.0)
    assert (counts.transactions, counts.rows, counts.lag_seconds(5.0)) == (2, 4, 2.0)
    assert (counts.delays.count, counts.delays.seconds) == (2, 7.0)
    counts.lose("gone")
    assert (counts.stage, counts.why, counts.reconnects) == (CaptureStage.AWAY, "gone", 1)
    counts.find(30, 30)
    counts.make_durable(40, 5.0)
    assert (counts.transactions, counts.rows, counts.lag_seconds(9.0), counts.why) == (3, 6, 0.0, "")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (CaptureStopped("slot_gone", "t"), "slot_gone"),
        (EntryTooLarge("t"), "too_large"),
        (LogFull("t"), "log_refuses"),
        (Unavailable("t"), "unavailable"),
        (UserError("t"), "not_possible"),
    ],
)
def test_every_stop_has_a_reason(error: Exception, reason: str) -> None:
    assert stop_reason(error) == reason


async def test_a_capture_shows_its_work(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)", "INSERT INTO t SELECT FROM generate_series(1, 50)")
    counts, stop = CaptureCounts(), asyncio.Event()
    server = serve(capture_face(source.slot, f"capture/{source.slot}", ("t",), counts))
    where = await server.start("127.0.0.1:0")
    assert (await send(where, get("/readyz"))).startswith(b"HTTP/1.1 503")
    log = await open_log(f"file://{tmp_path}/wal")
    settings = CaptureSettings(source.url, source.slot, source.slot, ("t",))
    running = asyncio.create_task(capture_postgres(log, settings, stop=stop, counts=counts))
    try:
        await until(lambda: counts.stage is CaptureStage.STREAMING, "the stream is read")
        assert (await send(where, get("/readyz"))).startswith(b"HTTP/1.1 200")
        source.run("INSERT INTO t SELECT FROM generate_series(1, 3)", "DELETE FROM t WHERE id = 1")
        await until(lambda: counts.transactions == 2, "both are durable")
        query = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s"
        source.db.execute(query, (source.slot,))
        await until(lambda: counts.reconnects == 1, "the connection was lost")
        await until(lambda: counts.stage is CaptureStage.STREAMING, "the stream is read again")
        await until(lambda: counts.confirmed_lsn == counts.durable_lsn, "the newest transaction is confirmed")
        status, found = await ask(where, "/status"), await scrape(where)
        assert (status["kind"], status["state"], status["rows"], status["why"]) == ("capture", "streaming", 4, "")
        assert status["snapshot"] == [{"table": "t", "rows": 50, "of_about": 50}]
        slot = {"slot": source.slot}
        for name in ("transactions", "rows", "entries", "reconnects"):
            assert value(found, f"logplayer_capture_{name}_total", **slot) == status[name]
        assert value(found, "logplayer_capture_commit_to_log_seconds_count", **slot) == 2
        assert value(found, "logplayer_capture_state", state="streaming", **slot) == 1
        assert value(found, "logplayer_capture_snapshot_rows", table="t", **slot) == 50
        assert value(found, "logplayer_capture_confirmed_lsn_bytes", **slot) == counts.confirmed_lsn > 0
        assert value(found, "logplayer_capture_lag_seconds", **slot) == 0
    finally:
        stop.set()
        await running
        await log.close()
        await server.stop()


async def test_a_full_log_shows(tmp_path: Path) -> None:
    log = await open_log(f"file://{tmp_path}/wal")
    counts = CaptureCounts()
    made = Appender(log, "capture/s", 0, lambda lsn: None, counts)
    await made.open()
    server = serve(capture_face("s", "capture/s", ("t",), counts))
    where = await server.start("127.0.0.1:0")
    room = asyncio.Event()
    inner = log.append

    async def append(group: object) -> list[int]:
        if not room.is_set():
            raise LogFull("no room")
        return await inner(group)  # type: ignore[arg-type]

    made._log.append = append  # type: ignore[method-assign, assignment]
    running = asyncio.create_task(made.run())
    counts.receive(Received(7, 0, 1))
    made.submit(Item([b"\x0a\x03\x0a\x01k"], 7))
    await until(lambda: counts.waits["LogFull"] > 0, "the log was tried")
    assert b"the log does not take entries now: no room" in await send(where, get("/readyz"))
    assert value(await scrape(where), "logplayer_capture_log_waits_total", slot="s", error="LogFull") >= 1
    assert (await ask(where, "/status"))["lag_seconds"] > 0
    room.set()
    async with asyncio.timeout(120):
        await made.drain()
    assert (counts.why, counts.transactions, counts.durable_lsn) == ("", 1, 7)
    running.cancel()
    await server.stop()
    await log.close()


async def test_a_stop_is_shown_for_a_while(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    process = child(source, tmp_path, "t", "", "--http", "127.0.0.1:0", "--linger", "600")
    assert process.stdout is not None
    where = ""
    for line in process.stdout:
        where = line.split()[-1] if line.startswith("serving") else where
        if line.startswith("capturing"):
            break
    source.run("TRUNCATE t")
    for line in process.stdout:
        if "answering over HTTP" in line:
            break
    status = await ask(where, "/status")
    assert (status["state"], status["stops"]) == ("stopped", {"truncate": 1})
    assert "TRUNCATE" in status["why"]
    assert value(await scrape(where), "logplayer_capture_stops_total", slot=source.slot, reason="truncate") == 1
    assert "--on-truncate ddl" in end(process, signal.SIGTERM)
    assert process.returncode == 2

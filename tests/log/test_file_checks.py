"""Checks of the file log that must be able to fail: what a trim deletes, whose header a row has, what is kept."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from logplayer.errors import CorruptEntry
from logplayer.log.file import checkpoint, segment
from logplayer.log.file.directory import Directory
from logplayer.log.file.log import RECENT_BYTES_MAX, FileLog
from logplayer.log.protocol import NewEntry
from logplayer.testing.conformance.logs import collect, fill


async def test_a_trim_that_ends_one_before_a_segments_end_keeps_the_segment(tmp_path: Path) -> None:
    """The segment's last entry is not trimmed, so it can be read, also by who has it not in memory."""
    log = await FileLog.open(tmp_path / "log", segment_bytes=5000)
    await fill(log, 60)
    firsts = log.directory.segments()
    assert len(firsts) > 2
    last = firsts[2] - 1
    await log.trim(last - 1)
    assert log.directory.segments() == firsts[1:]
    await log.close()
    log = await FileLog.open(tmp_path / "log", segment_bytes=5000)
    assert log.directory.segments() == firsts[1:]
    assert [record.index for record in await collect(log, last, 60)] == list(range(last, 61))
    await log.trim(last)
    assert log.directory.segments() == firsts[2:]
    assert [record.index for record in await collect(log, last + 1, 60)] == list(range(last + 1, 61))
    await log.close()


async def test_a_header_of_another_row_is_not_believed(tmp_path: Path) -> None:
    """Its checksum is right. It would move a producer's sequences to other indexes."""
    log = await FileLog.open(tmp_path / "log")
    await fill(log, 10)
    await log.close()
    db = sqlite3.connect(Directory(tmp_path / "log").segment(1))
    heads = dict(db.execute("SELECT first, head FROM chunks WHERE first IN (5, 6)").fetchall())
    db.executemany("UPDATE chunks SET head = ? WHERE first = ?", [(heads[6], 5), (heads[5], 6)])
    db.commit()
    db.close()
    with pytest.raises(CorruptEntry, match="its row has moved") as caught:
        await FileLog.open(tmp_path / "log")
    assert caught.value.index == 5
    reader = await FileLog.open(tmp_path / "log", readonly=True)
    with pytest.raises(CorruptEntry, match="entry 5 is damaged"):
        await collect(reader, 1, 10)
    await reader.close()


async def test_the_memory_of_recent_entries_is_bounded(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    payload = os.urandom(200_000)
    for sequence in range(1, 61):
        await log.append([NewEntry("p", sequence, payload)])
        held = sum(len(chunk.data) for chunk in log._recent)
        assert held <= RECENT_BYTES_MAX
    assert held > RECENT_BYTES_MAX - 2 * len(payload), "the newest entries are served from memory"
    assert [record.index for record in await collect(log, 1, 60)] == list(range(1, 61))
    await log.close()


async def test_small_entries_do_not_let_the_write_ahead_log_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each append of its own writes a page of 32 KB there, so entries of 60 bytes would take 500 times their room."""
    monkeypatch.setattr(checkpoint, "WAL_BYTES_MIN", 1 << 20)
    asked: list[str] = []
    make = checkpoint.Checkpointer._checkpoint

    def noted(self: checkpoint.Checkpointer, path: Path, how: str = "PASSIVE", busy_ms: int = 0) -> None:
        asked.append(how)
        make(self, path, how, busy_ms)

    monkeypatch.setattr(checkpoint.Checkpointer, "_checkpoint", noted)
    log = await FileLog.open(tmp_path / "log", segment_bytes=500_000)
    wal = segment.wal_of(log.directory.segment(1))
    for sequence in range(1, 1001):
        await log.append([NewEntry("p", sequence, bytes(60))])
    # Appends do not wait for the thread that moves the pages, and a slow disk makes it late.
    assert wal.stat().st_size < 16 << 20, "32 MB were written"
    assert "RESTART" in asked  # A writer that rests lets a passive checkpoint do; under load only this one helps.
    await log.close()
    again = await FileLog.open(tmp_path / "log")
    assert [record.index for record in await collect(again, 1, 1000)] == list(range(1, 1001))
    await again.close()

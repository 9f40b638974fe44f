"""A sealed segment's write-ahead log serves a later segment, and nothing of the one is ever read as the other's."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from logplayer.errors import LogFull
from logplayer.log.file import segment
from logplayer.log.file.checkpoint import Checkpointer
from logplayer.log.file.log import FileLog
from logplayer.log.file.segment import FrameChunk, Start, connect, create, headers, insert, wal_of
from logplayer.log.file.wal_recycling import HEADER_BYTES, NAME, Spare
from logplayer.log.file.writer import Writer
from logplayer.log.sequences import Run
from logplayer.testing.conformance.log_check import AckedAppend, LogChecker, entry
from logplayer.testing.conformance.log_harness import LogChild

ROOMY = 1 << 30


def chunk(first: int, data: bytes) -> FrameChunk:
    return FrameChunk(first, 1, 0, [Run("p", first, first, 1, bytes(8))], data, bytes(8))


def fill(path: Path, first: int, count: int, data: bytes) -> sqlite3.Connection:
    db = connect(path, write=True)
    for index in range(first, first + count):
        insert(db, [chunk(index, data)])
    return db


def firsts(path: Path) -> list[int]:
    with closing(connect(path)) as db:
        return [first for first, *_ in headers(db)]


def seal(path: Path, db: sqlite3.Connection, spare: Spare) -> None:
    """As the checkpointer does, from its queue."""
    checkpointer = Checkpointer(spare, ROOMY)
    checkpointer.start()
    checkpointer.seal(path, db)
    checkpointer.stop()


def test_it_becomes_the_write_ahead_log_of_the_next_segment(tmp_path: Path) -> None:
    spare = Spare(tmp_path)
    one, two = tmp_path / "1.seg", tmp_path / "9.seg"
    create(one, Start("log", 1, 0, 1, {}, "", ""), spare)
    db = fill(one, 1, 8, b"a" * 50_000)
    inode, size = wal_of(one).stat().st_ino, wal_of(one).stat().st_size
    seal(one, db, spare)
    kept = tmp_path / NAME
    assert kept.stat().st_ino == inode
    assert not any(kept.read_bytes()[:HEADER_BYTES])
    assert not wal_of(one).exists()
    create(two, Start("log", 9, 0, 1, {}, "", ""), spare)
    assert wal_of(two).stat().st_ino == inode
    assert firsts(two) == [], "what the first segment wrote is none of the second's"
    db = fill(two, 9, 3, b"b" * 50_000)
    assert wal_of(two).stat().st_size == size, "it did not grow"
    db.close()
    assert (firsts(one), firsts(two)) == (list(range(1, 9)), [9, 10, 11])


def test_a_segment_that_somebody_reads_keeps_its_own(tmp_path: Path) -> None:
    spare, one = Spare(tmp_path), tmp_path / "1.seg"
    create(one, Start("log", 1, 0, 1, {}, "", ""), spare)
    db = fill(one, 1, 8, b"a" * 50_000)
    with closing(connect(one)) as reader:
        rows = reader.execute("SELECT first FROM chunks ORDER BY first")
        assert rows.fetchone() == (1,)
        seal(one, db, spare)
        assert not (tmp_path / NAME).exists()
        assert [first for (first,) in rows] == list(range(2, 9))
    assert firsts(one) == list(range(1, 9))


# What SQLite does first when it opens a segment: a shared lock on the database, then the write-ahead log. Who stops
# here cannot be seen in the wal-index, and goes on with the file that it has opened.
OPENING = """
import fcntl, sys
database = open(sys.argv[1], "rb")
fcntl.lockf(database, fcntl.LOCK_SH | fcntl.LOCK_NB, 510, 0x40000002)
wal = open(sys.argv[1] + "-wal", "rb")
print("opening", flush=True)
sys.stdin.read()
"""


def test_a_segment_that_somebody_is_about_to_read_keeps_its_own(tmp_path: Path) -> None:
    spare, one = Spare(tmp_path), tmp_path / "1.seg"
    create(one, Start("log", 1, 0, 1, {}, "", ""), spare)
    db = fill(one, 1, 8, b"a" * 50_000)
    with subprocess.Popen(
        [sys.executable, "-c", OPENING, one], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdin is not None
        assert reader.stdout.readline() == "opening\n"
        inode = wal_of(one).stat().st_ino
        seal(one, db, spare)
        assert wal_of(one).stat().st_ino == inode
        assert wal_of(one).stat().st_size == 0, "it takes no room"
        assert [path.name for path in tmp_path.iterdir() if NAME in path.name] == []
        reader.stdin.close()
    assert firsts(one) == list(range(1, 9))


def test_a_connection_from_before_the_sealing_reads_on(tmp_path: Path) -> None:
    """While later segments are written: what it reads from is not among what they write over."""
    spare = Spare(tmp_path)
    one, two = tmp_path / "1.seg", tmp_path / "9.seg"
    create(one, Start("log", 1, 0, 1, {}, "", ""), spare)
    db = fill(one, 1, 8, b"a" * 50_000)
    with closing(connect(one)) as reader:
        assert len(list(headers(reader))) == 8
        seal(one, db, spare)
        assert not (tmp_path / NAME).exists()
        create(two, Start("log", 9, 0, 1, {}, "", ""), spare)
        other = fill(two, 9, 8, b"b" * 50_000)
        data = [bytes(row[0]) for row in reader.execute("SELECT data FROM chunks ORDER BY first")]
        assert data == [b"a" * 50_000] * 8
        other.close()


def test_one_that_is_too_large_is_cut(tmp_path: Path) -> None:
    spare, wal = Spare(tmp_path), tmp_path / "1.seg-wal"
    wal.write_bytes(b"x" * 10_000)
    spare.hold(wal)
    assert not spare.alone
    wal.unlink()
    assert spare.alone
    spare.keep(4_000)
    assert (tmp_path / NAME).read_bytes() == bytes(HEADER_BYTES) + b"x" * (4_000 - HEADER_BYTES)


async def test_a_log_that_is_closed_or_opened_has_none(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log", segment_bytes=20_000)
    for sequence in range(1, 400):
        await log.append([entry("p", sequence)])
    kept = tmp_path / "log" / NAME
    for _ in range(100):
        if kept.exists():
            break
        await asyncio.sleep(0.02)
    assert kept.exists()
    await log.close()
    assert not kept.exists()
    kept.write_bytes(b"left by a crash")
    log = await FileLog.open(tmp_path / "log")
    assert not kept.exists()
    await log.close()


@pytest.mark.parametrize("step", ["spare-held", "spare-moved", "spare-kept", "spare-placed"])
@pytest.mark.parametrize("nth", [1, 5])
async def test_crash_at_step(step: str, nth: int, tmp_path: Path) -> None:
    watcher = LogChecker()
    for _ in range(2):
        options = ("--segment-bytes", "20000", "--crash-at", f"{step}:{nth}")
        child = await LogChild.start(f"file://{tmp_path}/log", *options, newest=watcher.newest)
        watcher.acknowledge(await child.wait())
        assert child.process.returncode == -9, "the step was never taken"
        log = await FileLog.open(tmp_path / "log")
        await watcher.catch_up(log)
        await watcher.prove_all(log)
        await log.close()


async def test_a_rotation_that_fails_halfway_costs_nothing_but_an_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new segment is there and cannot be opened: the old connection is with the checkpointer and is not used."""
    log = await FileLog.open(tmp_path / "log", segment_bytes=20_000)
    failures = 0
    rotate = Writer._rotate

    def fail_once(path: Path, *, write: bool = False) -> sqlite3.Connection:
        nonlocal failures
        failures += 1
        monkeypatch.setattr(segment, "connect", connect)
        raise sqlite3.OperationalError("unable to open database file")

    def rotate_into_trouble(self: Writer) -> None:
        monkeypatch.setattr(segment, "connect", fail_once)
        rotate(self)

    monkeypatch.setattr(Writer, "_rotate", rotate_into_trouble)
    watcher, sequence = LogChecker(), 0
    while sequence < 600:
        try:
            [index] = await log.append([entry("p", sequence + 1)])
        except LogFull:
            continue
        sequence += 1
        watcher.acknowledge([AckedAppend("p", sequence, index)])
    assert failures > 3
    await watcher.catch_up(log)
    await watcher.prove_all(log)
    await log.close()


def test_a_segment_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segment, "sync", fail)
    with pytest.raises(OSError, match="No space"):
        create(tmp_path / "1.seg", Start("log", 1, 0, 1, {}, "", ""), Spare(tmp_path))
    assert list(tmp_path.iterdir()) == []

"""What is particular to the file log: the lock, other processes, other formats, disk space, group commit, damage."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from logplayer.core.entry import HashMap, Takeover, TargetRemoved
from logplayer.errors import CorruptEntry, LogFormatError, LogFull, LogUnavailable, Trimmed
from logplayer.log import control_chain as chain
from logplayer.log.file import segment
from logplayer.log.file.directory import RESERVE_BYTES, Directory
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import Kind, Locked, NewEntry
from logplayer.testing.conformance.log_check import LogChecker, entry
from logplayer.testing.conformance.log_harness import LogChild, SmallDisk, flip_in_files
from logplayer.testing.conformance.logs import NotApplicable, collect, fill, in_time
from tests.log.log_support import missing


async def test_a_second_writer_is_refused_with_the_first_ones_pid(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    with pytest.raises(Locked, match=f"process {os.getpid()};"):
        await FileLog.open(tmp_path / "log")
    await log.close()
    again = await FileLog.open(tmp_path / "log")
    await again.close()


async def test_another_process_writes_while_this_one_reads(tmp_path: Path) -> None:
    """Readers follow through new segments and see each entry once."""
    (await FileLog.open(tmp_path / "log")).directory.unlock()
    child = await LogChild.start(f"file://{tmp_path}/log", "--count", "150", "--segment-bytes", "30000")
    watchers = [LogChecker(), LogChecker()]
    log = await FileLog.open(tmp_path / "log", readonly=True)

    async def follow(watcher: LogChecker) -> None:
        async for records in log.read(1):
            watcher.see(records)
            if watcher.count == 600:
                return

    await in_time(asyncio.gather(*(follow(watcher) for watcher in watchers)))
    acked = await child.wait()
    for watcher in watchers:
        watcher.acknowledge(acked)
        await watcher.catch_up(log)
    assert len(log.directory.segments()) > 2
    with pytest.raises(LogUnavailable, match="reading only"):
        await log.append([entry("x", 1)])
    await log.close()


async def test_trim_gives_the_disk_space_back(tmp_path: Path) -> None:
    segment = 1 << 20
    log = await FileLog.open(tmp_path / "log", segment_bytes=segment)
    for sequence in range(1, 801):
        last = (await log.append([NewEntry("p", sequence, os.urandom(10_000))]))[0]
    before = (await log.info()).bytes
    await log.trim(last - 100)
    after = (await log.info()).bytes
    assert before > 8_000_000
    assert after < before / 2
    await log.trim(last)
    assert (await log.info()).bytes < 500_000 + RESERVE_BYTES + segment * 5 // 2, (
        "what is kept for use again is bounded"
    )
    await log.close()
    assert log.directory.bytes_on_disk() < 500_000 + RESERVE_BYTES


async def test_trim_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    """The way out of a full disk must not need room itself."""
    try:
        disk = SmallDisk(tmp_path / "disk")
    except NotApplicable as reason:
        missing(str(reason))
    try:
        log = await FileLog.open(disk.path / "log", segment_bytes=1 << 20)
        sequence = await _fill_up(log)
        disk.fill(leave_bytes=0)
        last = (await log.info()).last
        await log.trim(last - 10)
        assert await log.append([entry("p", sequence, 20_000)]) == [last + 1]
        assert [r.index for r in await collect(log, last - 9, last + 1)] == list(range(last - 9, last + 2))
        assert await log.append([entry("p", 3, 20_000)]) == [3]
        await log.close()
    finally:
        disk.unmount()


async def test_a_trim_of_everything_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    """The newest control record is in the way, and even its repetition needs room."""
    try:
        disk = SmallDisk(tmp_path / "disk")
    except NotApplicable as reason:
        missing(str(reason))
    try:
        log = await FileLog.open(disk.path / "log", segment_bytes=1 << 20)
        await chain.append(log, Takeover(""), HashMap(("a",)), (("a", ""),))
        sequence = await _fill_up(log)
        for _ in range(2):  # Others may take the room at once: the reserve must be there again.
            await _some_segment_is_checkpointed(disk.path / "log")
            disk.fill(leave_bytes=0)
            sequence = await _fill_up(log, sequence)
            first = (await log.info()).first
            assert [record.index for record in await collect(log, first, first)] == [first], "it can be read"
            last = (await log.info()).last
            assert await chain.trim(log, last) == (last, last + 1)
        assert (await log.info()).first == last + 1
        disk.free()
        assert await log.append([entry("p", sequence, 20_000)]) == [last + 2]
        await log.close()
        log = await FileLog.open(disk.path / "log")
        assert (await chain.load(log)).index == last + 1
        await log.close()
    finally:
        disk.unmount()


async def _some_segment_is_checkpointed(directory: Path) -> None:
    """Its write-ahead log is gone then, and SQLite opens it in another way. What has no room for that is let pass."""
    for _ in range(20):
        if not _with_write_ahead_logs(directory):
            return
        await asyncio.sleep(0.1)


def _with_write_ahead_logs(directory: Path) -> bool:
    """Whether there are sealed segments, and each has one."""
    sealed = sorted(directory.glob("*.seg"))[:-1]
    return bool(sealed) and all(path.with_name(f"{path.name}-wal").exists() for path in sealed)


async def test_only_what_a_trim_waits_for_is_written_from_the_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Players that start again and again on a full disk must not use up what the way out needs."""
    log = await FileLog.open(tmp_path / "log")
    await chain.append(log, Takeover(""), HashMap(("a",)), (("a", ""),))
    await log.append([entry("p", 1)])

    def insert(db: sqlite3.Connection, chunks: list[segment.FrameChunk]) -> None:
        if (tmp_path / "log" / "RESERVE").exists():
            raise OSError(28, "No space left on device")
        honest(db, chunks)

    honest = segment.insert
    monkeypatch.setattr(segment, "insert", insert)
    for record in (Takeover(""), TargetRemoved("a")):
        with pytest.raises(LogFull):
            await chain.append(log, record, None)
    one = asyncio.ensure_future(log.append([entry("p", 2)]))
    assert await chain.trim(log, 2) == (2, 3)
    with pytest.raises(LogFull):
        await one
    assert (tmp_path / "log" / "RESERVE").stat().st_size == RESERVE_BYTES
    assert [record.kind for record in await collect(log, 3, 3)] == [Kind.CONTROL]
    await log.close()


async def test_a_trim_on_a_full_disk_does_not_share_its_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that may run at that moment takes all the room there is."""
    try:
        disk = SmallDisk(tmp_path / "disk")
    except NotApplicable as reason:
        missing(str(reason))
    given_up: list[Directory] = []

    def give_up_reserve(directory: Directory) -> None:
        honest(directory)
        given_up.append(directory)
        if log._writer is not None and log._writer._checkpointer.at_rest.acquire(blocking=False):
            disk.fill(leave_bytes=0)

    try:
        log = await FileLog.open(disk.path / "log", segment_bytes=1 << 20)
        await _fill_up(log)
        disk.fill(leave_bytes=0)
        honest = Directory.give_up_reserve
        monkeypatch.setattr(Directory, "give_up_reserve", give_up_reserve)
        await log.trim((await log.info()).last - 10)
        assert given_up
        await log.close()
    finally:
        disk.unmount()


async def test_a_reader_of_another_process_is_overtaken_by_trims(tmp_path: Path) -> None:
    """It reads on, or is told that its place was trimmed; it never takes a deleted segment for damage."""
    await (await FileLog.open(tmp_path / "log")).close()
    options = ("--count", "400", "--segment-bytes", "5000", "--trim-every", "30")
    child = await LogChild.start(f"file://{tmp_path}/log", *options)
    log = await FileLog.open(tmp_path / "log", readonly=True)
    at, overtaken = 1, 0
    while at <= 1600:
        try:
            async for records in log.read(at, 1600):
                assert records[0].index == at
                at = records[-1].index + 1
                while (await log.info()).first <= at <= 1000:  # noqa: ASYNC110 - slower than producers.
                    await asyncio.sleep(0.01)
        except Trimmed as error:
            at, overtaken = error.first, overtaken + 1
    assert len(await child.wait()) == 1600
    assert overtaken, "the reader was never overtaken: the test saw nothing"
    await log.close()


async def _fill_up(log: FileLog, first: int = 1) -> int:
    """The sequence that found no room."""
    for sequence in range(first, first + 3000):
        try:
            await log.append([entry("p", sequence, 20_000)])
        except LogFull:
            return sequence
    raise AssertionError("the small disk never filled up")


async def test_waiting_appends_commit_as_one_group(tmp_path: Path) -> None:
    """A hundred appends that wait need a few commits, not a hundred: entries of one commit have one time."""
    log = await FileLog.open(tmp_path / "log")
    await asyncio.gather(*(log.append([entry(f"p{i}", 1)]) for i in range(100)))
    records = await collect(log, 1, 100)
    assert len({record.committed_at_us for record in records}) < 20
    await log.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.write_text("x"), "is a file"),
        (lambda path: (path.mkdir(), (path / "notes.txt").write_text("x")), "holds 'notes.txt'"),
        (lambda path: (path.mkdir(), (path / f"{1:020}.seg").write_text("no database" * 100)), "not a log segment"),
    ],
)
async def test_another_format_is_refused(tmp_path: Path, make, says: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "log"
    make(path)
    for readonly in (False, True):
        with pytest.raises(LogFormatError, match=says):
            await FileLog.open(path, readonly=readonly)


async def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    await fill(log, 1)
    await log.close()
    db = sqlite3.connect(Directory(tmp_path / "log").segment(1))
    db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(LogFormatError, match=r"format 99.*upgrade"):
        await FileLog.open(tmp_path / "log")


async def test_no_log_to_read(tmp_path: Path) -> None:
    with pytest.raises(LogFormatError, match="no log at"):
        await FileLog.open(tmp_path / "nowhere", readonly=True)
    assert not (tmp_path / "nowhere").exists()


async def test_damage_in_a_group_is_named_and_the_rest_is_served(tmp_path: Path) -> None:
    """Entries of one commit share a chunk; damage to one does not take the others with it."""
    log = await FileLog.open(tmp_path / "log")
    await log.append([entry("p", s, 500) for s in range(1, 21)])
    await log.close()
    assert flip_in_files(sorted((tmp_path / "log").glob("*.seg")), entry("p", 8, 500).payload[100:200]) == 1
    log = await FileLog.open(tmp_path / "log", readonly=True)
    with pytest.raises(CorruptEntry) as caught:
        await collect(log, 1, 20)
    assert caught.value.index == 8
    assert len(await collect(log, 1, 7)) == 7
    assert len(await collect(log, 9, 20)) == 12
    with pytest.raises(CorruptEntry):
        _ = [frames async for frames in log.read_frames(3, 20)]
    await log.close()


async def test_a_flipped_bit_in_a_header_stops_the_writer(tmp_path: Path) -> None:
    """Headers decide what is a duplicate, so a log with a damaged one takes no appends."""
    log = await FileLog.open(tmp_path / "log")
    await fill(log, 10, producer="somebody-with-a-name")
    await log.close()
    path = Directory(tmp_path / "log").segment(1)
    assert flip_in_files([path], b'[5,1,0,[["somebody-with-a-name"') == 1
    with pytest.raises(CorruptEntry) as caught:
        await FileLog.open(tmp_path / "log")
    assert caught.value.index == 5


async def test_a_missing_row_is_damage(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    await fill(log, 10)
    await log.close()
    db = sqlite3.connect(Directory(tmp_path / "log").segment(1))
    db.execute("DELETE FROM chunks WHERE first = 6")
    db.commit()
    db.close()
    log = await FileLog.open(tmp_path / "log", readonly=True)
    with pytest.raises(CorruptEntry) as caught:
        await collect(log, 1, 10)
    assert caught.value.index == 6
    await log.close()


async def test_old_answers_come_from_the_disk(tmp_path: Path) -> None:
    """With nothing in memory, an old sequence is found in its segment, also among many segments."""
    log = await FileLog.open(tmp_path / "log", segment_bytes=5000)
    indexes = await fill(log, 200)
    await log.close()
    log = await FileLog.open(tmp_path / "log", segment_bytes=5000)
    for sequence in range(1, 201, 13):
        assert await log.append([entry("p", sequence)]) == [indexes[sequence - 1]]
    await log.close()


async def test_a_cancelled_append_is_in_the_log_all_the_same(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    task = asyncio.create_task(log.append([entry("p", 1)]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await log.append([entry("p", 1)]) == [1]
    assert await log.append([entry("p", 2)]) == [2]
    await log.close()


async def test_close_ends_readers(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    reader = asyncio.create_task(collect(log, 1, 5))
    await asyncio.sleep(0.01)
    await log.close()
    with pytest.raises(LogUnavailable, match="closed"):
        await in_time(reader)

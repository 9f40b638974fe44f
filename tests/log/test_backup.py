"""Backup and restore of a file log: one moment of a log that goes on, as a whole or not at all."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from logplayer.cli import log_group
from logplayer.errors import LogFormatError, UserError
from logplayer.log.client import LogClient
from logplayer.log.file import copying
from logplayer.log.file.backup import MANIFEST, backup_log, restore_log
from logplayer.log.file.directory import Directory
from logplayer.log.file.log import FileLog
from logplayer.log.open import open_log
from logplayer.log.verify import verify_log
from logplayer.testing.conformance.log_check import entry
from logplayer.testing.conformance.log_harness import LogChild, ServerProcess
from tests.log.backup_support import PATIENCE, everything, fill, filled, grown, opened, producing, run


async def test_a_served_log_is_backed_up_while_producers_append(tmp_path: Path) -> None:
    """Real processes: what the backup holds is the log up to one index, and all that was acknowledged before."""
    server = ServerProcess(f"file://{tmp_path}/log")
    await server.start()
    log = await LogClient.open(server.where)
    try:
        async with producing(log) as acked:
            before = max(ack.index for ack in acked)
            out, _ = await run("backup", "--log", f"file://{tmp_path}/log", "--to", f"{tmp_path}/backup", "--json")
            await grown(acked, len(acked) + 20)
        made = json.loads(out)
        assert before <= made["last"] < max(ack.index for ack in acked)
        out, _ = await run("restore", f"{tmp_path}/backup", "--to", f"file://{tmp_path}/again", "--json")
        assert {key: json.loads(out)[key] for key in ("log_id", "last", "chain")} == {
            key: made[key] for key in ("log_id", "last", "chain")
        }
        live = await everything(log)
        async with opened(tmp_path / "again") as again:
            assert await everything(again) == live[: made["last"]]
            ack = acked[len(acked) // 4]
            assert await again.append([entry(ack.producer, ack.sequence)]) == [ack.index]
    finally:
        await log.close()
        await server.stop()


async def test_a_log_that_starts_new_segments_meanwhile(tmp_path: Path) -> None:
    (await FileLog.open(tmp_path / "log")).directory.unlock()
    child = await LogChild.start(f"file://{tmp_path}/log", "--segment-bytes", "15000")
    try:
        made = []
        for nth in range(4):
            await child.read_acks(100)
            made.append(await backup_log(tmp_path / "log", tmp_path / f"b{nth}"))
    finally:
        await child.kill()
    assert len(Directory(tmp_path / "b3").segments()) > 3
    async with opened(tmp_path / "log") as log:
        live = await everything(log)
    for nth, one in enumerate(made):
        await restore_log(tmp_path / f"b{nth}", tmp_path / f"log{nth}")
        async with opened(tmp_path / f"log{nth}") as log:
            assert await everything(log) == live[: one.last]


async def test_a_log_that_is_trimmed_meanwhile(tmp_path: Path) -> None:
    """Every backup has its trim point, and knows the sequences of what was trimmed before it, and no others."""
    indexes: dict[tuple[str, int], int] = {}
    async with opened(tmp_path / "log") as log, producing(log) as acked:

        async def trim() -> None:
            while True:
                await log.trim(max(1, (await log.info()).last - 150))
                await asyncio.sleep(0)

        trims = asyncio.create_task(trim())
        for nth in range(6):
            await grown(acked, len(acked) + 200)
            await backup_log(tmp_path / "log", tmp_path / f"b{nth}")
        trims.cancel()
        with suppress(asyncio.CancelledError):
            await trims
        indexes |= {(ack.producer, ack.sequence): ack.index for ack in acked}
    for nth in range(6):
        made = await restore_log(tmp_path / f"b{nth}", tmp_path / f"log{nth}")
        assert made.first > 1
        async with opened(tmp_path / f"log{nth}") as log:
            assert (await verify_log(log)).faults == []
            newest = {producer: (await log.newest(producer)).sequence for producer in ("p0", "p1", "p2")}
            for producer, last in newest.items():
                for sequence in {1, last // 2, last}:
                    assert await log.append([entry(producer, sequence)]) == [indexes[producer, sequence]]
                await fill(log, producer, last + 1, last + 1)


async def test_a_segment_that_a_trim_removes_under_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy begins again: with the second segment missing it would have a hole."""
    copy, removed = copying._copy_database, list[int]()
    async with opened(tmp_path / "log") as log:
        await fill(log, "p", 1, 400)
        second = log.directory.segments()[1]
        loop = asyncio.get_running_loop()

        def copy_after_trim(db: sqlite3.Connection, to: Path) -> None:
            copy(db, to)
            if not removed:
                removed.append(asyncio.run_coroutine_threadsafe(log.trim(second + 200), loop).result(PATIENCE))

        monkeypatch.setattr(copying, "_copy_database", copy_after_trim)
        made = await backup_log(tmp_path / "log", tmp_path / "backup")
        live = await everything(log)
    assert (made.first, made.last) == (second + 201, 400)
    assert Directory(tmp_path / "backup").segments()[0] > second
    await restore_log(tmp_path / "backup", tmp_path / "again")
    async with opened(tmp_path / "again") as again:
        assert await everything(again) == live
        assert await again.append([entry("p", 5)]) == [5]


async def test_a_history_that_grows_under_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy knows no sequence of the time after it: the restored log gives these to other indexes."""
    copy = copying._copy_history
    async with opened(tmp_path / "log") as log:
        await fill(log, "p", 1, 200)
        loop = asyncio.get_running_loop()

        async def go_on() -> None:
            await fill(log, "p", 201, 400)
            await log.trim(400)

        def copy_later(*arguments: Any) -> None:
            asyncio.run_coroutine_threadsafe(go_on(), loop).result(PATIENCE)
            copy(*arguments)

        monkeypatch.setattr(copying, "_copy_history", copy_later)
        await backup_log(tmp_path / "log", tmp_path / "backup")
    with closing(sqlite3.connect(tmp_path / "backup" / "history.db")) as db:
        assert db.execute("SELECT count(*) FROM spans").fetchone() == (0,)
    await restore_log(tmp_path / "backup", tmp_path / "again")
    async with opened(tmp_path / "again") as log:
        await fill(log, "q", 1, 7)
        await fill(log, "p", 201, 400)
        await log.trim(407)
        for sequence in range(1, 401, 13):
            assert await log.append([entry("p", sequence)]) == [sequence + (7 if sequence > 200 else 0)]


async def test_an_empty_log(tmp_path: Path) -> None:
    async with opened(tmp_path / "log"):
        pass
    await backup_log(tmp_path / "log", tmp_path / "backup")
    await restore_log(tmp_path / "backup", tmp_path / "again")
    async with opened(tmp_path / "again") as log:
        assert await log.append([entry("p", 1)]) == [1]


async def test_only_its_owner_can_read_a_backup_and_a_restored_log(tmp_path: Path) -> None:
    await filled(tmp_path / "log")
    await backup_log(tmp_path / "log", tmp_path / "backup")
    await restore_log(tmp_path / "backup", tmp_path / "again")
    for place in (tmp_path / "backup", tmp_path / "again"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}
    assert sorted(os.listdir(tmp_path)) == ["again", "backup", "log"]


async def test_places_that_hold_something(tmp_path: Path) -> None:
    """Exit code 2, one line, and what is there stays as it is."""
    await filled(tmp_path / "log")
    await backup_log(tmp_path / "log", tmp_path / "backup")
    await filled(tmp_path / "used", 3)
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thing").write_text("")
    for place, says in {
        "used": "holds a log",
        "backup": "holds a backup",
        "file": "is a file",
        "full": "holds 'thing'",
        "no/where": "is not a directory",
    }.items():
        with pytest.raises(LogFormatError, match=says):
            await backup_log(tmp_path / "log", tmp_path / place)
        with pytest.raises(LogFormatError, match=says):
            await restore_log(tmp_path / "backup", tmp_path / place)
    for words in (
        ("backup", "--log", f"file://{tmp_path}/log", "--to", f"{tmp_path}/backup"),
        ("restore", f"{tmp_path}/backup", "--to", f"file://{tmp_path}/used"),
    ):
        _, errors = await run(*words, code=2)
        assert errors.count("\n") == 1
    async with opened(tmp_path / "used") as log:
        assert (await log.info()).last == 3
    (tmp_path / "empty").mkdir()
    await restore_log(tmp_path / "backup", tmp_path / "empty")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("backup", "--log", "grpc://127.0.0.1:7100", "--to", "b"), "file:// address of its log"),
        (("backup", "--log", "nats://127.0.0.1:4222/shop", "--to", "b"), "nats stream backup"),
        (("backup", "--log", "etcd://127.0.0.1:2379/shop", "--to", "b"), "etcdctl snapshot save"),
        (("backup", "--log", "kafka://127.0.0.1:9092/shop", "--to", "b"), "disks of stopped brokers"),
        (("restore", "b", "--to", "grpc://127.0.0.1:7100"), "file:// address"),
        (("backup", "--log", "file://{0}/none", "--to", "{0}/b"), "there is no log at"),
        (("restore", "{0}/log", "--to", "file://{0}/again"), f"it has no {MANIFEST}"),
        (("restore", "{0}/none", "--to", "file://{0}/again"), f"it has no {MANIFEST}"),
    ],
)
def test_what_is_not_a_log_or_not_a_backup(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    (tmp_path / "log").mkdir()
    done = CliRunner().invoke(log_group.log, [word.format(tmp_path) for word in words])
    assert isinstance(done.exception, UserError)
    assert says in str(done.exception)


CHILD = """
import asyncio, sys
from logplayer import crashpoint
from logplayer.log.file.backup import restore_log
crashpoint.armed = "copy-durable"
asyncio.run(restore_log(*sys.argv[1:]))
"""


async def test_a_restore_that_is_killed_leaves_no_log(tmp_path: Path) -> None:
    await filled(tmp_path / "log")
    await backup_log(tmp_path / "log", tmp_path / "backup")
    again = str(tmp_path / "again")
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, str(tmp_path / "backup"), again)
    assert await asyncio.wait_for(process.wait(), PATIENCE) == -9
    assert "again" not in os.listdir(tmp_path)
    await restore_log(tmp_path / "backup", again)
    async with opened(tmp_path / "again") as log, opened(tmp_path / "log") as other:
        assert await everything(log) == await everything(other)


async def test_a_backup_can_be_restored_from_where_nothing_can_be_written(tmp_path: Path) -> None:
    """The backup is only read: byte by byte it is the same afterwards."""
    await filled(tmp_path / "log")
    await backup_log(tmp_path / "log", tmp_path / "backup")
    before = {path.name: path.read_bytes() for path in (tmp_path / "backup").iterdir()}
    await restore_log(tmp_path / "backup", tmp_path / "again")
    assert {path.name: path.read_bytes() for path in (tmp_path / "backup").iterdir()} == before
    log = await open_log(f"file://{tmp_path}/again", readonly=True)
    assert (await log.info()).last == 200
    await log.close()
    with closing(sqlite3.connect(tmp_path / "again" / "00000000000000000001.seg")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)

"""A table changes, and the stream sends again what was before: the slot is at the last mark, not later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from logplayer.capture import appender
from logplayer.capture.postgres import capture_postgres
from logplayer.capture.settings import CaptureSettings, CaptureStopped, Choices
from logplayer.errors import UserError
from logplayer.log.open import open_log
from logplayer.log.protocol import Log
from logplayer.wire.rows import decode_row_changes
from tests.capture.capture_support import Source, capture, entries, fold
from tests.capture.test_capture import forget

DDL = Choices("ddl", ddl_targets=("a",))


@asynccontextmanager
async def capturing(source: Source, directory: Path, choices: Choices) -> AsyncIterator[tuple[asyncio.Task[int], Log]]:
    """A capture in this process that marks nothing, and ends as by SIGKILL: nothing is drained."""
    log = await open_log(f"file://{directory}/wal")
    reading = asyncio.Event()
    settings = CaptureSettings(source.url, source.slot, source.slot, ("t",), choices=choices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appender, "MARK_SECONDS", 1e6)
        task = asyncio.create_task(
            capture_postgres(log, settings, stop=asyncio.Event(), say=lambda what, facts: reading.set())
        )
        ended = asyncio.create_task(reading.wait())
        await asyncio.wait([task, ended], return_when=asyncio.FIRST_COMPLETED)
        try:
            yield task, log
        finally:
            task.cancel()
            ended.cancel()
            await asyncio.gather(task, ended, return_exceptions=True)
            await log.close()


async def has(log: Log, producer: str, count: int, task: asyncio.Task[int]) -> None:
    """Wait until the producer has so many entries more than a snapshot of no rows."""
    async with asyncio.timeout(60):
        while (await log.newest(producer)).sequence < 2 + count:
            assert not task.done(), task.exception()
            await asyncio.sleep(0.02)


def statements_and_keys(found: list[tuple[int, str, int, bytes]], source: Source) -> list[list[str | bytes]]:
    """What each entry of the capture has."""
    return [
        [change.sql or change.key for change in decode_row_changes(payload)]
        for _, name, _, payload in found
        if name == f"capture/{source.slot}"
    ]


CHANGE = ("INSERT INTO t DEFAULT VALUES", "ALTER TABLE t ADD COLUMN v int", "INSERT INTO t DEFAULT VALUES")
CHANGED = [[b"t/1"], ['ALTER TABLE "t" ADD COLUMN "v" integer'], [b"t/2"]]


@pytest.mark.parametrize("mode", [DDL, Choices()], ids=["ddl", "stop"])
@pytest.mark.parametrize("trimmed", [False, True], ids=["readable", "trimmed"])
async def test_a_kill_after_a_change_does_not_make_it_a_change_back(
    source: Source, tmp_path: Path, mode: Choices, trimmed: bool
) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    async with capturing(source, tmp_path, DDL) as (task, log):
        source.run(*CHANGE)
        await has(log, f"capture/{source.slot}", 3, task)
    before = await entries(tmp_path)
    if trimmed:
        await forget(tmp_path)
        mode = DDL  # Its entries are made again, to the byte.
    source.run("INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t", choices=mode)
    found = before + [entry for entry in await entries(tmp_path) if entry[0] > before[-1][0]]
    assert statements_and_keys(found, source)[2:] == [*CHANGED, [b"t/3"]]
    assert fold(found, ("t",)) == source.rows("t") | {"t": fold(found, ("t",))["t"]}
    source.run("ALTER TABLE t ADD COLUMN w int", "INSERT INTO t DEFAULT VALUES")
    with pytest.raises(UserError, match="table t of the source has changed: column w is new"):
        await capture(source, tmp_path, "t")


async def test_a_change_that_is_made_again_may_come_with_the_first_row(source: Source, tmp_path: Path) -> None:
    """Nothing that is sent again says what the table was before, but the log has the statement at this place."""
    source.run("CREATE TABLE t (id serial PRIMARY KEY, a int, b int)")
    await capture(source, tmp_path, "t")
    async with capturing(source, tmp_path, DDL) as (task, log):
        source.run("ALTER TABLE t ADD COLUMN v int, ADD COLUMN w int", "INSERT INTO t DEFAULT VALUES")
        await has(log, f"capture/{source.slot}", 3, task)
    before = await entries(tmp_path)
    await forget(tmp_path)
    source.run("INSERT INTO t DEFAULT VALUES")
    for _ in range(2):
        await capture(source, tmp_path, "t", choices=DDL)
    found = [entry for entry in await entries(tmp_path) if entry[0] > before[-1][0]]
    assert statements_and_keys(found, source) == [[b"t/2"]]


async def test_a_change_after_what_is_made_again_is_new(source: Source, tmp_path: Path) -> None:
    """The same stream has a change that the log has, where it cannot be read, and one that it does not have."""
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    async with capturing(source, tmp_path, DDL) as (task, log):
        source.run(*CHANGE)
        await has(log, f"capture/{source.slot}", 3, task)
    before = await entries(tmp_path)
    await forget(tmp_path)
    source.run("ALTER TABLE t ADD COLUMN w int", "INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t", choices=DDL)
    source.run("INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t")  # It is known now.
    found = [entry for entry in await entries(tmp_path) if entry[0] > before[-1][0]]
    assert statements_and_keys(found, source) == [['ALTER TABLE "t" ADD COLUMN "w" integer'], [b"t/3"], [b"t/4"]]


async def test_a_lost_connection_after_a_change_does_not_end_the_capture(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    async with capturing(source, tmp_path, DDL) as (task, log):
        source.run(*CHANGE)
        await has(log, f"capture/{source.slot}", 3, task)
        query = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s"
        source.db.execute(query, (source.slot,))
        source.run("INSERT INTO t DEFAULT VALUES")
        await has(log, f"capture/{source.slot}", 4, task)
    assert statements_and_keys(await entries(tmp_path), source)[2:] == [*CHANGED, [b"t/3"]]


async def test_what_was_accepted_once_is_not_asked_for_again(source: Source, tmp_path: Path) -> None:
    """A TRUNCATE and a change that the log has are sent again to a capture that would stop at them."""
    source.run("CREATE TABLE t (id serial PRIMARY KEY, v varchar(3))")
    await capture(source, tmp_path, "t")
    async with capturing(source, tmp_path, Choices("accept", "ddl", ddl_targets=("a",))) as (task, log):
        source.run("TRUNCATE t", "INSERT INTO t DEFAULT VALUES", "ALTER TABLE t ALTER v TYPE varchar(9)")
        source.run("INSERT INTO t DEFAULT VALUES")
        await has(log, f"capture/{source.slot}", 3, task)
    source.run("INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t")
    assert statements_and_keys(await entries(tmp_path), source)[2:] == [
        ['DELETE FROM "t"'],
        [b"t/1"],
        [b"t/2"],
        [b"t/3"],
    ]


# --- The record of the tables' columns, after it was trimmed ---


@pytest.mark.parametrize("trimmed", [False, True], ids=["readable", "trimmed"])
@pytest.mark.parametrize("mode", ["stop", "ddl"])
async def test_a_new_column_is_noticed(source: Source, tmp_path: Path, mode: str, trimmed: bool) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY, v varchar(3))", "INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t")
    if trimmed:
        await forget(tmp_path)
    before = len(await entries(tmp_path))
    source.run("ALTER TABLE t ADD COLUMN w int, ADD COLUMN x int", "INSERT INTO t DEFAULT VALUES")
    choices = Choices(mode, ddl_targets=("a",))
    if mode == "stop":
        for _ in range(2):
            with pytest.raises(CaptureStopped, match="column w is new, column x is new") as stopped:
                await capture(source, tmp_path, "t", choices=choices)
            assert stopped.value.reason == "schema_change"
        await capture(source, tmp_path, "t", choices=Choices("accept"))
    else:
        await capture(source, tmp_path, "t", choices=choices)
    added = [[f'ALTER TABLE "t" ADD COLUMN "{name}" integer'] for name in "wx"] if mode == "ddl" else []
    assert statements_and_keys((await entries(tmp_path))[before:], source) == [*added, [b"t/2"]]


@pytest.mark.parametrize("change", ["TYPE varchar(50)", "TYPE text"])
async def test_another_type_stops_although_the_record_was_trimmed(source: Source, tmp_path: Path, change: str) -> None:
    """What it was before is known to nobody, but that it was not this is."""
    source.run("CREATE TABLE t (id serial PRIMARY KEY, v varchar(3))")
    await capture(source, tmp_path, "t")
    await forget(tmp_path)
    source.run(f"ALTER TABLE t ALTER v {change}", "INSERT INTO t DEFAULT VALUES")
    for mode in ("stop", "ddl"):
        with pytest.raises(CaptureStopped, match=r"trimmed.*Compare.*--on-schema-change accept") as stopped:
            await capture(source, tmp_path, "t", choices=Choices(mode, ddl_targets=("a",)))
        assert stopped.value.reason == "schema_change"
    await capture(source, tmp_path, "t", choices=Choices("accept"))
    source.run("INSERT INTO t DEFAULT VALUES")
    await forget(tmp_path, 2)
    await capture(source, tmp_path, "t")  # Once is enough, also if that is trimmed.


@pytest.mark.parametrize("trimmed", [False, True], ids=["readable", "trimmed"])
async def test_a_table_that_is_new_is_refused(source: Source, tmp_path: Path, trimmed: bool) -> None:
    source.run(*[f"CREATE TABLE {name} (id serial PRIMARY KEY)" for name in "tuw"], "INSERT INTO u DEFAULT VALUES")
    await capture(source, tmp_path, "t", "w")
    if trimmed:
        await forget(tmp_path)
    source.run(f"ALTER PUBLICATION {source.slot} ADD TABLE u", "INSERT INTO u DEFAULT VALUES")
    with pytest.raises(UserError, match="--tables has u, which this capture did not begin with"):
        await capture(source, tmp_path, "t", "u", "w")


@pytest.mark.parametrize("trimmed", [False, True], ids=["readable", "trimmed"])
async def test_a_table_may_be_left_out(source: Source, tmp_path: Path, trimmed: bool) -> None:
    source.run(*[f"CREATE TABLE {name} (id serial PRIMARY KEY)" for name in "tu"])
    await capture(source, tmp_path, "t", "u")
    if trimmed:
        await forget(tmp_path)
    source.run("INSERT INTO u DEFAULT VALUES", "INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t")
    assert statements_and_keys(await entries(tmp_path), source)[-1:] == [[b"t/1"]]


@pytest.mark.parametrize("trimmed", [False, True], ids=["readable", "trimmed"])
async def test_a_table_that_was_left_out_is_new_afterwards(source: Source, tmp_path: Path, trimmed: bool) -> None:
    """What changed meanwhile is confirmed with the rest, so its rows would be missing."""
    source.run(*[f"CREATE TABLE {name} (id serial PRIMARY KEY)" for name in "tu"])
    await capture(source, tmp_path, "t", "u")
    source.run("INSERT INTO u DEFAULT VALUES")
    await capture(source, tmp_path, "t")
    source.run("INSERT INTO u DEFAULT VALUES")
    await capture(source, tmp_path, "t", "u")  # Nothing was confirmed since.
    assert statements_and_keys(await entries(tmp_path), source)[-2:] == [[b"u/1"], [b"u/2"]]
    source.run("INSERT INTO u DEFAULT VALUES", "INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t")
    if trimmed:
        await forget(tmp_path)
    with pytest.raises(UserError, match="--tables has u, which this capture did not begin with"):
        await capture(source, tmp_path, "t", "u")

"""The publication has to send every change of every captured table, all the time: what it lacked is lost in silence."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from logplayer.capture import postgres, publication, snapshot
from logplayer.capture.resume import describe_tables
from logplayer.capture.settings import CaptureStopped, Choices
from logplayer.errors import UserError
from logplayer.wire.entries import decode_headers
from logplayer.wire.rows import decode_row_changes
from tests.capture.capture_support import Source, capture, entries
from tests.capture.test_capture import forget, same
from tests.capture.test_schema_replay import capturing, has

MAKE = "CREATE TABLE t (id serial PRIMARY KEY)"
INSERT = "INSERT INTO t DEFAULT VALUES"
RENAME = ["ALTER TABLE t RENAME TO t_old", "INSERT INTO t_old DEFAULT VALUES"]
AWAY = ["CREATE SCHEMA archive", "ALTER TABLE t SET SCHEMA archive", "INSERT INTO archive.t DEFAULT VALUES"]
SWAP = ["ALTER TABLE t RENAME TO t_old", "CREATE TABLE t (id serial PRIMARY KEY)", INSERT]
DROP = ["DROP TABLE t", "CREATE TABLE t (id serial PRIMARY KEY)", INSERT]
LEAVE = ["ALTER PUBLICATION {slot} DROP TABLE t", INSERT]
ADD = "ALTER PUBLICATION {slot} ADD TABLE t"
KINDS = "ALTER PUBLICATION {slot} SET (publish = 'insert')"


def run(source: Source, *statements: str) -> None:
    source.run(*[statement.format(slot=source.slot) for statement in statements])


async def keys(directory: Path, source: Source) -> list[bytes]:
    return [
        change.key
        for _, name, _, payload in await entries(directory)
        if name == f"capture/{source.slot}"
        for change in decode_row_changes(payload)
    ]


@pytest.mark.parametrize(
    ("statements", "reason", "said"),
    [
        (RENAME, "schema_change", r"table t of the source is called public\.t_old now"),
        (AWAY, "schema_change", r"table t of the source is called archive\.t now"),
        (SWAP, "schema_change", "table t of the source is another one now.*new --slot"),
        (DROP, "schema_change", "table t of the source is another one now.*new --slot"),
        (["DROP TABLE t"], "schema_change", r"table t of the source was dropped.*--tables.*new --slot"),
        (LEAVE, "publication", r"table t is no longer in publication.*new --slot"),
        ([KINDS], "publication", "leaves out a kind of change.*new --slot"),
        (["DROP PUBLICATION {slot}"], "publication", "publication .* is gone.*new --slot"),
    ],
    ids=["renamed", "moved", "swapped", "made again", "dropped", "left", "kinds", "publication dropped"],
)
async def test_a_running_capture_notices_that_changes_are_missing(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: list[str], reason: str, said: str
) -> None:
    monkeypatch.setattr(postgres, "LOOK_SECONDS", 0.0)
    source.run(MAKE, "CREATE TABLE other (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    source.run(INSERT)
    async with capturing(source, tmp_path, Choices()) as (task, log):
        await has(log, f"capture/{source.slot}", 1, task)
        with source.db.transaction():  # No look finds half of it.
            run(source, *statements)
        for count in (2, 3, 4):  # It looks before it reads the next one.
            source.run("SELECT pg_logical_emit_message(true, 'logplayer', '')")
            while not task.done():
                if (await log.newest(f"capture/{source.slot}")).sequence >= 2 + count:
                    break
                await asyncio.sleep(0.02)
        assert task.done(), "it goes on"
        with pytest.raises(CaptureStopped, match=said) as stopped:
            task.result()
    assert stopped.value.reason == reason
    assert await keys(tmp_path, source) == [b"t/1"]


@pytest.mark.parametrize("trimmed", [False, True], ids=["readable", "trimmed"])
@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ([*SWAP, ADD], "table t of the source is another one now.*new --slot"),
        ([*DROP, ADD], "table t of the source is another one now.*new --slot"),
        (LEAVE, "table t is no longer in publication.*new --slot"),
        ([*LEAVE, ADD], "table t .* publication .* left it.*new --slot"),
        ([KINDS], "leaves out a kind of change.*new --slot"),
        (["DROP PUBLICATION {slot}", INSERT], "publication .* is gone.*new --slot"),
        (
            ["DROP PUBLICATION {slot}", INSERT, "CREATE PUBLICATION {slot} FOR TABLE t"],
            "table t .* publication .* left it.*new --slot",
        ),
    ],
    ids=[
        "swapped",
        "made again",
        "left",
        "left and came back",
        "kinds",
        "publication dropped",
        "publication made again",
    ],
)
async def test_a_start_notices_that_changes_are_missing(
    source: Source, tmp_path: Path, statements: list[str], said: str, trimmed: bool
) -> None:
    source.run(MAKE)
    await capture(source, tmp_path, "t")
    if trimmed:
        await forget(tmp_path)
        said = f"{said}|what they were was trimmed.*new --slot"
    run(source, *statements)
    for _ in range(2):
        with pytest.raises(CaptureStopped, match=said):
            await capture(source, tmp_path, "t")
    assert await keys(tmp_path, source) == []


async def test_a_publication_that_is_gone_at_a_place_of_the_stream_stops(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL says so by itself, before anything looks."""
    monkeypatch.setattr(postgres, "LOOK_SECONDS", 1e6)
    source.run(MAKE)
    await capture(source, tmp_path, "t")
    async with capturing(source, tmp_path, Choices()) as (task, _):
        run(source, "DROP PUBLICATION {slot}", INSERT)
        with pytest.raises(CaptureStopped, match="the publication does not exist at the place"):
            await asyncio.wait_for(task, 120)


async def test_a_table_that_has_its_name_back_goes_on_without_a_gap(source: Source, tmp_path: Path) -> None:
    source.run(MAKE)
    await capture(source, tmp_path, "t")
    run(source, INSERT, *RENAME)
    with pytest.raises(UserError, match=r"has no table public\.t: it was dropped or renamed"):
        await capture(source, tmp_path, "t")
    source.run("ALTER TABLE t_old RENAME TO t", INSERT)
    with pytest.raises(CaptureStopped, match=r"called public\.t_old now.*--on-schema-change accept"):
        await capture(source, tmp_path, "t")
    await capture(source, tmp_path, "t", choices=Choices("accept"))
    source.run(INSERT)
    await capture(source, tmp_path, "t")
    same(source, await entries(tmp_path), "t")
    assert await keys(tmp_path, source) == [b"t/1", b"t/2", b"t/3", b"t/4"]


@pytest.mark.parametrize("publication", ["FOR ALL TABLES", "FOR TABLES IN SCHEMA public"])
async def test_a_publication_of_all_tables_may_be_given(source: Source, tmp_path: Path, publication: str) -> None:
    if "SCHEMA" in publication and source.db.info.server_version < 150000:
        pytest.skip("PostgreSQL 14 has no such publications")
    source.run(MAKE, f"CREATE PUBLICATION {source.slot} {publication}")
    for _ in range(2):
        source.run(INSERT)
        await capture(source, tmp_path, "t")
    same(source, await entries(tmp_path), "t")
    source.run("DROP TABLE t", MAKE, INSERT)  # It is in the publication at once.
    with pytest.raises(CaptureStopped, match="is another one now"):
        await capture(source, tmp_path, "t")


async def test_a_record_without_oids_is_completed(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the captures of an earlier version have left it."""
    source.run(MAKE)
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "describe_tables", lambda known, published: describe_tables(known, {}))
        await capture(source, tmp_path, "t")
    for _ in range(2):
        source.run(INSERT)
        await capture(source, tmp_path, "t")
    records = [payload for _, name, _, payload in await entries(tmp_path) if name == f"capture/{source.slot}/schema"]
    assert ["pg-tables" in dict(decode_headers(record)) for record in records] == [False, True]
    run(source, *DROP, ADD)
    with pytest.raises(CaptureStopped, match="is another one now"):
        await capture(source, tmp_path, "t")


async def test_a_record_without_oids_that_was_trimmed_is_found(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.run(MAKE)
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "describe_tables", lambda known, published: describe_tables(known, {}))
        await capture(source, tmp_path, "t")
    await forget(tmp_path)
    source.run(INSERT)
    await capture(source, tmp_path, "t")
    await forget(tmp_path, 2)  # Of the new record, too.
    source.run(INSERT)
    await capture(source, tmp_path, "t")
    assert await keys(tmp_path, source) == [b"t/2"]


@pytest.mark.parametrize(
    ("what", "said"),
    [("t WHERE (id > 1)", "row filter"), ("t (id)", "column list"), ("t (id, v)", "column list")],
    ids=["rows", "key", "columns"],
)
async def test_a_publication_of_some_rows_or_columns_is_refused(
    source: Source, tmp_path: Path, what: str, said: str
) -> None:
    """The snapshot has all of them, the stream would not."""
    if source.db.info.server_version < 150000:
        pytest.skip("PostgreSQL 14 has no such publications")
    source.run("CREATE TABLE t (id serial PRIMARY KEY, v int)", f"CREATE PUBLICATION {source.slot} FOR TABLE {what}")
    with pytest.raises(UserError, match=rf'has a {said} for table t.* DROP TABLE "public"."t".* ADD TABLE'):
        await capture(source, tmp_path, "t")
    assert source.confirmed() == ""
    assert await entries(tmp_path) == []
    run(source, "ALTER PUBLICATION {slot} DROP TABLE t", "ALTER PUBLICATION {slot} ADD TABLE t")
    await capture(source, tmp_path, "t")
    run(source, f"ALTER PUBLICATION {{slot}} SET TABLE {what}")
    with pytest.raises(CaptureStopped, match="new --slot"):
        await capture(source, tmp_path, "t")


async def test_the_query_is_that_of_the_server(source: Source) -> None:
    """What PostgreSQL 14 is asked is valid in every later version, too."""
    source.run(MAKE, f"CREATE PUBLICATION {source.slot} FOR TABLE t")
    async with await psycopg.AsyncConnection.connect(source.url) as db:
        [old] = await (await db.execute(publication.query(140000), (source.slot,))).fetchall()
        [new] = await (await db.execute(publication.query(db.info.server_version), (source.slot,))).fetchall()
    assert old == new

"""Capture from a real PostgreSQL: what it appends is the source, in commit order, each transaction once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from logplayer.capture import appender, postgres, snapshot
from logplayer.capture.resume import describe_tables
from logplayer.capture.settings import Choices
from logplayer.errors import EntryTooLarge, LogFull, LogUnavailable, ProducerConflict, Unavailable, UserError
from logplayer.log.open import open_log
from logplayer.log.protocol import Log, NewEntry
from logplayer.wire.entries import decode_headers
from logplayer.wire.rows import decode_row_changes
from tests.capture.capture_support import Source, capture, child, end, entries, fold, sequences

ALL_TYPES = """
CREATE TYPE mood AS ENUM ('happy', 'sad');
CREATE DOMAIN cents AS int CHECK (value >= 0);
CREATE TABLE kinds (
  id bigint, part text, yes bool, small smallint, price numeric(12,4), real_ real, double_ double precision,
  fixed char(5), name_ name, data bytea, at timestamptz, local timestamp, day date, clock time, who uuid,
  doc json, docb jsonb, feeling mood, paid cents, numbers int[], words text[], moments timestamptz[],
  twice bigint GENERATED ALWAYS AS (id * 2) STORED, PRIMARY KEY (part, id));
"""
ROW = """
INSERT INTO kinds (id, part, yes, small, price, real_, double_, fixed, name_, data, at, local, day, clock, who, doc,
  docb, feeling, paid, numbers, words, moments)
SELECT i, 'p/{' || mod(i, 3), mod(i, 2) = 0, i, i / 7.0, i / 3.0, i / 9.0, 'ab', 'n' || i, decode(md5(i::text), 'hex'),
  timestamptz '2026-11-18 12:00:00.123456+01' + i * interval '1 day', timestamp '1999-12-31 23:59:59', '0001-01-01',
  '23:59:59.999999', md5(i::text)::uuid, '{"a": [1, null]}', '{"b": {"c": "é"}}', 'sad', i, ARRAY[i, NULL],
  ARRAY['a,b', 'NULL', '"', '', NULL], ARRAY[timestamptz '2000-01-01 00:00:00Z']
FROM generate_series(%s::int, %s::int) i
"""


def same(source: Source, found: list[tuple[int, str, int, bytes]], *tables: str) -> None:
    expected = source.rows(*tables)
    for rows in expected.values():
        for row in rows.values():
            row.pop("twice", None)  # Generated columns are not sent.
    assert fold(found, tables) == expected


async def test_every_type_arrives_by_snapshot_and_by_stream(source: Source, tmp_path: Path) -> None:
    source.run(ALL_TYPES)
    source.db.execute(ROW, (1, 20))
    _, said = await capture(source, tmp_path, "kinds")
    assert said[:2] == ["snapshot copied", "capturing"]
    source.db.execute(ROW, (21, 40))
    source.run(
        "UPDATE kinds SET price = NULL, part = 'moved/' || part WHERE id % 4 = 0", "DELETE FROM kinds WHERE id = 1"
    )
    await capture(source, tmp_path, "kinds")
    same(source, await entries(tmp_path), "kinds")


async def test_one_transaction_is_one_entry_in_commit_order(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    await capture(source, tmp_path, "t")
    before = len(await entries(tmp_path))
    with psycopg.connect(source.url) as early, psycopg.connect(source.url) as late:
        early.execute("INSERT INTO t VALUES (1, 1)")
        late.execute("INSERT INTO t VALUES (2, 2), (3, 3)")
        late.commit()
        early.execute("UPDATE t SET v = 9 WHERE id = 2")
        early.commit()
        late.execute("INSERT INTO t VALUES (4, 4)")
        late.rollback()
    await capture(source, tmp_path, "t")
    new = [payload for _, producer, _, payload in (await entries(tmp_path))[before:] if producer.endswith(source.slot)]
    assert [[change.key for change in decode_row_changes(payload)] for payload in new] == [
        [b"t/2", b"t/3"],
        [b"t/1", b"t/2"],
    ]
    lsns = [dict(decode_headers(payload))["pg-lsn"].decode() for payload in new]
    assert source.confirmed() == lsns[-1]
    assert lsns[0] < lsns[1]


async def test_a_large_value_that_did_not_change_is_a_patch(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY, v int, big text)", "ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    source.run("INSERT INTO t VALUES (1, 1, repeat('x', 10000))")
    await capture(source, tmp_path, "t")
    source.run("UPDATE t SET v = 2", "UPDATE t SET id = 5")
    await capture(source, tmp_path, "t")
    found = await entries(tmp_path)
    assert [change.op.name for *_, payload in found for change in decode_row_changes(payload)] == [
        "PUT",
        "PATCH",
        "PATCH",
    ]
    assert all(len(payload) < 500 for *_, payload in found[5:])
    same(source, found, "t")


async def test_it_goes_on_where_the_log_ends(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    for _ in range(4):
        await capture(source, tmp_path, "t")
        source.run("INSERT INTO t DEFAULT VALUES", "INSERT INTO t DEFAULT VALUES")
    found = await entries(tmp_path)
    numbers = sequences(found, f"capture/{source.slot}")
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) == 2 + 3 * 2  # begin, done, and each insert once; the table was empty at first.


async def test_it_goes_on_although_its_entries_were_trimmed(source: Source, tmp_path: Path) -> None:
    """The slot is set back, as a crash of PostgreSQL may do, and nothing that the log had can be read any more."""
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    source.run("INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t")
    process = child(source, tmp_path, "t", "capture-group-durable:3")  # The claim is no group of the appender's.
    source.run(*["INSERT INTO t DEFAULT VALUES"] * 30)
    while process.poll() is None:
        source.run("INSERT INTO t DEFAULT VALUES")
        await asyncio.sleep(0.02)
    confirmed = source.confirmed()
    before = await entries(tmp_path)
    newest = [payload for _, producer, _, payload in before if producer == f"capture/{source.slot}"][-1]
    assert dict(decode_headers(newest))["pg-lsn"].decode() != confirmed  # It will send again what the log has.
    await forget(tmp_path)
    source.run("INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t")
    after = await entries(tmp_path)
    assert not {index for index, *_ in before} & {index for index, *_ in after} - {after[0][0]}
    same(source, before + [entry for entry in after if entry[0] > before[-1][0]], "t")
    new = [entry for entry in after if entry[1] == f"capture/{source.slot}"]
    assert [number for _, _, number, _ in new] == [
        sequences(before, new[0][1])[-1] + nth for nth in range(1, len(new) + 1)
    ]
    puts = [change.key for *_, payload in [*before, *new] for change in decode_row_changes(payload)]
    assert len(puts) == len(set(puts))  # Each row was inserted once, and so it is in the log.


async def forget(directory: Path, time: int = 1) -> None:
    """Trim everything; another producer's entry is left."""
    log = await open_log(f"file://{directory}/wal")
    [index] = await log.append([NewEntry("other", time, b"\x0a\x03\x0a\x01k")])
    await log.trim(index - 1)
    assert (await log.info()).first == index
    await log.close()


@pytest.mark.parametrize("trimmed", [False, True])
async def test_a_slot_that_somebody_moved_is_refused(source: Source, tmp_path: Path, trimmed: bool) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    if trimmed:
        await forget(tmp_path)
    source.run("INSERT INTO t DEFAULT VALUES")
    source.db.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", (source.slot,))
    with pytest.raises(UserError, match=r"the slot begins at .* rows may be missing.*new --slot"):
        await capture(source, tmp_path, "t")


async def test_a_dropped_slot_is_refused(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    source.db.execute("SELECT pg_drop_replication_slot(%s)", (source.slot,))
    with pytest.raises(UserError, match=r"is gone from the source.*was promoted.*new --slot"):
        await capture(source, tmp_path, "t")


async def test_a_slot_that_this_log_does_not_know_is_left_alone(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    (tmp_path / "other").mkdir()
    await capture(source, tmp_path, "t")
    with pytest.raises(UserError, match="exists, but the log has nothing of it"):
        await capture(source, tmp_path / "other", "t")
    assert source.confirmed()


async def test_a_second_capture_of_a_slot_is_refused(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    process = child(source, tmp_path, "t")
    try:
        wait_for_line(process, "capturing")
        (tmp_path / "second").mkdir()
        with pytest.raises(Unavailable, match="is active: another process captures with it"):
            await capture(source, tmp_path / "second", "t")
    finally:
        assert "stopped" in end(process, signal.SIGTERM)
    assert process.returncode == 0


def wait_for_line(process: object, word: str) -> None:
    for line in process.stdout:  # type: ignore[attr-defined]
        if line.startswith(word):
            return
    raise AssertionError(f"the capture ended before it said {word!r}")


async def test_what_an_earlier_process_still_sends_is_refused(source: Source, tmp_path: Path) -> None:
    """Also its marks, which would otherwise stand after entries that they do not mean."""
    log = await open_log(f"file://{tmp_path}/wal")
    first = appender.Appender(log, "capture/s", 0, lambda lsn: None)
    await first.open()
    second = appender.Appender(log, "capture/s", 0, lambda lsn: None)
    await second.open()
    first.submit(appender.Item([b"\x0a\x03\x0a\x01k"], 1))
    with pytest.raises(ProducerConflict):
        async with asyncio.timeout(60):
            await asyncio.gather(first.run(), first.drain())
    await log.close()


class FullAtFirst:
    """A log whose disk is full, and then has room."""

    def __init__(self, log: Log, refusals: int) -> None:
        self._log = log
        self.refusals = refusals

    async def append(self, group: Sequence[NewEntry]) -> list[int]:
        if self.refusals:
            self.refusals -= 1
            raise LogFull("no room") if self.refusals % 2 else LogUnavailable("away")
        return await self._log.append(group)


async def test_a_full_log_is_waited_for_and_nothing_is_confirmed_before(tmp_path: Path) -> None:
    log = await open_log(f"file://{tmp_path}/wal")
    confirmed: list[int] = []
    made = appender.Appender(log, "capture/s", 0, confirmed.append)
    await made.open()
    full = FullAtFirst(log, 5)
    made._log = full  # type: ignore[assignment]
    running = asyncio.create_task(made.run())
    for lsn in (7, 8, 9):
        made.submit(appender.Item([b"\x0a\x03\x0a\x01k"], lsn))
    async with asyncio.timeout(60):
        while full.refusals:
            assert confirmed == []
            await asyncio.sleep(0.01)
        await made.drain()
    running.cancel()
    await log.close()
    assert confirmed == [9]
    assert sequences(await entries(tmp_path), "capture/s") == [1, 2, 3]


async def test_a_lost_connection_is_opened_again(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    process = child(source, tmp_path, "t")
    wait_for_line(process, "capturing")
    query = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s"
    for _ in range(2):
        source.run("INSERT INTO t DEFAULT VALUES")
        source.db.execute(query, (source.slot,))
        wait_for_line(process, "capturing again")
    source.run("INSERT INTO t DEFAULT VALUES")
    end(process, signal.SIGTERM)
    await capture(source, tmp_path, "t")
    found = await entries(tmp_path)
    same(source, found, "t")
    assert len(sequences(found, f"capture/{source.slot}")) == 2 + 3


async def test_a_slot_that_is_dropped_meanwhile_ends_it(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)")
    process = child(source, tmp_path, "t")
    wait_for_line(process, "capturing")
    source.db.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
    for _ in range(600):
        try:
            source.db.execute("SELECT pg_drop_replication_slot(%s)", (source.slot,))
            break
        except psycopg.errors.ObjectInUse:
            source.db.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
    said = process.communicate(timeout=120)[0]
    assert "is gone from the source" in said
    assert process.returncode == 2


async def test_without_a_snapshot_it_begins_at_the_slot(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)", "INSERT INTO t DEFAULT VALUES")
    source.db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (source.slot,))
    source.run(f"CREATE PUBLICATION {source.slot} FOR TABLE t", "INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t", snapshot=False)
    changed = [change.key for *_, payload in await entries(tmp_path) for change in decode_row_changes(payload)]
    assert changed == [b"t/2"]


@pytest.mark.parametrize(
    ("statements", "tables", "said"),
    [
        ([], "nothing", "has no table public.nothing"),
        (["CREATE TABLE t (id int)"], "t", "has no primary key.*ADD COLUMN id"),
        (["CREATE TABLE t (id int PRIMARY KEY)", "ALTER TABLE t REPLICA IDENTITY NOTHING"], "t", "IDENTITY DEFAULT"),
        (["CREATE UNLOGGED TABLE t (id int PRIMARY KEY)"], "t", "is an unlogged or temporary table.*leave it out"),
        (["CREATE VIEW v AS SELECT 1 AS id"], "v", "is not an ordinary table, and"),
        (
            ["CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)"],
            "p",
            "is partitioned.*give these",
        ),
        (
            [
                "CREATE TABLE t (id int PRIMARY KEY)",
                "CREATE TABLE u (id int PRIMARY KEY)",
                "CREATE PUBLICATION p FOR TABLE u",
            ],
            "t",
            'ALTER PUBLICATION p ADD TABLE "public"."t"',
        ),
        (
            ["CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert')"],
            "t",
            "leaves out a kind of change",
        ),
    ],
)
async def test_a_source_that_cannot_be_captured_is_refused(
    source: Source, tmp_path: Path, statements: list[str], tables: str, said: str
) -> None:
    source.run(*statements)
    if "CREATE PUBLICATION" in " ".join(statements):
        source.run(f"ALTER PUBLICATION p RENAME TO {source.slot}")
        said = said.replace("PUBLICATION p", f"PUBLICATION {source.slot}")
    with pytest.raises(UserError, match=said):
        await capture(source, tmp_path, tables)
    assert source.confirmed() == ""
    assert await entries(tmp_path) == []


async def test_a_partition_is_captured_by_its_name(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE p (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
    source.run("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)", "INSERT INTO p VALUES (1, 1), (2, 2)")
    await capture(source, tmp_path, "p1")
    source.run("INSERT INTO p VALUES (3, 3)", "UPDATE p SET v = 4 WHERE id = 1", "DELETE FROM p WHERE id = 2")
    await capture(source, tmp_path, "p1")
    same(source, await entries(tmp_path), "p1")


async def test_a_statement_enters_the_log_with_the_first_part_of_its_transaction(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the newest entry it would say that the log has the whole transaction."""
    monkeypatch.setattr(postgres, "ITEM_BYTES_MAX", 150_000)  # Too little for one group.
    items: list[appender.Item] = []
    submit = appender.Appender.submit

    def noted(self: appender.Appender, item: appender.Item) -> None:
        items.append(item)
        submit(self, item)

    monkeypatch.setattr(appender.Appender, "submit", noted)
    source.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    await capture(source, tmp_path, "t")
    source.run("ALTER TABLE t ADD w int", "INSERT INTO t SELECT i, repeat('x', 10000) FROM generate_series(1, 50) i")
    del items[:]
    choices = Choices("ddl", ddl_targets=("a",), entry_bytes=100_000, split_large=True)
    await capture(source, tmp_path, "t", choices=choices)
    found = [[dict(decode_headers(payload)).get("pg-part") for payload in item.payloads] for item in items]
    assert found[:2] == [[None, b"1/6"], [b"2/6"]]
    same(source, await entries(tmp_path), "t")


async def test_a_new_column_stops_is_accepted_or_becomes_a_statement(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)", "INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t")
    source.run("INSERT INTO t DEFAULT VALUES", "ALTER TABLE t ADD COLUMN v numeric(6,2) DEFAULT 1.5")
    source.run("INSERT INTO t DEFAULT VALUES")
    for _ in range(2):  # Also if it is started again.
        with pytest.raises(UserError, match=r"column v is new.*--on-schema-change accept"):
            await capture(source, tmp_path, "t")
    found = await entries(tmp_path)
    assert fold(found, ("t",))["t"].keys() == {(1,), (2,)}
    await capture(source, tmp_path, "t", choices=Choices("ddl", ddl_targets=("a", "b")))
    new = [
        payload for _, name, _, payload in (await entries(tmp_path))[len(found) :] if name == f"capture/{source.slot}"
    ]
    assert [(change.sql, change.target) for change in decode_row_changes(new[0])] == [
        ('ALTER TABLE "t" ADD COLUMN "v" numeric(6,2) DEFAULT \'1.50\'', target) for target in ("a", "b")
    ]
    assert [change.key for change in decode_row_changes(new[1])] == [b"t/3"]
    source.run("ALTER TABLE t ADD COLUMN w text", "INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t", choices=Choices("accept"))
    await capture(source, tmp_path, "t")  # Once is enough.
    assert fold(await entries(tmp_path), ("t",))["t"][4,].keys() == {"id", "v", "w"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER COLUMN v TYPE varchar(50)", r"column v has another length: varchar\(3\) is varchar\(50\) now"),
        ("ALTER COLUMN v TYPE text", r"column v has another type: varchar\(3\) is text now"),
        ("ALTER COLUMN n TYPE numeric(8,4)", r"column n has another length: numeric\(6,2\) is numeric\(8,4\) now"),
    ],
)
async def test_a_column_of_another_length_is_a_change(source: Source, tmp_path: Path, change: str, said: str) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY, v varchar(3), n numeric(6,2))")
    await capture(source, tmp_path, "t")
    source.run("INSERT INTO t DEFAULT VALUES", f"ALTER TABLE t {change}", "INSERT INTO t DEFAULT VALUES")
    for mode in ("stop", "ddl"):
        with pytest.raises(UserError, match=said):
            await capture(source, tmp_path, "t", choices=Choices(mode, ddl_targets=("a",)))
    await capture(source, tmp_path, "t", choices=Choices("accept"))
    source.run("INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t")
    same(source, await entries(tmp_path), "t")


async def test_a_description_without_lengths_is_completed(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the captures of an earlier version have left it: nothing has changed, and the next change is noticed."""
    source.run("CREATE TABLE t (id serial PRIMARY KEY, v varchar(3))")
    old = {"t": (("id", 23), ("v", 1043))}
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "describe_tables", lambda known, published: describe_tables(old, {}))  # type: ignore[arg-type]
        await capture(source, tmp_path, "t")
    source.run("INSERT INTO t DEFAULT VALUES")
    await capture(source, tmp_path, "t")
    source.run("ALTER TABLE t ALTER COLUMN v TYPE varchar(4)", "INSERT INTO t DEFAULT VALUES")
    with pytest.raises(UserError, match="another length"):
        await capture(source, tmp_path, "t")


async def test_a_table_that_was_not_there_at_first_is_refused(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id serial PRIMARY KEY)", "CREATE TABLE u (id serial PRIMARY KEY)")
    await capture(source, tmp_path, "t")
    source.run(f"ALTER PUBLICATION {source.slot} ADD TABLE u")
    with pytest.raises(UserError, match="--tables has u, which this capture did not begin with"):
        await capture(source, tmp_path, "t", "u")


async def test_a_truncate_can_become_statements_children_first(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY REFERENCES t)")
    await capture(source, tmp_path, "u", "t")
    source.run("TRUNCATE t, u")
    with pytest.raises(UserError, match="TRUNCATE"):
        await capture(source, tmp_path, "u", "t")
    await capture(source, tmp_path, "u", "t", choices=Choices(truncate="ddl", ddl_targets=("a",)))
    statements = [change.sql for *_, payload in await entries(tmp_path) for change in decode_row_changes(payload)]
    assert statements == ['DELETE FROM "u"', 'DELETE FROM "t"']


async def test_a_large_transaction_stops_and_can_be_cut(source: Source, tmp_path: Path) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    await capture(source, tmp_path, "t")
    source.run("INSERT INTO t VALUES (0, 'before')")
    source.run(
        "INSERT INTO t SELECT i, repeat('x', 10000) FROM generate_series(1, 50) i", "INSERT INTO t VALUES (99, '')"
    )
    with pytest.raises(EntryTooLarge, match="--split-large"):
        await capture(source, tmp_path, "t", choices=Choices(entry_bytes=100_000))
    assert fold(await entries(tmp_path), ("t",))["t"].keys() == {(0,)}
    await capture(source, tmp_path, "t", choices=Choices(entry_bytes=100_000, split_large=True))
    same(source, await entries(tmp_path), "t")


async def test_the_rest_of_a_cut_transaction_follows_after_a_crash(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second slot sees the same transactions; its log ends in the middle of the one that was cut."""
    monkeypatch.setattr(postgres, "ITEM_BYTES_MAX", 150_000)  # Too little for one group.
    cut = Choices(entry_bytes=100_000, split_large=True)
    source.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    await capture(source, tmp_path, "t")
    twin = f"{source.slot}_twin"
    source.run(f"CREATE PUBLICATION {twin} FOR TABLE t")
    source.db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (twin,))
    source.run(
        "INSERT INTO t SELECT i, repeat('x', 10000) FROM generate_series(1, 50) i", "INSERT INTO t VALUES (99, '')"
    )
    await capture(source, tmp_path, "t", choices=cut)
    whole = [entry for entry in await entries(tmp_path) if entry[1] == f"capture/{source.slot}"]
    at = [nth for nth, entry in enumerate(whole) if dict(decode_headers(entry[3])).get("pg-part") == b"3/6"]
    (tmp_path / "twin").mkdir()
    log = await open_log(f"file://{tmp_path}/twin/wal")
    await log.append([NewEntry(f"capture/{twin}", number, payload) for _, _, number, payload in whole[: at[0] + 1]])
    await log.close()
    source.slot = twin
    await capture(source, tmp_path / "twin", "t", choices=cut)
    found = await entries(tmp_path / "twin")
    assert [payload for _, name, _, payload in found if name == f"capture/{twin}"] == [entry[3] for entry in whole]
    same(source, found, "t")

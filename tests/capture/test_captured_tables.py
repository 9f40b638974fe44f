"""From a source to stores of tables: what a capture writes is what they take."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from logplayer.capture import snapshot
from logplayer.capture.settings import Choices
from logplayer.errors import UserError
from logplayer.log.open import open_log
from logplayer.log.protocol import NewEntry
from logplayer.wire.rows import Op, decode_row_changes
from tests.capture.capture_support import Source, capture, entries
from tests.capture.captured_copy import Copy
from tests.target.store_places import Place


@pytest.fixture(params=["sqlite-tables", "postgres-tables", "mysql-tables"])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copy]:
    kind = request.param
    url = "" if kind.startswith("sqlite") else request.getfixturevalue(f"{kind.removesuffix('-tables')}_url")
    made = Copy(Place(kind, "" if url else str(tmp_path / "store"), url))
    yield made
    if made.store is not None:
        made.store.close()


async def test_a_truncate_of_the_source_empties_the_tables_of_every_store(
    source: Source, tmp_path: Path, copy: Copy
) -> None:
    """Children first, constraints on, and tables of another schema under the name that their rows have."""
    one, two, schema = f"t_{copy.place.name}", f"u_{copy.place.name}", f"s_{copy.place.name}"
    source.run(
        f"CREATE TABLE {one} (id int PRIMARY KEY)",
        f"CREATE TABLE {two} (id int PRIMARY KEY, t int REFERENCES {one})",
        f"CREATE SCHEMA {schema}",
        f"CREATE TABLE {schema}.w (id int PRIMARY KEY)",
        f"INSERT INTO {one} VALUES (1), (2)",
        f"INSERT INTO {two} VALUES (5, 1)",
        f"INSERT INTO {schema}.w VALUES (7)",
    )
    other = f"`{schema}.w`" if copy.place.kind == "mysql-tables" else f'"{schema}.w"'
    more = []
    if copy.place.kind == "postgres-tables":
        more, other = [f"CREATE SCHEMA {schema}"], f"{schema}.w"
    copy.make(
        f"CREATE TABLE {one} (id int PRIMARY KEY)",
        f"CREATE TABLE {two} (id int PRIMARY KEY, t int, FOREIGN KEY (t) REFERENCES {one} (id))",
        *more,
        f"CREATE TABLE {other} (id int PRIMARY KEY)",
    )
    choices = Choices(truncate="ddl", ddl_targets=("elsewhere", copy.place.name))
    await capture(source, tmp_path, one, two, f"{schema}.w", choices=choices)
    await copy.play(tmp_path)
    assert copy.rows(f"SELECT id FROM {two}") == [(5,)]
    assert copy.rows(f"SELECT id FROM {other}") == [(7,)]
    source.run(f"TRUNCATE {one}, {two}, {schema}.w", f"INSERT INTO {one} VALUES (3)")
    await capture(source, tmp_path, one, two, f"{schema}.w", choices=choices)
    await copy.play(tmp_path)
    assert copy.rows(f"SELECT id FROM {one}") == [(3,)]
    assert copy.rows(f"SELECT id FROM {two}") == copy.rows(f"SELECT id FROM {other}") == []


CIRCLES = (
    "CREATE TABLE a_{x} (id int PRIMARY KEY, b int, CONSTRAINT ab_{x} FOREIGN KEY (b) REFERENCES b_{x} (id))",
    "CREATE TABLE b_{x} (id int PRIMARY KEY, a int NOT NULL, other int, v varchar(9),"
    " CONSTRAINT ba_{x} FOREIGN KEY (a) REFERENCES a_{x} (id),"
    " CONSTRAINT bb_{x} FOREIGN KEY (other) REFERENCES b_{x} (id))",
)
ROWS = (
    "INSERT INTO a_{x} SELECT i, NULL FROM generate_series(1, 90) i",
    "INSERT INTO b_{x} SELECT i, 91 - i, NULL, 'v' || i FROM generate_series(1, 90) i",
    "UPDATE b_{x} SET other = 91 - id WHERE id % 3 > 0",
    "UPDATE a_{x} SET b = id WHERE id % 2 = 0",
)


def make_circles(source: Source, copy: Copy) -> tuple[str, ...]:
    """Tables that refer to each other, and rows that refer to later ones; the copy has every constraint."""
    name = copy.place.name
    statements = [text.format(x=name) for text in CIRCLES]
    server = [statements[0].split(", CONSTRAINT")[0] + ")", statements[1]]
    server.append(f"ALTER TABLE a_{name} ADD CONSTRAINT ab_{name} FOREIGN KEY (b) REFERENCES b_{name} (id)")
    source.run(*server, *[text.format(x=name) for text in ROWS])
    copy.make(*(statements if copy.place.path else server))
    return f"a_{name}", f"b_{name}"


async def test_tables_and_rows_in_a_circle_arrive_with_every_constraint_on(
    source: Source, tmp_path: Path, copy: Copy
) -> None:
    one, two = make_circles(source, copy)
    await capture(source, tmp_path, two, one)
    await copy.play(tmp_path)
    for table in (one, two):
        query = f"SELECT * FROM {table} ORDER BY id"
        assert copy.rows(query) == source.db.execute(query.encode()).fetchall()
    source.run(f"UPDATE {two} SET other = id", f"DELETE FROM {one} WHERE id = 0")
    await capture(source, tmp_path, one, two)
    await copy.play(tmp_path)
    assert copy.rows(f"SELECT count(*) FROM {two} WHERE other = id") == [(90,)]


@pytest.mark.parametrize("patched", [False, True])
async def test_a_circle_that_was_interrupted_is_taken_back(
    source: Source, tmp_path: Path, copy: Copy, patched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while references are patched in: constraints hold at every entry of the way back, too."""
    monkeypatch.setattr(snapshot, "CHUNK_BYTES", 2000)
    one, two = make_circles(source, copy)
    await capture(source, tmp_path, one, two)
    whole = [entry for entry in await entries(tmp_path) if entry[1] == f"capture/{source.slot}"]
    patches = [nth for nth, entry in enumerate(whole) if Op.PATCH in ops_of(entry[3])]
    assert len(patches) > 1
    kept = whole[: patches[1] + 1 if patched else patches[0] - 2]
    (tmp_path / "cut").mkdir()
    log = await open_log(f"file://{tmp_path}/cut/wal")
    await log.append([NewEntry(name, number, payload) for _, name, number, payload in kept])
    await log.close()
    await idle(source)
    source.run(f"UPDATE {one} SET b = NULL", f"UPDATE {two} SET other = 1", f"DELETE FROM {two} WHERE id > 50")
    _, said = await capture(source, tmp_path / "cut", one, two)
    assert said[0] == "interrupted snapshot taken back"
    await copy.play(tmp_path / "cut")
    for table in (one, two):
        query = f"SELECT * FROM {table} ORDER BY id"
        assert copy.rows(query) == source.db.execute(query.encode()).fetchall()


def ops_of(payload: bytes) -> set[Op]:
    return {change.op for change in decode_row_changes(payload)}


async def idle(source: Source) -> None:
    """Wait until the server has noticed that nobody reads the slot."""
    query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
    while source.db.execute(query, (source.slot,)).fetchone() == (True,):  # noqa: ASYNC110 - It is another process.
        await asyncio.sleep(0.05)


async def test_a_circle_without_an_order_is_warned_of_before_the_slot_is_made(
    source: Source, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source.run(
        "CREATE TABLE parts (id int PRIMARY KEY, whole int NOT NULL REFERENCES parts)",
        "INSERT INTO parts VALUES (1, 1), (2, 1)",
        "CREATE TABLE checked (id int PRIMARY KEY, next int REFERENCES checked CHECK (next IS NOT NULL))",
        "CREATE TABLE pairs (id int PRIMARY KEY, a int, b int, UNIQUE (a, b), "
        "FOREIGN KEY (a, b) REFERENCES pairs (a, b) MATCH FULL)",
    )
    await capture(source, tmp_path, "parts", "checked", "pairs")
    assert "foreign key" not in caplog.text  # Each row refers to an earlier one, or to itself.
    source.slot += "_again"
    source.run("UPDATE parts SET whole = 2", "INSERT INTO checked VALUES (1, 2), (2, 2)")
    (tmp_path / "again").mkdir()
    await capture(source, tmp_path / "again", "parts", "checked", "pairs")
    assert "foreign key parts_whole_fkey" in caplog.text
    assert "foreign key checked_next_fkey" in caplog.text
    assert "drop it at the targets, and add it again" in caplog.text
    assert "pairs" not in caplog.text


async def test_an_interrupted_snapshot_that_was_trimmed_is_emptied_and_copied_again(
    source: Source, tmp_path: Path, copy: Copy
) -> None:
    """What all targets have is trimmed, also while a snapshot runs: then nobody knows which rows it has copied."""
    one, two = f"t_{copy.place.name}", f"u_{copy.place.name}"
    tables = [
        f"CREATE TABLE {one} (id int PRIMARY KEY)",
        f"CREATE TABLE {two} (id int PRIMARY KEY, t int, FOREIGN KEY (t) REFERENCES {one} (id))",
    ]
    source.run(
        *tables, f"INSERT INTO {one} SELECT generate_series(1, 9)", f"INSERT INTO {two} SELECT id, id FROM {one}"
    )
    copy.make(*tables)
    await capture(source, tmp_path, one, two)
    whole = [entry for entry in await entries(tmp_path) if entry[1] == f"capture/{source.slot}"]
    (tmp_path / "cut").mkdir()
    log = await open_log(f"file://{tmp_path}/cut/wal")
    await log.append([NewEntry(name, number, payload) for _, name, number, payload in whole[:-1]])
    await log.close()
    await copy.play(tmp_path / "cut")
    assert copy.rows(f"SELECT count(*) FROM {two}") == [(9,)]
    log = await open_log(f"file://{tmp_path}/cut/wal")
    await log.trim(len(whole) - 2)
    await log.close()
    source.run(f"DELETE FROM {two} WHERE id > 3", f"DELETE FROM {one} WHERE id > 5")
    await idle(source)
    with pytest.raises(UserError, match=r"trimmed from the log since.*--on-truncate ddl --ddl-targets.*--no-trims"):
        await capture(source, tmp_path / "cut", one, two)
    choices = Choices(truncate="ddl", ddl_targets=(copy.place.name,))
    await capture(source, tmp_path / "cut", one, two, choices=choices)
    await copy.play(tmp_path / "cut")
    assert copy.rows(f"SELECT id, t FROM {two} ORDER BY id") == [(nth, nth) for nth in (1, 2, 3)]
    assert copy.rows(f"SELECT count(*) FROM {one}") == [(5,)]


TOUCHED = """
CREATE FUNCTION {t}_touch() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN NEW.last_update = clock_timestamp(); RETURN NEW; END';
CREATE FUNCTION {t}_note() RETURNS trigger LANGUAGE plpgsql AS
  'BEGIN INSERT INTO {t}_audit (of, said) VALUES (NEW.id, TG_OP); RETURN NULL; END';
CREATE TABLE {t} (id int PRIMARY KEY, v text, last_update timestamptz);
CREATE TABLE {t}_audit (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), of int REFERENCES {t}, said text);
CREATE TRIGGER touch BEFORE INSERT OR UPDATE ON {t} FOR EACH ROW EXECUTE FUNCTION {t}_touch();
CREATE TRIGGER note AFTER INSERT OR UPDATE ON {t} FOR EACH ROW EXECUTE FUNCTION {t}_note();
"""


@pytest.mark.parametrize("copy", ["postgres-tables"], indirect=True)
@pytest.mark.parametrize("advised", [False, True], ids=["triggers on", "as advised"])
async def test_triggers_do_not_repeat_at_the_target_what_the_log_has(
    source: Source, tmp_path: Path, copy: Copy, advised: bool
) -> None:
    """docs/how-to/copy-a-postgres.md says what to do with them; rows differ for whoever does not."""
    t = f"t_{copy.place.name}"
    advice = [f"ALTER TABLE {name} DISABLE TRIGGER USER" for name in (t, f"{t}_audit")]
    source.run(TOUCHED.format(t=t), f"INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    copy.make(TOUCHED.format(t=t), *(advice if advised else []))
    await capture(source, tmp_path, t, f"{t}_audit")
    source.run(f"UPDATE {t} SET v = 'c' WHERE id = 2", f"INSERT INTO {t} VALUES (3, 'd')")
    await capture(source, tmp_path, t, f"{t}_audit")
    await copy.play(tmp_path)
    for name in (t, f"{t}_audit"):
        query = f"SELECT * FROM {name} ORDER BY id"
        assert (copy.rows(query) == source.db.execute(query).fetchall()) == advised
    with pytest.raises(psycopg.errors.ForeignKeyViolation):  # That one is on.
        copy.rows(f"INSERT INTO {t}_audit (of) VALUES (4)")

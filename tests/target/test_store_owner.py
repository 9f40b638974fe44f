"""A store belongs to one target: another name is refused, by every store, whatever the database does to long names."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest
import redis

from logplayer.core.entry import Session
from logplayer.errors import UserError
from logplayer.target.stores.open import open_store
from tests.target.store_places import Place, content, opening, playing, put, run_sql, written_for

S1, S2 = Session(1, 1), Session(2, 1)
LONGEST = "t" * 53  # With "logplayer_" before it, what PostgreSQL keeps of a name.


def test_targets_with_long_names_never_share_a_schema(postgres_url: str) -> None:
    """PostgreSQL cuts names at 63 bytes: the second target would have the first one's index, and miss its entries."""
    names = ["x" * 57 + last for last in "ab"]
    for name in names:
        with pytest.raises(UserError, match="would cut the schema name"):
            open_store("postgres", name, url=postgres_url)


def test_bytes_count_not_letters(postgres_url: str) -> None:
    with pytest.raises(UserError, match="2 bytes shorter"):
        open_store("postgres", LONGEST[:-1] + "ü" + "y", url=postgres_url)


def test_the_longest_name_works(postgres_url: str) -> None:
    store = open_store("postgres", LONGEST, url=postgres_url)
    store.apply(opening(S1))
    store.apply(playing(S1, 0, 1, put(1)))
    store.close()
    store = open_store("postgres", LONGEST, url=postgres_url)
    assert content(store) == {"k": "v1"}
    store.close()


def pass_off(place: Place, other: str) -> None:
    """Let a store appear where another target's would be, as a copy or a rename by hand does."""
    if place.kind.startswith("postgres"):
        with psycopg.connect(place.url, autocommit=True) as db:
            db.execute(f"ALTER SCHEMA logplayer_{place.name} RENAME TO logplayer_{other}")
    elif place.kind == "redis":
        client = redis.Redis.from_url(place.url)
        for part in ("data", "position"):
            client.rename(f"logplayer:{{{place.name}}}:{part}", f"logplayer:{{{other}}}:{part}")
        client.close()


def test_the_owner_is_kept_in_the_store_and_compared(any_place: Place) -> None:
    place = any_place
    store = place.open()
    store.apply(opening(S1))
    store.apply(playing(S1, 0, 1, written_for(place, put(1))))
    store.close()
    other = f"o{place.name}"
    if place.kind == "mysql-tables":  # Several targets may have their positions in one database.
        with pytest.raises(UserError, match=f"no target '{other}' is in this MySQL database"):
            open_store(place.kind, other, url=place.url, read_only=True)
        return
    pass_off(place, other)
    for read_only in (False, True):
        with pytest.raises(UserError, match=f"belongs to target '{place.name}', not to '{other}'"):
            open_store(place.kind, other, path=place.path, url=place.url, read_only=read_only)


def test_a_target_in_tables_makes_no_table_for_keys_and_values(postgres_url: str) -> None:
    place = Place("postgres-tables", "", postgres_url)
    place.open().close()
    made = run_sql(place, f"SELECT tablename FROM pg_tables WHERE schemaname = 'logplayer_{place.name}' ORDER BY 1")
    assert made == [("position",), ("quarantine",)]


def test_a_file_that_two_targets_open_while_it_is_empty_belongs_to_the_first(tmp_path: Path) -> None:
    first = open_store("sqlite", "a", path=str(tmp_path / "x"))
    with pytest.raises(UserError, match="belongs to target 'a', not to 'b'"):
        open_store("sqlite", "b", path=str(tmp_path / "x"))
    first.close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_postgres_store_of_an_earlier_version_is_refused(postgres_url: str, read_only: bool) -> None:
    """It has an index and no chain value: nobody can say of which history it is."""
    place = Place("postgres", "", postgres_url)
    store = place.open()
    store.apply(opening(S1))
    store.apply(playing(S1, 0, 1, put(1)))
    store.close()
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(f"ALTER TABLE logplayer_{place.name}.position DROP COLUMN chain")
    with pytest.raises(UserError, match="earlier version and lacks the log's chain value; drop it"):
        place.open(read_only=read_only)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_sqlite_store_of_an_earlier_version_is_refused(tmp_path: Path, read_only: bool) -> None:
    place = Place("sqlite", str(tmp_path / "store"), "")
    store = place.open()
    store.apply(opening(S1))
    store.close()
    db = sqlite3.connect(place.path)
    db.execute("ALTER TABLE position DROP COLUMN chain")
    db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.raises(UserError, match="format 1, which lacks the log's chain value; fill a new file with a backfill"):
        place.open(read_only=read_only)


def test_a_redis_key_of_a_wrong_type_is_refused(redis_url: str) -> None:
    """Redis would move the position on without the rows."""
    place = Place("redis", "", redis_url)
    db = redis.Redis.from_url(redis_url)
    db.set(f"logplayer:{{{place.name}}}:data", "a string")
    with pytest.raises(UserError, match="is a string, not a target's hash"):
        place.open()
    db.close()


def test_reading_a_postgres_target_that_is_not_there_is_one_line(postgres_url: str) -> None:
    with pytest.raises(UserError, match="no target 'nobody' is in this PostgreSQL database"):
        open_store("postgres", "nobody", url=postgres_url, read_only=True)

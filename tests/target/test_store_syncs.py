"""An ack is durable against a loss of power: what a store writes is synced before apply() returns, and a sync that
fails is not taken for one."""

from __future__ import annotations

import itertools
from pathlib import Path

import psycopg
import pytest

from logplayer.core.entry import Session
from logplayer.target.stores.open import open_store
from tests.sync_layer import SyncLayer
from tests.target.store_places import Place, opening, playing, put, run_sql, written_for

CHILD = """
import sqlite3, sys
import logplayer as lp
from logplayer.core.entry import Delivery
from logplayer.core.entry import Session
from logplayer.target.protocol import Change
from logplayer.target.stores.open import open_store
from logplayer.testing.conformance.client import covering, message
from tests.sync_layer import fail_syncs, mark

kind, path = sys.argv[1:]
def row(index):
    if kind != "sqlite-tables":
        return message(index, b"k", b"v" * 100)
    return Delivery(index, lp.table("data", key="k").put(k="k", v="v" * 100 + str(index)).encoded)

if kind == "sqlite-tables":
    sqlite3.connect(path).execute("CREATE TABLE data (k TEXT PRIMARY KEY, v TEXT)")
store = open_store(kind, "t1", path=path)
mark("open")
store.apply(Change(Session(1, 1), log_id="log"))
mark("acked 0")
for index in (1, 2, 3):
    store.apply(Change(Session(1, 1), batch=covering(index - 1, index, row(index))))
    mark(f"acked {index}")
"""


@pytest.mark.parametrize("kind", ["sqlite", "sqlite-tables", "rocksdb"])
def test_every_ack_follows_a_sync(kind: str, sync_layer: SyncLayer, tmp_path: Path) -> None:
    done = sync_layer.run(CHILD, kind, tmp_path / "store")
    assert done.returncode == 0, done.stderr
    marks = ["open", "acked 0", "acked 1", "acked 2", "acked 3"]
    for before, after in itertools.pairwise(marks):
        synced = sync_layer.synced_before(after, before)
        assert any(str(tmp_path / "store") in path for path in synced), f"nothing was synced before {after!r}"


@pytest.mark.parametrize("kind", ["sqlite", "sqlite-tables", "rocksdb"])
def test_a_sync_that_fails_is_an_error_and_no_ack(kind: str, sync_layer: SyncLayer, tmp_path: Path) -> None:
    done = sync_layer.run(CHILD.replace('mark("acked 0")', "fail_syncs(path)"), kind, tmp_path / "store")
    assert done.returncode != 0
    events = sync_layer.events()
    assert any(event.kind.startswith("failed-") for event in events)
    assert ("mark", "acked 1") not in events
    store = open_store(kind, "t1", path=str(tmp_path / "store"))
    assert store.position().session == Session(1, 1)
    store.close()


@pytest.mark.parametrize("kind", ["postgres", "postgres-tables"])
@pytest.mark.parametrize(("server", "ours"), [("off", "on"), ("remote_apply", "remote_apply"), ("on", "on")])
def test_postgres_commits_wait_for_the_disk(server: str, ours: str, kind: str, postgres_url: str) -> None:
    """The setting that is in force in the very transaction that moves the position."""
    place = Place(kind, "", f"{postgres_url}?options=-c%20synchronous_commit%3D{server}")
    store = place.open()
    with psycopg.connect(postgres_url) as db:
        db.execute(f"CREATE TABLE {place.name}_seen AS SELECT current_setting('synchronous_commit') AS was WHERE false")
        db.execute(
            f"CREATE RULE look AS ON UPDATE TO logplayer_{place.name}.position DO ALSO "
            f"INSERT INTO {place.name}_seen SELECT current_setting('synchronous_commit')"
        )
    store.apply(opening(Session(1, 1)))
    store.apply(playing(Session(1, 1), 0, 1, written_for(place, put(1))))
    store.close()
    with psycopg.connect(postgres_url) as db:
        assert db.execute(f"SELECT was FROM {place.name}_seen").fetchall() == [(ours,), (ours,)]


def test_a_mysql_that_does_not_wait_for_the_disk_is_warned_about(
    mysql_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No session can switch it on for itself."""
    place = Place("mysql-tables", "", mysql_url)
    place.open().close()
    assert not caplog.records
    run_sql(place, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    try:
        place.open().close()
    finally:
        run_sql(place, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    assert "innodb_flush_log_at_trx_commit = 2: an ack may be lost" in caplog.text

"""Where tests keep a store of each kind, and what they write into it."""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

import logplayer as lp
from logplayer.core.entry import Delivery, Mutation, Session
from logplayer.core.fence import Batch, Position
from logplayer.errors import Malformed
from logplayer.log.protocol import Info
from logplayer.target.protocol import Change, Store
from logplayer.target.stores.open import STORES, TABLE_STORES, open_store
from logplayer.testing.conformance.client import covering, message
from logplayer.wire import codec
from logplayer.wire.logplayer.v1 import entry_pb2 as pb


class Place:
    """Where one test's store is."""

    def __init__(self, kind: str, path: str, url: str) -> None:
        self.kind, self.path, self.url = kind, path, url
        self.name = f"t{uuid.uuid4().hex[:8]}"

    def open(self, **more: Any) -> Store:
        if self.has_tables and not more:
            run_sql(self, *DATA_TABLE)
        return open_store(self.kind, self.name, path=self.path, url=self.url, **more)

    @property
    def has_tables(self) -> bool:
        """Whether entries are rows of a table ``data``, with a key and a value, in place of keys and values."""
        return self.kind in TABLE_STORES

    @property
    def table(self) -> str:
        """The table of this test: the databases of servers are shared."""
        return "data" if self.path else f"data_{self.name}"

    @property
    def options(self) -> list[str]:
        where = ["--path", self.path] if self.path else ["--url", self.url]
        return ["--store", self.kind, "--id", self.name, *where]


def _place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if STORES[request.param][2] == "url":
        server = request.param.removesuffix("-tables")
        return Place(request.param, "", request.getfixturevalue(f"{server}_url"))
    return Place(request.param, str(tmp_path / "store"), "")


@pytest.fixture(params=[kind for kind in STORES if kind not in TABLE_STORES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store of keys and values."""
    return _place(request, tmp_path)


@pytest.fixture(params=list(TABLE_STORES))
def table_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store of tables."""
    return _place(request, tmp_path)


@pytest.fixture(params=list(STORES))
def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Any store: entries are made with ``written_for``, and ``content`` reads them."""
    return _place(request, tmp_path)


DATA_TABLE = ("CREATE TABLE IF NOT EXISTS {table} (k VARCHAR(100) PRIMARY KEY, v VARCHAR(100) NOT NULL)",)


def run_sql(place: Place, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements in the database of a store of tables, as its owner would; the rows of the last one."""
    texts = [text.format(table=place.table) for text in statements]
    rows: list[tuple[Any, ...]] = []
    with contextlib.closing(_connected(place)) as db:
        for text in texts:
            cursor = db.cursor()
            cursor.execute(text)
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        db.commit()
    return rows


def _connected(place: Place) -> Any:
    if place.path:
        return sqlite3.connect(place.path)
    if place.kind.startswith("postgres"):
        return psycopg.connect(place.url)
    parts = urlsplit(place.url)
    return pymysql.connect(unix_socket=parts.query.partition("=")[2], user="root", database=parts.path.strip("/"))


def written_for(place: Place, entry: Delivery) -> Delivery:
    """The same entry for this store: of keys and values, or of rows. What cannot be read stays as it is."""
    if not place.has_tables:
        return entry
    try:
        changes = codec.decode_transaction(entry.payload)
    except Malformed:
        return entry
    table = lp.table(place.table, key="k")
    rows = [
        table.delete(k=key.decode()) if value is None else table.put(k=key.decode(), v=value.decode())
        for key, value in changes
    ]
    return entry._replace(payload=b"".join(row.encoded for row in rows))


def opening(session: Session, log_id: str = "log") -> Change:
    return Change(session, log_id=log_id)


def playing(session: Session, prev: int, to: int, *messages: Delivery) -> Change:
    return Change(session, batch=covering(prev, to, *messages))


def of_another_history(change: Change) -> Change:
    """The same, as a log has it that was restored from an older backup."""
    assert change.batch is not None
    return Change(change.session, batch=change.batch._replace(prev_chain=b"another!"))


def put(index: int, key: str = "k", value: str = "") -> Delivery:
    return message(index, key.encode(), (value or f"v{index}").encode())


def delete(index: int, key: str) -> Delivery:
    return Delivery(index, codec.encode_mutation(key.encode(), None).encoded)


def transaction(index: int, **rows: str | None) -> Delivery:
    """An entry with several rows; None deletes."""
    parts = [codec.encode_mutation(key.encode(), None if v is None else v.encode()).encoded for key, v in rows.items()]
    return Delivery(index, b"".join(parts))


def content(store: Store, place: Place | None = None) -> dict[str, str]:
    if place is not None and place.has_tables:
        return dict(run_sql(place, "SELECT k, v FROM {table}"))
    return {key.decode(): value.decode() for key, value in store.scan()}


def of_target(mutation: Mutation, target: str) -> Mutation:
    """The same row or statement, sent to this target whatever the map says."""
    decoded = pb.Transaction.FromString(mutation.encoded)
    decoded.mutations[0].target = target
    return Mutation(mutation.key, decoded.SerializeToString(), target)


def opening_of(stored: Position, info: Info, messages: Sequence[Delivery]) -> Iterator[Change]:
    """An Open, and one batch with what a store does not have yet of a log."""
    session = Session(stored.session.epoch + 1, 1)
    yield Change(session, log_id=info.log_id)
    missing = tuple(one for one in messages if one.index > stored.index)
    if info.last > stored.index:
        yield Change(session, batch=Batch(stored.index, info.last, missing, stored.chain, info.chain))

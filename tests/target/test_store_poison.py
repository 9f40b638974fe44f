"""A poisoned entry in the middle of a batch: nothing of it stays, and what is said to be applied is applied whole."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest

from logplayer.core import digest as digests
from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.fence import Position
from logplayer.errors import Poison
from logplayer.target.protocol import Store
from logplayer.target.server import TargetServer
from logplayer.testing.conformance.client import ConformanceStream, covering, value_at
from logplayer.wire import codec
from tests.target.store_places import Place, content, opening, playing, put, run_sql, transaction, written_for

S1 = Session(1, 1)
# Entry 3 has a good row before the refused one, and overwrites what is there: half of it would be seen.
ENTRIES = (put(1, "a"), put(2, "b"), transaction(3, a="half", c="no", d="half"), put(4, "b", "after"))
UNREADABLE = (*ENTRIES[:2], Delivery(3, ENTRIES[2].payload + b"\xff"), ENTRIES[3])


NO_TABLES = {
    "sqlite-tables": "CREATE TRIGGER no BEFORE INSERT ON {table} WHEN new.v = 'no' BEGIN SELECT raise(ABORT, 'n'); END",
    "postgres-tables": "ALTER TABLE {table} ADD CHECK (v <> 'no')",
    "mysql-tables": "ALTER TABLE {table} ADD CHECK (v <> 'no')",
}


def forbid(place: Place) -> None:
    """A rule of the database's owner: no value is ``no``."""
    if place.has_tables:
        run_sql(place, NO_TABLES[place.kind])
    elif place.kind == "sqlite":
        with sqlite3.connect(place.path) as db:
            db.execute(
                "CREATE TRIGGER no BEFORE INSERT ON data WHEN new.value = x'6e6f' BEGIN SELECT raise(ABORT, 'no'); END"
            )
        db.close()
    else:
        with psycopg.connect(place.url) as postgres:
            postgres.execute(f"ALTER TABLE logplayer_{place.name}.data ADD CHECK (value <> 'no'::bytea)")


def poisoned(place: Place) -> tuple[tuple[Delivery, ...], Store]:
    """A store with one entry applied, and a batch that it refuses: by a constraint, or because it cannot be read."""
    store = place.open()
    if place.kind not in ("sqlite", "postgres", *NO_TABLES):
        return UNREADABLE, store
    forbid(place)
    return tuple(written_for(place, entry) for entry in ENTRIES), store


def test_the_store_keeps_nothing_of_a_batch_with_a_poisoned_entry(any_place: Place) -> None:
    place = any_place
    entries, store = poisoned(place)
    store.apply(opening(S1))
    for _ in range(2):  # The hunt for the entry leaves nothing open either.
        with pytest.raises(Poison) as poison:
            store.apply(playing(S1, 0, 4, *entries))
        assert poison.value.index == 3
        assert store.position() == Position(0, S1, 0, "log")
        assert content(store, place) == {}
        assert list(store.quarantine()) == []
    store.close()
    store = place.open()
    assert store.position() == Position(0, S1, 0, "log")
    assert content(store, place) == {}
    store.close()


async def test_what_is_acked_before_a_poisoned_entry_is_there_and_nothing_else(any_place: Place) -> None:
    place = any_place
    entries, store = poisoned(place)
    server = TargetServer({place.name: store})
    address = (await server.start(tcp="127.0.0.1:0"))[0]
    player = await ConformanceStream.connect(address)
    assert isinstance(await player.open(place.name, "log", S1), codec.SessionOpened)
    await player.batch(covering(0, 4, *entries))
    assert (await player.refused(Refusal.POISON, acks=2)).index == 3
    assert content(store, place) == {"a": "v1", "b": "v2"}
    assert store.position() == Position(2, S1, digests.extend(0, entries[:2]), "log", value_at(2))
    player = await ConformanceStream.connect(address)
    await player.open(place.name, "log", Session(1, 2))
    await player.batch(covering(2, 4, Delivery(3, entries[2].payload, True), entries[3]))
    await player.acked(4)
    assert content(store, place) == {"a": "v1", "b": "after"}
    assert list(store.quarantine()) == [(3, entries[2].payload)]
    await server.stop()

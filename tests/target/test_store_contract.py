"""What every store must do: one atomic, durable write that checks inside itself."""

from __future__ import annotations

import asyncio
import itertools
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logplayer.core import digest as digests
from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.fence import Batch, Position
from logplayer.errors import Poison, Unavailable, UserError
from logplayer.target.protocol import Change, Rejected, Store
from logplayer.target.server import TargetServer
from logplayer.target.stores.open import open_store
from logplayer.target.stores.redis import RedisTarget
from logplayer.testing.conformance.client import ConformanceStream, covering, encode, message, value_at
from logplayer.testing.conformance.targets import conform
from logplayer.wire import codec
from tests.servers import redis_server
from tests.target.store_places import Place, content, delete, of_another_history, opening, playing, put

S1, S2, S3 = Session(1, 1), Session(1, 2), Session(2, 1)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    store = place.open()
    yield store
    store.close()


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.position() == Position()
    assert content(store) == {}
    assert store.get(b"k") is None
    assert list(store.quarantine()) == []


def test_an_open_and_a_batch_leave_everything_that_was_asked(place: Place) -> None:
    store = place.open()
    assert store.apply(opening(S1)) == Position(0, S1, 0, "log")
    entries = (put(1, "a"), put(2, "b"), delete(3, "a"), put(4, "c"), delete(4, "none"), put(5, "a", "again"))
    entries = (*entries[:4], entries[5], Delivery(7, b"\xff whatever", True))
    after = store.apply(playing(S1, 0, 9, *entries))
    assert after == Position(9, S1, digests.extend(0, entries), "log", value_at(9))
    store.close()
    store = place.open()
    assert store.position() == after
    assert content(store) == {"a": "again", "b": "v2", "c": "v4"}
    assert store.get(b"b") == b"v2"
    assert list(store.quarantine()) == [(7, b"\xff whatever")]
    store.close()


def test_order_within_a_batch_counts(store: Store) -> None:
    store.apply(opening(S1))
    store.apply(playing(S1, 0, 5, put(1, "k", "x"), delete(2, "k"), put(3, "k", "y"), put(4, "k", "z")))
    store.apply(playing(S1, 5, 8, put(6, "gone"), delete(7, "gone"), delete(8, "never there")))
    assert content(store) == {"k": "z"}


def test_odd_keys_and_values(store: Store) -> None:
    keys = [b"", b"\x00", b"\xff\xfe", "schlüssel".encode(), b"d", b"p", b"q", b"a" * 500]
    store.apply(opening(S1))
    store.apply(playing(S1, 0, 20, *(message(i, key, bytes([i, 0, 255])) for i, key in enumerate(keys, 1))))
    store.apply(playing(S1, 20, 21, message(21, b"empty", b"")))
    assert dict(store.scan()) == {**{key: bytes([i, 0, 255]) for i, key in enumerate(keys, 1)}, b"empty": b""}
    assert store.get(b"") == bytes([1, 0, 255])
    assert store.get(b"empty") == b""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (playing(S1, 2, 3, put(3)), Refusal.STALE_SESSION),
        (playing(Session(0, 9), 2, 3, put(3)), Refusal.FENCED),
        (playing(S1, 7, 8, put(8)), Refusal.STALE_SESSION),
        (playing(Session(0, 9), 7, 8, put(8)), Refusal.FENCED),
        (playing(S2, 1, 3, put(2), put(3)), Refusal.OUT_OF_SYNC),
        (playing(S2, 3, 4, put(4)), Refusal.OUT_OF_SYNC),
        (playing(S2, 2, 2), Refusal.BAD_BATCH),
        (of_another_history(playing(S2, 2, 3, put(3))), Refusal.DIVERGED),
        (of_another_history(playing(S2, 2, 2)), Refusal.DIVERGED),
        (of_another_history(playing(S2, 3, 4, put(4))), Refusal.OUT_OF_SYNC),
        (of_another_history(playing(S1, 2, 3, put(3))), Refusal.STALE_SESSION),
        (opening(S1), Refusal.STALE_SESSION),
        (opening(S2), Refusal.STALE_SESSION),
        (opening(Session(0, 9)), Refusal.FENCED),
        (opening(S3, "another"), Refusal.WRONG_LOG),
    ],
)
def test_what_does_not_fit_changes_nothing(store: Store, change: Change, reason: Refusal) -> None:
    store.apply(opening(S1))
    store.apply(opening(S2))
    before = store.apply(playing(S2, 0, 2, put(1), put(2)))
    with pytest.raises(Rejected) as rejected:
        store.apply(change)
    assert rejected.value.refused.reason is reason
    assert store.position() == before
    assert content(store) == {"k": "v2"}
    assert store.apply(playing(S2, 2, 3, put(3))).index == 3  # And it goes on.


def test_a_payload_that_is_no_transaction_is_poison_and_changes_nothing(store: Store) -> None:
    store.apply(opening(S1))
    with pytest.raises(Poison) as poison:
        store.apply(playing(S1, 0, 3, put(1), Delivery(2, b"\xff"), put(3)))
    assert poison.value.index == 2
    assert store.position() == Position(0, S1, 0, "log")
    assert content(store) == {}
    assert store.apply(playing(S1, 0, 3, put(1), Delivery(2, b"\xff", True), put(3))).index == 3


def test_two_servers_on_one_store_cannot_both_write(place: Place) -> None:
    """The check is in the store's transaction, so a second process is fenced by it and not by luck."""
    if place.kind == "rocksdb":
        first = place.open()
        with pytest.raises(UserError, match="cannot be opened"):
            place.open()
        first.close()
        return
    old, new = place.open(), place.open()
    old.apply(opening(S1))
    old.apply(playing(S1, 0, 1, put(1)))
    assert new.apply(opening(S2)).index == 1
    with pytest.raises(Rejected, match="STALE_SESSION"):
        old.apply(playing(S1, 1, 2, put(2, "k", "zombie")))
    new.apply(playing(S2, 1, 2, put(2)))
    assert content(old) == {"k": "v2"}
    old.close()
    new.close()


def test_a_reader_sees_what_is_committed_and_writes_nothing(place: Place) -> None:
    store = place.open()
    store.apply(opening(S1))
    store.apply(playing(S1, 0, 1, put(1)))
    reader = place.open(read_only=True)
    assert content(reader) == {"k": "v1"}
    with pytest.raises(Exception, match=r"(?i)read"):
        reader.apply(playing(S1, 1, 2, put(2)))
    assert store.position().index == 1
    reader.close()
    store.close()


@pytest.mark.parametrize("kind", ["sqlite", "rocksdb"])
def test_a_file_belongs_to_one_target(kind: str, tmp_path: Path) -> None:
    store = open_store(kind, "a", path=str(tmp_path / "x"))
    store.apply(opening(S1))
    store.close()
    with pytest.raises(UserError, match="belongs to target 'a', not to 'b'"):
        open_store(kind, "b", path=str(tmp_path / "x"))


@pytest.mark.parametrize("kind", ["sqlite", "rocksdb"])
def test_something_else_at_the_path_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("dear diary, " * 500)
    with pytest.raises(UserError, match="cannot be opened"):
        open_store(kind, "a", path=str(tmp_path / "x"))


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
def test_a_constraint_of_the_database_makes_poison(place: Place) -> None:
    """Somebody's own rule on the table: the entry that breaks it is named, whatever it was joined with."""
    store = place.open()
    if place.kind == "sqlite":
        import sqlite3

        with sqlite3.connect(place.path) as db:
            db.execute(
                "CREATE TRIGGER no BEFORE INSERT ON data WHEN new.value = x'6e6f' BEGIN SELECT raise(ABORT, 'no'); END"
            )
    else:
        import psycopg

        with psycopg.connect(place.url) as db:
            db.execute(f"ALTER TABLE logplayer_{place.name}.data ADD CHECK (value <> 'no'::bytea)")
    store.apply(opening(S1))
    with pytest.raises(Poison) as poison:
        store.apply(playing(S1, 0, 4, put(1), put(2), put(3, "k", "no"), put(4)))
    assert poison.value.index == 3
    assert store.position().index == 0
    assert store.apply(playing(S1, 0, 4, put(1), Delivery(3, put(3, "k", "no").payload, True))).index == 4
    store.close()


def test_postgres_opens_a_lost_connection_again(postgres_url: str) -> None:
    import psycopg

    place = Place("postgres", "", postgres_url)
    store = place.open()
    store.apply(opening(S1))
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    with pytest.raises(psycopg.OperationalError):
        store.apply(playing(S1, 0, 1, put(1)))
    assert store.apply(playing(S1, 0, 1, put(1))).index == 1
    store.close()


def test_redis_warns_when_an_ack_is_not_durable(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        RedisTarget(redis_url, "a").close()
        assert not caplog.records
        with redis_server("--appendonly", "no") as url:
            RedisTarget(url, "a").close()
    assert "appendfsync always" in caplog.text


@pytest.mark.parametrize(
    ("kind", "url"), [("postgres", "postgresql://127.0.0.1:1/x"), ("redis", "redis://127.0.0.1:1")]
)
def test_a_server_that_is_not_there_is_a_clear_error(kind: str, url: str) -> None:
    with pytest.raises(Unavailable, match="--url right") as raised:
        open_store(kind, "a", url=url)
    assert not isinstance(raised.value, UserError), "a supervisor would not try again"


async def test_a_served_store_keeps_every_rule(place: Place) -> None:
    store = place.open()

    async def dump() -> dict[bytes, bytes]:
        return dict(store.scan())

    server = TargetServer({place.name: store})
    address = (await server.start(tcp="127.0.0.1:0"))[0]
    verdicts = await conform(address, place.name, dump=dump)
    await server.stop()
    assert [str(verdict) for verdict in verdicts if verdict.ok is False] == []


# --- kill -9 under load -----------------------------------------------------------------------------------


class Serving:
    """A ``logplayer target serve`` process."""

    def __init__(self, place: Place) -> None:
        command = [sys.executable, "-m", "logplayer.cli", "target", "serve", *place.options]
        self.process = subprocess.Popen([*command, "--listen-tcp", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address = next(word.rstrip(",") for word in line.split() if word.startswith("tcp://"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


async def flood(serving: Serving, name: str, term: int, batches: Callable[[int], Iterator[Batch]]) -> tuple[int, int]:
    """Open, send without end, kill the target soon after its first ack: the index at the open, and the last ack."""
    stream = await ConformanceStream.connect(serving.address)
    opened = await stream.open(name, "log", Session(1, term))
    assert isinstance(opened, codec.SessionOpened)
    acked = opened.index

    async def send() -> None:
        for batch in batches(opened.index):
            if not await stream.send(encode(batch)):
                return
            await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    while isinstance(answer := await stream.answer(), codec.Ack):
        assert answer.index >= acked
        if answer.index > acked == opened.index:
            asyncio.get_running_loop().call_later(0.2, serving.kill)
        acked = answer.index
    sending.cancel()
    return opened.index, acked


def entry(index: int) -> Delivery:
    return put(index, f"key{index % 50}", f"value of {index} " + "x" * 500)


def batches_from(index: int) -> Iterator[Batch]:
    for prev in itertools.count(index, 3):
        yield covering(prev, prev + 3, *(entry(prev + i) for i in (1, 2, 3)))


async def test_kill_9_under_load_leaves_content_index_and_digest_in_agreement(place: Place) -> None:
    last_ack = 0
    for term in (1, 2):
        serving = Serving(place)
        opened, acked = await flood(serving, place.name, term, batches_from)
        assert opened >= last_ack, "what was acked before the kill is gone"
        assert acked > opened, "the stream ended before anything was acked"
        last_ack = acked
    store = place.open()
    position = store.position()
    assert position.index >= last_ack
    entries = [entry(index) for index in range(1, position.index + 1)]
    assert position.digest == digests.extend(0, entries)
    expected = {f"key{e.index % 50}": codec.decode_transaction(e.payload)[0][1] for e in entries}
    assert content(store) == {key: (value or b"").decode() for key, value in expected.items()}
    store.close()


@pytest.mark.parametrize("kind", ["sqlite", "rocksdb"])
def test_reading_what_is_not_there_does_not_make_it(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not there"):
        open_store(kind, "a", path=str(tmp_path / "x"), read_only=True)
    assert list(tmp_path.iterdir()) == []

"""Feeding a target from Spark's blocking code: real servers, no Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.core.digest import EMPTY, extend
from logplayer.core.effects import ReadCatchUp
from logplayer.core.entry import Delivery, Session
from logplayer.core.fence import Batch
from logplayer.errors import AddressError, Fenced, OutOfSync, Poison, TargetError
from logplayer.spark.sinks import deliver
from logplayer.spark.sinks.deliver import Destination, Refusing, play, play_into
from logplayer.target.protocol import Change
from logplayer.target.stores.sqlite import SqliteTarget
from tests.spark.spark_support import Shards, transaction


def some(count: int) -> list[Delivery]:
    """A delivery at every other index."""
    return [Delivery(2 * n, transaction((b"k%d" % (n % 50), b"%d" % n, "a"))) for n in range(1, count + 1)]


def content(messages: list[Delivery]) -> dict[bytes, bytes]:
    count = len(messages)
    return {b"k%d" % (n % 50): b"%d" % n for n in range(1, count + 1)}


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    shards = Shards(tmp_path, ("a",), "tcp")
    yield shards
    shards.stop()


def where(shards: Shards, epoch: int = 0, log_id: str = "log") -> Destination:
    return Destination("a", shards.addresses["a"], log_id, epoch)


@pytest.mark.parametrize("scheme", ["tcp", "grpc"])
def test_everything_arrives_and_the_source_is_read_once(tmp_path: Path, scheme: str) -> None:
    shards = Shards(tmp_path, ("a",), scheme)
    messages = some(20_000)
    reads: list[int] = []

    def source(index: int) -> list[Delivery]:
        reads.append(index)
        return messages

    fed = play(where(shards), source, 50_000)
    shards.stop()
    assert (fed.index, fed.digest) == (50_000, extend(EMPTY, messages))
    assert shards.read("a") == (content(messages), 50_000, fed.digest)
    assert reads == [0]


def test_feeds_of_one_epoch_follow_each_other(shards: Shards) -> None:
    messages = some(30)
    for count in range(1, 31):
        assert play(where(shards), lambda index, n=count: messages[:n], 2 * count).index == 2 * count  # type: ignore[misc]
    assert shards.read("a")[0] == content(messages)
    # One that is repeated opens the target, and sends nothing.
    assert play(where(shards), lambda index: messages, 60).digest == extend(EMPTY, messages)


def test_a_target_that_restarts_meanwhile_misses_nothing(shards: Shards) -> None:
    messages = some(6000)
    halfway, away = threading.Event(), threading.Event()
    reads: list[int] = []

    def source(index: int) -> Iterator[Delivery]:
        reads.append(index)
        for message in messages:
            if message.index == 8000 and len(reads) == 1:
                halfway.set()
                assert away.wait(60), "the server goes away while we read"
            yield message

    def restart() -> None:
        assert halfway.wait(60), "the source is read"
        shards.stop()
        away.set()
        time.sleep(0.3)  # So that it is tried in vain, too.
        shards.start("a", port=int(shards.addresses["a"].rsplit(":", 1)[1]), scheme="tcp")

    with ThreadPoolExecutor(1) as pool:
        restarted = pool.submit(restart)
        fed = play(where(shards), source, 12_000)
        restarted.result()
    assert fed.digest == extend(EMPTY, messages)
    assert shards.read("a") == (content(messages), 12_000, fed.digest)


def test_a_newer_player_ends_it(shards: Shards) -> None:
    play(where(shards, epoch=99), lambda index: [], 5)
    with pytest.raises(Fenced, match=r"target a at tcp://\S+ refused: FENCED: epoch 99 has taken over"):
        play(where(shards), lambda index: some(10), 20)

    def source(index: int) -> Iterator[Delivery]:
        for message in some(100):
            if message.index == 50:
                play(where(shards, epoch=101), lambda index: [], 5)
            yield message

    with pytest.raises(Fenced, match="epoch 101 has taken over"):
        play(where(shards, epoch=100), source, 200)
    assert shards.index("a") == 5


def test_poison_and_another_log_end_it_at_once(shards: Shards) -> None:
    good, bad = some(1)[0], Delivery(4, b"\xff")
    with pytest.raises(Poison, match=r"target a at tcp://\S+ refused: POISON: entry 4") as caught:
        play(where(shards), lambda index: [good, bad], 9)
    assert caught.value.index == 4
    with pytest.raises(Refusing, match="WRONG_LOG"):
        play(where(shards, log_id="another"), lambda index: [], 9)


def test_a_target_that_lacks_what_comes_before_the_source_is_not_fed(shards: Shards) -> None:
    with pytest.raises(Refusing, match="RESEED: has index 0, needs 7 or more"):
        play(where(shards), lambda index: some(9), 18, after=7)
    assert shards.index("a") == 0


def test_a_target_that_stays_away_is_given_up(shards: Shards) -> None:
    shards.stop()
    began = time.monotonic()
    with pytest.raises(TargetError, match=r"target a made no progress for 0\.5 s: .+"):
        play(where(shards), lambda index: [], 9, patience=0.5)
    assert time.monotonic() - began > 0.4  # Not at the first refusal.


def test_what_cannot_be_an_address_is_told_at_once() -> None:
    with pytest.raises(AddressError):
        play(Destination("a", "ftp://nowhere", "log", 0), lambda index: [], 9)


def test_what_the_source_raises_passes_through_and_the_session_ends(shards: Shards) -> None:
    closed = threading.Event()

    def source(index: int) -> Iterator[Delivery]:
        try:
            yield from some(3)
            raise OutOfSync("the source is broken")
        finally:
            closed.set()

    with pytest.raises(OutOfSync, match="the source is broken"):
        play(where(shards), source, 20)
    assert closed.is_set()
    assert play(where(shards), lambda index: some(10), 20).index == 20


# --- Into a store without a server ---


def test_a_store_is_fed_by_the_same_machine(tmp_path: Path) -> None:
    store = SqliteTarget(tmp_path / "a.db", "a")
    messages = some(9000)
    place = Destination("a", "a.db", "log", 0)
    assert play_into(store, place, lambda index: messages[:100], 200).index == 200
    fed = play_into(store, place, lambda index: messages, 20_000, after=200)
    assert (fed.index, fed.digest) == (20_000, extend(EMPTY, messages))
    assert (dict(store.scan()), store.position().session) == (content(messages), Session(0, 2))
    with pytest.raises(Poison, match=r"target a at a\.db refused: POISON: entry 20002 cannot") as caught:
        play_into(store, place, lambda index: [Delivery(20_002, b"\xff")], 20_002)
    assert caught.value.index == 20_002
    store.apply(Change(Session(7, 1), log_id="log"))
    with pytest.raises(Fenced, match=r"target a at a\.db refused: FENCED: epoch 7 has taken over"):
        play_into(store, place, lambda index: messages, 30_000)
    store.apply(Change(Session(7, 1), batch=Batch(20_000, 20_001)))  # The player's session stands.
    store.close()


# --- The reader ---


@given(st.data())
def test_a_read_holds_all_of_its_range_whatever_was_asked_before(data: st.DataObject) -> None:
    indexes = sorted(data.draw(st.sets(st.integers(1, 60), max_size=30)))
    source = [Delivery(index, bytes(data.draw(st.integers(0, 9)))) for index in indexes]
    reader = deliver._Reader(lambda index: iter(source), b"")
    first = 1
    for _ in range(data.draw(st.integers(1, 12))):
        request = ReadCatchUp(
            "a", Session(0, 1), first, 60, data.draw(st.integers(1, 5)), data.draw(st.integers(1, 20))
        )
        read = reader.read(request)
        assert (read.after, list(read.messages)) == (
            first - 1,
            [message for message in source if first <= message.index <= read.through],
        )
        assert read.through >= first
        if read.through >= 60:
            first = data.draw(st.integers(1, 60))  # The next session begins wherever the target stands.
        else:
            first = data.draw(st.sampled_from([read.through + 1, first, max(1, first - 3)]))


def test_a_read_stops_where_the_feed_has_no_room() -> None:
    source = [Delivery(index, bytes(10)) for index in range(1, 10)]
    reader = deliver._Reader(lambda index: iter(source), b"")
    session = Session(0, 1)
    read = reader.read(ReadCatchUp("a", session, 1, 9, 3, 1000))
    assert (len(read.messages), read.through) == (3, 3)
    read = reader.read(ReadCatchUp("a", session, 4, 9, 1000, 25))
    assert (len(read.messages), read.through) == (2, 5)
    read = reader.read(ReadCatchUp("a", session, 6, 9, 1000, 1))
    assert (len(read.messages), read.through) == (1, 6)
    read = reader.read(ReadCatchUp("a", session, 7, 9, 3, 1000))
    assert (len(read.messages), read.through) == (3, 9)

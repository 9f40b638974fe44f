"""A target's stream, without a transport: what is read ahead is bounded, and a refused entry stays refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from logplayer.core.entry import Delivery, Session
from logplayer.core.fence import Batch, Position
from logplayer.errors import Poison
from logplayer.target.ack_coalescing import AckRound
from logplayer.target.host import Host
from logplayer.target.protocol import Change
from logplayer.target.stores.memory import MemoryTarget
from logplayer.target.stream import ANSWERS_MAX, READ_AHEAD_BYTES, Stream
from logplayer.wire import codec

FIRST = Session(1, 1)


class Gated(MemoryTarget):
    """Commits nothing until its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def apply(self, change: Change) -> Position:
        if change.batch is not None:
            self.gate.wait(120)
        return super().apply(change)


@pytest.fixture
def store() -> Iterator[Gated]:
    store = Gated()
    yield store
    store.gate.set()  # A test that failed before it did so must not wait for the store's thread.


class Peer:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.news = asyncio.Event()

    def _tell(self, what: str) -> None:
        self.told.append(what)
        self.news.set()

    def flush(self) -> None:
        self._tell("flush")

    def pause(self) -> None:
        self._tell("pause")

    def resume(self) -> None:
        self._tell("resume")

    async def until(self, what: str) -> None:
        async with asyncio.timeout(120):
            while what not in self.told:
                self.news.clear()
                await self.news.wait()


async def test_a_lone_batch_over_the_limit_stops_the_reading_until_it_is_committed(store: Gated) -> None:
    peer = Peer()
    host = Host("t", store)
    await host.start()
    stream = Stream({"t": host}, peer, AckRound(0.001))
    stream.received(codec.encode_open("t", "log", FIRST))
    await peer.until("flush")
    large = codec.encode_mutation(b"k", b"x" * READ_AHEAD_BYTES).encoded
    stream.received(codec.encode_batch(0, 1, [Delivery(1, large)]))
    assert peer.told[-1] == "pause"
    store.gate.set()
    await peer.until("resume")
    assert host.position.index == 1
    await host.stop()


async def test_a_stream_is_quiet_only_while_the_target_waits_for_it(store: Gated) -> None:
    peer = Peer()
    host = Host("t", store)
    await host.start()
    assert host.quiet_ms == 0
    stream = Stream({"t": host}, peer, AckRound(0.001))
    stream.received(codec.encode_open("t", "log", FIRST))
    await peer.until("flush")
    stream._heard_at -= 10
    assert host.quiet_ms >= 10_000
    stream.received(codec.encode_batch(0, 1, [Delivery(1, codec.encode_mutation(b"k", b"v").encoded)]))
    stream._heard_at -= 10  # The commit takes long: it is the player who waits.
    assert host.quiet_ms == 0
    peer.told.clear()
    store.gate.set()
    await peer.until("flush")
    assert host.quiet_ms >= 10_000
    stream.received(codec.PROBE)
    assert host.quiet_ms < 10_000
    await host.stop()


def test_rows_are_refused_as_often_as_they_are_asked_for() -> None:
    good = codec.encode_mutation(b"k", b"v").encoded
    batch = Batch(0, 3, (Delivery(1, good), Delivery(2, b"\xff\xff"), Delivery(3, good)))
    change = Change(FIRST, batch=batch)
    for _ in range(2):
        with pytest.raises(Poison):
            _ = change.rows


async def test_a_stream_that_ends_waits_for_nothing_any_more() -> None:
    host = Host("t", MemoryTarget())
    await host.start()
    stream = Stream({"t": host}, Peer(), AckRound(0.001))
    for _ in range(5):
        stream.received(codec.encode_ask(codec.AskPosition("t", 1 << 40)))
    waiting = list(stream._questions)
    assert len(waiting) == 5
    stream.received(b"\xff\xff")
    await asyncio.sleep(0)
    assert all(question.cancelled() for question in waiting)
    assert not stream._questions
    await host.stop()


async def test_who_asks_and_does_not_read_the_answers_is_sent_away() -> None:
    host = Host("t", MemoryTarget())
    await host.start()
    stream = Stream({"t": host}, Peer(), AckRound(0.001))  # Whose peer takes nothing.
    for _ in range(ANSWERS_MAX):
        stream.received(codec.encode_ask(codec.AskPosition("t")))
        await asyncio.sleep(0)
    assert not stream.ended
    stream.received(codec.encode_ask(codec.AskPosition("t")))
    assert stream.ended
    assert stream.failure is not None
    await host.stop()


async def test_who_has_given_up_waiting_is_forgotten() -> None:
    host = Host("t", MemoryTarget())
    await host.start()
    kept = host.reached(7)
    for _ in range(5000):
        host.reached(1 << 40).cancel()
    assert len(host._waiting) <= 1001
    host.open(FIRST, "log", Nobody(), lambda outcome: None)
    host.apply(FIRST, Batch(0, 7), lambda outcome: None)
    async with asyncio.timeout(120):
        assert (await kept).index == 7
    await host.stop()


class Nobody:
    def quiet_ms(self) -> int:
        return 0

    def fenced(self, by: Session) -> None:
        pass

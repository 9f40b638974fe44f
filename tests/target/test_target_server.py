"""The server around a target: joining, bounds, probes, poison, commits that outlive their stream, readers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from logplayer.core import digest as digests
from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.fence import Batch, Position, TargetRefusal
from logplayer.errors import AddressError, ConfigError, Poison, TargetError, Unavailable, UserError
from logplayer.target import client, stream
from logplayer.target.protocol import Change
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.testing.conformance.client import ConformanceStream, StreamEnded, covering, message, value_at
from logplayer.wire import codec
from logplayer.wire.security import Security

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")


class Gated(MemoryTarget):
    """A store whose commits wait at a gate, and which remembers what it was asked to commit."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.commits: list[Batch] = []
        self.poison: set[int] = set()
        self.error: Exception | None = None

    def apply(self, change: Change) -> Position:
        if change.batch is not None:
            self.entered.set()
            assert self.gate.wait(120)
            if self.error is not None:
                raise self.error
            for entry in change.messages:
                if entry.index in self.poison and not entry.quarantine:
                    raise Poison(f"entry {entry.index} tastes bad", entry.index)
        after = super().apply(change)
        if change.batch is not None:
            self.commits.append(change.batch)
        return after


class Served:
    def __init__(self, target: Gated, scheme: str) -> None:
        self.target = target
        self.scheme = scheme
        self.trace: list[dict[str, object]] = []
        self.server = TargetServer({"t1": target}, trace=self.trace.append)
        self.address = ""
        self.term = 0

    async def start(self) -> None:
        self.address = (await self.server.start(**{self.scheme: "127.0.0.1:0"}))[0]

    async def open(self) -> tuple[ConformanceStream, codec.SessionOpened]:
        self.term += 1
        player = await ConformanceStream.connect(self.address)
        opened = await player.open("t1", "log", Session(1, self.term))
        assert isinstance(opened, codec.SessionOpened)
        return player, opened


@pytest.fixture(params=["grpc", "tcp"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    served = Served(Gated(), request.param)
    await served.start()
    yield served
    served.target.gate.set()
    await served.server.stop()


def batch(prev: int, count: int = 1, length: int = 10) -> Batch:
    return covering(prev, prev + count, *(message(prev + 1 + i, b"k", b"v" * length) for i in range(count)))


async def entered(target: Gated) -> None:
    assert await asyncio.to_thread(target.entered.wait, 120), "no commit began"


@pytest.fixture
def came(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One element for each message that came to a target: what waits there after it, as bytes."""
    seen: list[int] = []
    receive = stream.Stream.received

    def received(self: stream.Stream, data: bytes) -> None:
        receive(self, data)
        seen.append(self._bytes)

    monkeypatch.setattr(stream.Stream, "received", received)
    return seen


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110 - threads and sockets decide when.
            await asyncio.sleep(0.01)


async def test_batches_that_wait_for_a_commit_share_the_next(served: Served, came: list[int]) -> None:
    player, _ = await served.open()
    served.target.gate.clear()
    await player.batch(batch(0))
    await entered(served.target)
    await player.batch(*(batch(prev) for prev in range(1, 50)))
    await until(lambda: len(came) == 51)  # With the Open.
    served.target.gate.set()
    ack = await player.acked(50)
    assert len(served.target.commits) == 2  # The first alone; the others together.
    assert ack.digest == digests.extend(0, [m for prev in range(50) for m in batch(prev).messages])


async def test_a_commit_holds_no_more_than_its_limit(
    served: Served, came: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "JOIN_BYTES_MAX", 1000)
    player, _ = await served.open()
    served.target.gate.clear()
    await player.batch(*(batch(prev, length=400) for prev in range(10)))
    await until(lambda: len(came) == 11)
    served.target.gate.set()
    await player.acked(10)
    assert max(len(commit.messages) for commit in served.target.commits) == 2


async def test_a_probe_is_answered_while_a_commit_runs(served: Served) -> None:
    player, _ = await served.open()
    await player.batch(batch(0))
    await player.acked(1)
    served.target.gate.clear()
    await player.batch(batch(1))
    await entered(served.target)
    await player.send(codec.PROBE)
    assert await player.answer() == codec.Ack(1, digests.extend(0, batch(0).messages))
    served.target.gate.set()
    await player.acked(2)


async def test_a_commit_that_outlives_its_stream_is_harmless(served: Served) -> None:
    """Send, cut, open again: the commit is in the answer to the Open, so nobody sends it twice."""
    player, _ = await served.open()
    served.target.gate.clear()
    await player.batch(batch(0))
    await entered(served.target)
    player.cut()
    opening = asyncio.create_task(served.open())
    await asyncio.sleep(0.2)
    assert not opening.done(), "the Open must wait for the commit that runs"
    served.target.gate.set()
    player, opened = await opening
    assert opened == (1, digests.extend(0, batch(0).messages), value_at(1))
    await player.batch(batch(1))
    await player.acked(2)
    assert [commit.to for commit in served.target.commits] == [1, 2]


async def test_what_was_queued_behind_a_cut_is_dropped_not_applied(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    noticed = asyncio.Event()
    gone = stream.Stream.gone

    def told(self: stream.Stream) -> None:
        gone(self)
        noticed.set()

    monkeypatch.setattr(stream.Stream, "gone", told)
    player, _ = await served.open()
    served.target.gate.clear()
    await player.batch(batch(0))
    await entered(served.target)
    await player.batch(batch(1), batch(2))
    await asyncio.sleep(0.1)
    player.cut()
    await asyncio.wait_for(noticed.wait(), 120)
    served.target.gate.set()
    _, opened = await served.open()
    assert opened.index == 1


async def test_a_newer_session_ends_the_older_stream(served: Served) -> None:
    old, _ = await served.open()
    _, _ = await served.open()
    assert (await old.refused(Refusal.STALE_SESSION)).epoch == 1


async def test_poison_stops_the_stream_after_the_entries_before_it(served: Served) -> None:
    served.target.poison = {4}
    player, _ = await served.open()
    await player.batch(batch(0, 2), batch(2, 3), batch(5))
    refused = await player.refused(Refusal.POISON, acks=3)
    assert (refused.index, refused.detail, refused.chain) == (4, "entry 4 tastes bad", value_at(3))
    player, opened = await served.open()
    assert opened == (3, digests.extend(0, batch(0, 3).messages), value_at(3))
    kept = Delivery(4, batch(3).messages[0].payload, True)
    await player.batch(covering(3, 5, kept, batch(4).messages[0]))
    await player.acked(5)
    assert list(served.target.quarantine()) == [(4, kept.payload)]


async def test_poison_first_in_its_batch_leaves_the_index(served: Served) -> None:
    served.target.poison = {1}
    player, _ = await served.open()
    await player.batch(batch(0))
    assert (await player.refused(Refusal.POISON)).index == 1
    assert (await served.open())[1].index == 0


async def wait_together(served: Served, came: list[int], player: ConformanceStream, *batches: Batch) -> None:
    """The batches wait for the commit of another one, so that the next commit joins them."""
    served.target.gate.clear()
    await player.batch(batch(0))
    await entered(served.target)
    read = len(came)
    await player.batch(*batches)
    await until(lambda: len(came) == read + len(batches))
    served.target.gate.set()


async def test_poison_after_batches_that_were_joined_leaves_the_chain_value_of_their_end(
    served: Served, came: list[int]
) -> None:
    """The delivery that ends a range has no chain value of its own on the wire."""
    served.target.poison = {4}
    player, _ = await served.open()
    await wait_together(served, came, player, batch(1), batch(2), batch(3))
    refused = await player.refused(Refusal.POISON, acks=3)
    assert (refused.index, refused.chain) == (4, value_at(3))
    assert [commit.to for commit in served.target.commits] == [1, 3]
    assert (await served.open())[1].chain == value_at(3)


async def test_a_batch_of_another_history_is_not_joined_to_those_before_it(served: Served, came: list[int]) -> None:
    player, _ = await served.open()
    await wait_together(served, came, player, batch(1), batch(2)._replace(prev_chain=b"another!"), batch(3))
    refused = await player.refused(Refusal.DIVERGED, acks=2)
    assert (refused.index, refused.chain) == (2, value_at(2))
    assert (await served.open())[1] == (2, digests.extend(0, batch(0, 2).messages), value_at(2))


async def test_two_poisoned_entries_are_told_one_by_one_from_the_first(served: Served) -> None:
    served.target.poison = {2, 3}
    player, _ = await served.open()
    await player.batch(batch(0, 4))
    assert (await player.refused(Refusal.POISON, acks=1)).index == 2


async def test_a_store_in_trouble_ends_the_stream_with_its_reason(served: Served) -> None:
    player, _ = await served.open()
    served.target.error = OSError(28, "No space left on device")
    await player.batch(batch(0))
    answer = await player.answer()
    assert isinstance(answer, StreamEnded)
    assert "No space left" in str(answer.error)
    served.target.error = None
    player, opened = await served.open()
    assert opened.index == 0
    await player.batch(batch(0))
    await player.acked(1)


async def test_what_is_read_ahead_is_bounded(served: Served, came: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "READ_AHEAD_BYTES", 100_000)
    player, _ = await served.open()
    served.target.gate.clear()

    async def send() -> None:
        await player.batch(*(batch(prev, length=20_000) for prev in range(1000)))

    sending = asyncio.create_task(send())
    await asyncio.sleep(0.5)
    # What one read of the socket brought may stand beyond the limit, not what came after.
    assert max(came) < 100_000 + 300_000
    assert len(came) < 100
    served.target.gate.set()
    await sending
    await player.acked(1000)


async def test_an_unknown_target_is_told_who_is_here(served: Served) -> None:
    player = await ConformanceStream.connect(served.address)
    answer = await player.open("t2", "log", Session(1, 1))
    assert isinstance(answer, TargetRefusal)
    assert answer.detail == "here is 't1', not 't2'"


async def test_the_trace_tells_what_the_target_decided(served: Served) -> None:
    player, _ = await served.open()
    await player.batch(batch(0, 2))
    await player.acked(2)
    await player.batch(batch(0, 2))
    await player.refused(Refusal.OUT_OF_SYNC)
    stale = await ConformanceStream.connect(served.address)
    await stale.open("t1", "log", Session(1, 1))
    who = {"node": "Tt1", "target": "t1", "epoch": 1, "term": 1}
    assert served.trace == [
        {**who, "ev": "accept", "index": 0},
        {**who, "ev": "apply", "index": 2},
        {**who, "ev": "reject"},
        {**who, "ev": "refuse"},
    ]


async def test_readers_see_the_durable_index(served: Served) -> None:
    player, _ = await served.open()
    waiting = asyncio.create_task(client.wait_for(served.address, "t1", 2))
    await player.batch(batch(0))
    await player.acked(1)
    assert (await client.position(served.address, "t1")).index == 1
    assert not waiting.done()
    await player.batch(batch(1, 5))
    assert (await waiting).index == 6
    assert await client.position(served.address) == served.server.position("t1")
    assert await client.consistent_cut([served.address]) == 6
    with pytest.raises(TargetError, match="did not reach index 7 within"):
        await client.wait_for(served.address, "t1", 7, timeout=0.3)
    with pytest.raises(TargetError, match="no target 't2' is here"):
        await client.position(served.address, "t2")


async def test_several_targets_share_a_server_and_have_a_consistent_cut() -> None:
    targets = {f"t{i}": MemoryTarget() for i in range(5)}
    server = TargetServer(targets)
    grpc, tcp = await server.start(grpc="127.0.0.1:0", tcp="127.0.0.1:0")
    for i, name in enumerate(targets):
        player = await ConformanceStream.connect(grpc if i % 2 else tcp)
        await player.open(name, "log", Session(1, 1))
        await player.batch(covering(0, 10 + i))
        await player.acked(10 + i)
        player.cut()
    where = {name: grpc if i % 2 else tcp for i, name in enumerate(targets)}
    assert await client.consistent_cut(where) == 10
    assert await client.consistent_cut([]) == 0
    await server.stop()


async def test_both_transports_share_one_fence() -> None:
    server = TargetServer({"t1": MemoryTarget()})
    grpc, tcp = await server.start(grpc="127.0.0.1:0", tcp="127.0.0.1:0")
    old = await ConformanceStream.connect(grpc)
    await old.open("t1", "log", Session(1, 1))
    new = await ConformanceStream.connect(tcp)
    await new.open("t1", "log", Session(2, 1))
    assert (await old.refused(Refusal.FENCED)).epoch == 2
    await server.stop()


async def test_stopping_finishes_the_commit_that_runs(served: Served) -> None:
    player, _ = await served.open()
    served.target.gate.clear()
    await player.batch(batch(0))
    await entered(served.target)
    stopping = asyncio.create_task(served.server.stop())
    await asyncio.sleep(0.3)
    served.target.gate.set()
    await stopping
    assert served.target.position().index == 1
    assert isinstance(await player.answer(), codec.Ack | StreamEnded)


@pytest.mark.parametrize(
    ("listen", "kind", "told"),
    [
        ({}, UserError, "needs an address"),
        ({"grpc": "127.0.0.1"}, AddressError, "HOST:PORT"),
        ({"tcp": "0.0.0.0:0"}, ConfigError, "not loopback"),
        ({"grpc": "0.0.0.0:0"}, ConfigError, "not loopback"),
    ],
)
async def test_a_bad_listen_address_is_refused(listen: dict[str, str], kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=told):
        await TargetServer({"t1": MemoryTarget()}).start(**listen)


@pytest.mark.parametrize("scheme", ["grpc", "tcp"])
async def test_a_port_in_use_is_refused(scheme: str) -> None:
    first = TargetServer({"t1": MemoryTarget()})
    address = (await first.start(**{scheme: "127.0.0.1:0"}))[0]
    second = TargetServer({"t1": MemoryTarget()})
    with pytest.raises(Unavailable, match="in use"):
        await second.start(**{scheme: address.partition("://")[2]})
    await first.stop()


async def test_insecure_allows_plain_text_when_it_is_meant() -> None:
    server = TargetServer({"t1": MemoryTarget()}, Security(insecure=True))
    assert len(await server.start(tcp="0.0.0.0:0")) == 1
    await server.stop()

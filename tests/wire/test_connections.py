"""Streams that share a TCP connection leave together and end alone; one that may be dead gets no new stream."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.fence import Position, TargetRefusal
from logplayer.errors import Poison
from logplayer.target import tcp_peer
from logplayer.target.protocol import Change
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.target.stream import READ_AHEAD_BYTES
from logplayer.target.tcp_peer import TcpPeer
from logplayer.wire import codec
from logplayer.wire.addresses import parse
from logplayer.wire.connections import Connections
from logplayer.wire.framing import CONNECTION, Deframer, frame
from logplayer.wire.security import Security
from logplayer.wire.transport import Link
from tests.wire.wire_diary import Diary

NAMES = ("t1", "t2", "t3")


@pytest.fixture
async def server() -> AsyncIterator[TargetServer]:
    served = TargetServer({name: MemoryTarget() for name in NAMES})
    await served.start(tcp="127.0.0.1:0")
    yield served
    await served.stop()


def peers(server: TargetServer) -> set[TcpPeer]:
    """The connections that the server has."""
    return server._servers[0]._peers  # type: ignore[union-attr]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110 - what is watched has no event.
            await asyncio.sleep(0.005)


async def opened(shared: Connections, server: TargetServer, name: str, term: int = 1) -> tuple[Link, Diary]:
    diary = Diary()
    link = await shared.connect(server.addresses[0], diary)
    link.send(codec.encode_open(name, "log", Session(1, term)))
    await until(
        lambda: any(isinstance(what, codec.SessionOpened) for what in diary.heard) and "writable" in diary.heard
    )
    return link, diary


def play(link: Link, prev: int, to: int) -> None:
    link.send(codec.encode_batch(prev, to, [Delivery(to, codec.encode_mutation(b"k", b"%d" % to).encoded)]))


async def acked(diary: Diary, index: int) -> None:
    await until(lambda: any(isinstance(what, codec.Ack) and what.index == index for what in diary.heard))


async def test_the_streams_of_one_address_share_a_connection_also_when_they_are_opened_at_once(
    server: TargetServer,
) -> None:
    shared = Connections()
    found = await asyncio.gather(*(opened(shared, server, name) for name in NAMES))
    assert len(peers(server)) == 1
    for link, _ in found:
        play(link, 0, 5)
    for _, diary in found:
        await acked(diary, 5)
    for link, _ in found:
        link.close()
    await until(lambda: not peers(server))


async def test_a_stream_that_is_cut_ends_alone_and_the_next_gets_another_connection(server: TargetServer) -> None:
    shared = Connections()
    (cut, gone), (link, diary) = [await opened(shared, server, name) for name in ("t1", "t2")]
    cut.close()
    assert await gone.end() is None
    play(link, 0, 1)
    await acked(diary, 1)
    [peer] = peers(server)
    await until(lambda: len(peer._lanes) == 1)
    again, heard = await opened(shared, server, "t1", term=2)
    assert len(peers(server)) == 2, "whoever cut the stream may have waited in vain for its peer"
    play(again, 0, 1)
    await acked(heard, 1)
    play(link, 1, 2)
    await acked(diary, 2)
    link.close()
    again.close()
    await until(lambda: not peers(server))


async def test_a_stream_that_is_refused_ends_alone_and_the_next_joins_the_connection(server: TargetServer) -> None:
    shared = Connections()
    link, diary = await opened(shared, server, "t1")
    other, refused = Diary(), Diary()
    second = await shared.connect(server.addresses[0], refused)
    second.send(codec.encode_open("nobody", "log", Session(1, 1)))
    assert await refused.end() is None
    assert any(isinstance(what, TargetRefusal) and what.reason is Refusal.WRONG_TARGET for what in refused.heard)
    third = await shared.connect(server.addresses[0], other)
    third.send(b"\xff\xff")
    assert "not a ToTarget message" in str(await other.end())
    play(link, 0, 1)
    await acked(diary, 1)
    await opened(shared, server, "t2")
    assert len(peers(server)) == 1


class Hasty(Diary):
    """Closes its link when it is refused, as a player does."""

    link: Link

    def received(self, data: bytes) -> None:
        super().received(data)
        if isinstance(self.heard[-1], TargetRefusal):
            self.link.close()


async def test_to_close_a_link_that_was_refused_is_not_to_cut_it(server: TargetServer) -> None:
    shared = Connections()
    await opened(shared, server, "t1")
    for _ in range(3):
        hasty = Hasty()
        hasty.link = await shared.connect(server.addresses[0], hasty)
        hasty.link.send(codec.encode_open("nobody", "log", Session(1, 1)))
        assert await hasty.end() is None
        assert isinstance(hasty.heard[-2], TargetRefusal), "and nothing comes behind the end"
        assert len(peers(server)) == 1


async def test_the_order_of_first_messages_need_not_be_that_of_the_links(server: TargetServer) -> None:
    shared = Connections()
    early, late = Diary(), Diary()
    first = await shared.connect(server.addresses[0], early)
    second = await shared.connect(server.addresses[0], late)
    for link, diary, name in ((second, late, "t2"), (first, early, "t1")):
        link.send(codec.encode_open(name, "log", Session(1, 1)))
        assert codec.SessionOpened(0, 0) in await diary.until(2)
    silent = Diary()
    (await shared.connect(server.addresses[0], silent)).close()
    assert await silent.end() is None
    play(first, 0, 1)
    await acked(early, 1)
    [peer] = peers(server)
    peer.cut()
    for diary in (early, late):
        await diary.end()


async def test_a_store_that_speaks_in_halves_of_characters_costs_its_neighbours_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Odd(MemoryTarget):
        def apply(self, change: Change) -> Position:
            if change.batch is not None:
                raise Poison("half a character: \ud800", change.batch.messages[0].index)
            return super().apply(change)

    served = TargetServer({"odd": Odd(inline=True), "t1": MemoryTarget(inline=True)})
    await served.start(tcp="127.0.0.1:0")
    shared = Connections()
    (odd, poisoned), (link, diary) = [await opened(shared, served, name) for name in ("odd", "t1")]
    play(odd, 0, 1)
    assert await poisoned.end() is None
    refused = next(what for what in poisoned.heard if isinstance(what, TargetRefusal))
    assert (refused.reason, refused.detail) == (Refusal.POISON, "half a character: ?")
    assert "half a character: ?" in caplog.text.encode().decode()
    play(link, 0, 1)
    await acked(diary, 1)
    await served.stop()


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ([frame(1, codec.encode_auth("secret"))], codec.UNAUTHENTICATED),
        ([frame(1, codec.PROBE)], codec.UNAUTHENTICATED),
        ([frame(CONNECTION, codec.PROBE)], codec.INVALID),
        ([frame(CONNECTION, b"")], codec.INVALID),
        ([frame(CONNECTION, codec.encode_auth("wrong"))], codec.UNAUTHENTICATED),
        ([frame(CONNECTION, codec.encode_auth("secret"))] * 2, codec.INVALID),
    ],
)
async def test_the_token_comes_first_and_for_the_connection(says: list[bytes], told: int) -> None:
    served = TargetServer({"t1": MemoryTarget()}, Security(token="secret"))
    await served.start(tcp="127.0.0.1:0")
    reader, writer = await asyncio.open_connection("127.0.0.1", parse(served.addresses[0]).port)
    writer.write(b"".join(says))
    async with asyncio.timeout(120):
        [(number, message)] = list(Deframer().feed(await reader.read(1000)))
    answer = codec.decode_to_player(message)
    assert number == CONNECTION
    assert isinstance(answer, codec.Failed)
    assert answer.code == told
    writer.close()
    await served.stop()


async def test_what_is_said_to_a_stream_that_has_ended_is_not_heard(server: TargetServer) -> None:
    """Its refusal may still be under way; a batch behind it must not begin a new stream under the old number."""
    reader, writer = await asyncio.open_connection("127.0.0.1", parse(server.addresses[0]).port)
    writer.write(frame(7, codec.encode_open("nobody", "log", Session(1, 1))))
    deframer = Deframer()

    async def answer() -> tuple[int, codec.ToPlayer]:
        async with asyncio.timeout(120):
            while True:
                for number, message in deframer.feed(await reader.read(1000)):
                    return number, codec.decode_to_player(message)

    number, said = await answer()
    assert (number, type(said)) == (7, TargetRefusal)
    for late in (7, 3):  # The one that ended, and a number that was passed over.
        writer.write(frame(late, codec.encode_open("t1", "log", Session(1, 1))))
    writer.write(frame(7, b"") + frame(8, codec.encode_open("t1", "log", Session(1, 2))))
    assert await answer() == (8, codec.SessionOpened(0, 0))
    writer.close()


async def test_a_broken_connection_ends_every_stream_once(server: TargetServer) -> None:
    shared = Connections()
    found = [await opened(shared, server, name) for name in NAMES]
    for peer in list(peers(server)):
        peer.cut()
    for link, diary in found:
        await diary.end()
        link.send(codec.PROBE)
        link.close()
    await asyncio.sleep(0.05)
    for _, diary in found:
        assert [what for what in diary.heard if isinstance(what, tuple) and what[0] == "closed"] == diary.heard[-1:]
    await opened(shared, server, "t1", term=2)


async def test_trouble_with_the_connection_is_told_to_every_stream() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(frame(CONNECTION, codec.encode_failed(codec.UNAUTHENTICATED, "the token is wrong")))

    odd = await asyncio.start_server(talk, "127.0.0.1", 0)
    shared, diaries = Connections(), [Diary(), Diary()]
    links = [await shared.connect(f"tcp://127.0.0.1:{odd.sockets[0].getsockname()[1]}", diary) for diary in diaries]
    links[0].send(codec.PROBE)
    for diary in diaries:
        assert "refused the token" in str(await diary.end())
    odd.close()


async def test_a_connection_without_streams_is_cut(server: TargetServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_peer, "_IDLE_SECONDS", 1.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", parse(server.addresses[0]).port)
    writer.write(frame(1, codec.encode_open("t1", "log", Session(1, 1))))
    await reader.readexactly(8)
    await asyncio.sleep(1.2)
    assert len(peers(server)) == 1, "it has a stream"
    writer.write(frame(1, b""))
    await until(lambda: not peers(server))
    writer.close()


async def test_a_connection_has_so_many_streams_and_no_more(
    server: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_peer, "STREAMS_MAX", 2)
    shared = Connections()
    diaries = [(await opened(shared, server, name))[1] for name in ("t1", "t2")]
    third = Diary()
    (await shared.connect(server.addresses[0], third)).send(codec.PROBE)
    for diary in (*diaries, third):
        assert "more than 2 streams" in str(await diary.end())


class Slow(MemoryTarget):
    """Commits when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def apply(self, change: Any) -> Any:
        if change.batch is not None:
            self.gate.wait(120)
        return super().apply(change)


async def test_a_stream_that_ends_while_it_is_full_lets_the_others_go_on() -> None:
    slow = Slow()
    server = TargetServer({"slow": slow, "t1": MemoryTarget()})
    await server.start(tcp="127.0.0.1:0")
    shared = Connections()
    (full, _), (link, diary) = [await opened(shared, server, name) for name in ("slow", "t1")]
    full.send(codec.encode_batch(0, 1, [Delivery(1, bytes(READ_AHEAD_BYTES + 1))]))
    [peer] = peers(server)
    await until(lambda: bool(peer._full))
    play(link, 0, 1)
    await asyncio.sleep(0.1)
    assert not any(isinstance(what, codec.Ack) for what in diary.heard), "no stream of a full connection is read"
    slow.gate.set()
    await acked(diary, 1)
    assert not peer._full
    await server.stop()

"""What the links of a connection send within one turn of the event loop leaves with one write."""

from __future__ import annotations

import asyncio

from wire_diary import Diary, wired

from logplayer.errors import TargetError
from logplayer.wire.connections import Connections
from logplayer.wire.framing import frame
from logplayer.wire.tcp_link import TcpConnection


async def test_what_is_sent_in_one_turn_leaves_with_one_write_at_its_end_or_when_told() -> None:
    begun: list[TcpConnection] = []

    def tells(connection: TcpConnection) -> bool:
        begun.append(connection)
        return len(begun) == 1  # The first time it will tell, then no more.

    connection, wire = wired(tells)
    diaries = [Diary(), Diary(), Diary()]
    links = [connection.link(diary) for diary in diaries]
    links[0].send(b"a")
    links[1].send(b"b")
    assert wire.written == []
    assert begun == [connection]
    await asyncio.sleep(0)
    assert wire.written == [], "it waits until it is told"
    connection.end_turn()
    assert wire.written == [frame(1, b"a") + frame(2, b"b")]
    links[2].send(b"c")
    assert [diary.heard for diary in diaries] == [[], [], []]
    await asyncio.sleep(0)
    assert wire.written[1:] == [frame(3, b"c")]
    assert [diary.heard for diary in diaries] == [["writable"]] * 3
    links[0].send(b"d")
    assert begun == [connection] * 2
    assert wire.written[2:] == []
    await asyncio.sleep(0)
    assert wire.written[2:] == [frame(1, b"d")]


async def test_what_the_only_link_of_a_connection_sends_leaves_at_once() -> None:
    connection, wire = wired()
    diary = Diary()
    connection.link(diary).send(b"a")
    assert wire.written == [frame(1, b"a")]
    assert diary.heard == []
    await asyncio.sleep(0)
    assert diary.heard == ["writable"]
    assert wire.written == [frame(1, b"a")]


async def test_the_end_of_a_stream_comes_behind_what_it_has_sent() -> None:
    """Otherwise its first message would begin a stream at the target that nobody ends."""
    connection, wire = wired()
    connection.link(Diary())
    link = connection.link(Diary())
    link.send(b"open")
    link.close()
    await asyncio.sleep(0)
    assert wire.written == [frame(1, b"open") + frame(1, b"")]


async def test_nobody_may_send_while_the_connection_is_full() -> None:
    connection, wire = wired()
    diaries = [Diary(), Diary()]
    links = [connection.link(diary) for diary in diaries]
    links[0].send(b"a")
    connection.pause_writing()
    links[1].send(b"b")
    await asyncio.sleep(0)
    assert wire.written == [frame(1, b"a") + frame(2, b"b")]
    assert [diary.heard for diary in diaries] == [[], []]
    connection.resume_writing()
    assert [diary.heard for diary in diaries] == [["writable"], ["writable"]]


async def test_what_is_sent_while_it_is_held_leaves_when_it_is_flushed() -> None:
    shared = Connections()
    connection, wire = wired(shared._begins)
    diaries = [Diary(), Diary()]
    links = [connection.link(diary) for diary in diaries]
    for turn in (1, 2):
        shared.hold()
        for link in links:
            link.send(b"x")
        await asyncio.sleep(0.01)
        assert len(wire.written) == turn - 1
        shared.flush()
        assert wire.written[turn - 1 :] == [frame(1, b"x") + frame(2, b"x")]
        await asyncio.sleep(0)
        assert [diary.heard for diary in diaries] == [["writable"] * turn] * 2


async def test_what_is_sent_while_nothing_is_held_leaves_at_the_end_of_the_turn() -> None:
    shared = Connections()
    connection, wire = wired(shared._begins)
    links = [connection.link(Diary()), connection.link(Diary())]
    shared.hold()
    shared.flush()
    links[0].send(b"x")
    assert wire.written == []
    await asyncio.sleep(0)
    assert wire.written == [frame(1, b"x")]


async def test_a_connection_that_ends_while_it_is_held_is_an_end_for_its_links_and_no_error_for_who_flushes() -> None:
    shared = Connections()
    connection, wire = wired(shared._begins)
    diaries = [Diary(), Diary()]
    links = [connection.link(diary) for diary in diaries]
    shared.hold()
    links[0].send(b"x")
    connection.connection_lost(OSError("cut"))
    shared.flush()
    for diary in diaries:
        assert isinstance(await diary.end(), TargetError)
    assert wire.written == []

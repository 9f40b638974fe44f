"""What the links of a connection send within one turn of the event loop leaves with one write."""

from __future__ import annotations

import asyncio

import pytest
from wire_diary import Diary, wired

from logplayer.core.fence import Position
from logplayer.errors import TargetError
from logplayer.wire import codec
from logplayer.wire.connections import Connections
from logplayer.wire.framing import frame
from logplayer.wire.tcp_link import PROMPT_BYTES, TcpConnection


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
    assert begun == [connection] * 2
    assert [diary.heard for diary in diaries] == [[], [], []]
    await asyncio.sleep(0)
    assert wire.written[1:] == [frame(3, b"c")]
    assert [diary.heard for diary in diaries] == [["writable"]] * 3


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
        assert len(wire.written) == turn - 1
        shared.flush()
        assert wire.written[turn - 1 :] == [frame(1, b"x") + frame(2, b"x")]
        shared.settle()
        assert [diary.heard for diary in diaries] == [["writable"] * turn] * 2


async def test_the_rest_of_an_earlier_turn_does_not_end_that_of_a_later_one() -> None:
    shared = Connections()
    connection, _ = wired(shared._begins)
    link = connection.link(Diary())
    rests = []
    for data in (b"x", b"x", bytes(PROMPT_BYTES)):
        shared.hold()
        link.send(data)
        shared.flush()
        rests.append(connection._rest)
        shared.settle()
    first, second, none = rests
    assert first is not None
    assert second is not None
    assert first.cancelled()
    assert second.cancelled()
    assert none is None


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


def resting(shared: Connections) -> tuple[TcpConnection, list[Diary]]:
    """A connection on which two links have sent little, and have not heard that they may send again."""
    connection, _ = wired(shared._begins)
    diaries = [Diary(), Diary()]
    links = [connection.link(diary) for diary in diaries]
    shared.hold()
    for link in links:
        link.send(b"x")
    shared.flush()
    return connection, diaries


async def test_after_little_was_sent_the_links_rest_and_not_for_long() -> None:
    _, diaries = resting(Connections())
    await asyncio.sleep(0)
    assert [diary.heard for diary in diaries] == [[], []]
    for diary in diaries:
        await diary.until(1)
    await asyncio.sleep(0.01)
    assert [diary.heard for diary in diaries] == [["writable"]] * 2


async def test_an_answer_ends_the_rest() -> None:
    connection, diaries = resting(Connections())
    connection.data_received(frame(1, codec.encode_ack(Position(7))))
    assert diaries[0].heard == ["writable", codec.Ack(7, 0)]
    assert diaries[1].heard == ["writable"]
    await asyncio.sleep(0.01)
    assert diaries[1].heard == ["writable"], "once"


async def test_who_rests_while_the_connection_is_full_waits_until_it_is_not() -> None:
    shared = Connections()
    connection, diaries = resting(shared)
    connection.pause_writing()
    shared.settle()
    await asyncio.sleep(0.01)
    assert [diary.heard for diary in diaries] == [[], []]
    connection.resume_writing()
    assert [diary.heard for diary in diaries] == [["writable"]] * 2


@pytest.mark.parametrize("links", [1, 2])
async def test_after_much_was_sent_nobody_rests(links: int) -> None:
    """Nor does the only link of a connection, whose message has left before the turn ends."""
    shared = Connections()
    connection, _ = wired(shared._begins)
    diary = Diary()
    first, *_others = [connection.link(diary) for _ in range(links)]
    shared.hold()
    first.send(bytes(PROMPT_BYTES))
    shared.flush()
    await asyncio.sleep(0)
    assert diary.heard == ["writable"]


async def test_what_another_link_sends_during_the_rest_does_not_wait_for_its_end() -> None:
    shared = Connections()
    connection, _ = resting(shared)
    wire = connection._transport
    third = connection.link(Diary())
    third.send(b"open")
    await asyncio.sleep(0)
    assert wire.written[1:] == [frame(3, b"open")]  # type: ignore[attr-defined]

"""What the links of a connection send within one turn leaves with one write, and when they may send again."""

from __future__ import annotations

import asyncio

import pytest

from logplayer.core.fence import Position
from logplayer.errors import TargetError
from logplayer.wire import codec, tcp_link
from logplayer.wire.framing import frame
from logplayer.wire.tcp_link import PROMPT_BYTES, TcpConnection, TcpLink
from logplayer.wire.turn import Turn
from tests.wire.wire_diary import Diary, wired


async def test_what_is_sent_outside_of_a_turn_leaves_with_one_write_when_the_loop_goes_on() -> None:
    connection, wire = wired()
    diaries = [Diary(), Diary(), Diary()]
    links = [connection.link(diary) for diary in diaries]
    links[0].send(b"a")
    links[1].send(b"b")
    assert wire.written == []
    assert [diary.heard for diary in diaries] == [[], [], []]
    await asyncio.sleep(0)
    assert wire.written == [frame(1, b"a") + frame(2, b"b")]
    assert [diary.heard for diary in diaries] == [["writable"], ["writable"], []]


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


async def test_what_is_sent_in_a_turn_leaves_at_its_end_and_the_next_turn_ends_the_rest() -> None:
    turn = Turn()
    connection, wire = wired(turn)
    diaries = [Diary(), Diary()]
    links = [connection.link(diary) for diary in diaries]
    for nth in (1, 2):
        with turn:
            assert [diary.heard for diary in diaries] == [["writable"] * (nth - 1)] * 2
            for link in links:
                link.send(b"x")
            assert len(wire.written) == nth - 1
        assert wire.written[nth - 1 :] == [frame(1, b"x") + frame(2, b"x")]
        assert [diary.heard for diary in diaries] == [["writable"] * (nth - 1)] * 2


async def test_turns_nest_and_the_outermost_one_writes() -> None:
    turn = Turn()
    connection, wire = wired(turn)
    links = [connection.link(Diary()), connection.link(Diary())]
    with turn:
        for link in links:
            with turn:
                link.send(b"x")
        assert wire.written == []
    assert wire.written == [frame(1, b"x") + frame(2, b"x")]


class Eager(Diary):
    """A listener that sends again whenever it hears anything, in a turn of its own, as a player does."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.link: TcpLink
        self._turn = turn

    def writable(self) -> None:
        super().writable()
        with self._turn:
            self.link.send(b"more")


@pytest.mark.parametrize("how", ["a turn", "an answer", "the rest is over", "there is room"])
async def test_what_is_sent_as_soon_as_it_may_be_leaves_with_one_write_too(how: str) -> None:
    """Whoever lets twenty streams send again must not pay for twenty writes."""
    turn = Turn()
    connection, wire = wired(turn)
    eager = [Eager(turn), Eager(turn)]
    for one in eager:
        one.link = connection.link(one)
    with turn:
        for one in eager:
            one.link.send(b"x")
    if how == "a turn":
        with turn:
            pass
    elif how == "an answer":
        connection.data_received(frame(1, codec.encode_ack(Position(7))))
    elif how == "there is room":
        connection.pause_writing()
        connection.resume_writing()
    else:
        await eager[1].until(1)
    assert wire.written[1:2] == [frame(1, b"more") + frame(2, b"more")]


async def test_an_answer_on_one_connection_leaves_the_others_at_rest() -> None:
    turn = Turn()
    connection, diaries = resting(turn)
    _, others = resting(turn)
    connection.data_received(frame(1, codec.encode_ack(Position(7))))
    assert diaries[1].heard == ["writable"]
    assert [diary.heard for diary in others] == [[], []]


async def test_the_rest_of_an_earlier_turn_does_not_end_that_of_a_later_one() -> None:
    turn = Turn()
    connection, _ = wired(turn)
    link = connection.link(Diary())
    rests = []
    for data in (b"x", b"x", bytes(PROMPT_BYTES)):
        with turn:
            link.send(data)
        rests.append(connection._rest)
    first, second, none = rests
    assert first is not None
    assert second is not None
    assert first.cancelled()
    assert second.cancelled()
    assert none is None


async def test_a_control_message_leaves_in_order_at_any_time_and_nothing_answers_it() -> None:
    turn = Turn()
    connection, wire = wired(turn)
    diary = Diary()
    link = connection.link(diary)
    connection.link(Diary())
    with turn:
        link.send_control(b"open")
    assert connection._rest is None, "nobody waits to hear of it"
    with turn:
        link.send(b"batch")
        link.send_control(b"probe")
        link.send_control(b"probe")
    assert wire.written == [frame(1, b"open"), frame(1, b"batch") + frame(1, b"probe") * 2]
    with turn:
        assert diary.heard == ["writable"]
    await asyncio.sleep(0.01)
    assert diary.heard == ["writable"]


async def test_a_connection_that_ends_within_a_turn_ends_its_links_and_the_turn_ends_as_usual() -> None:
    turn = Turn()
    connection, wire = wired(turn)
    diaries = [Diary(), Diary()]
    links = [connection.link(diary) for diary in diaries]
    with turn:
        links[0].send(b"x")
        connection.connection_lost(OSError("cut"))
    for diary in diaries:
        assert isinstance(await diary.end(), TargetError)
    assert wire.written == []


async def test_room_in_the_socket_is_no_news_for_a_link_whose_message_has_not_left() -> None:
    turn = Turn()
    connection, wire = wired(turn)
    diary = Diary()
    link = connection.link(diary)
    connection.link(Diary())
    connection.pause_writing()
    with turn:
        link.send(b"x")
        connection.resume_writing()
        assert diary.heard == []
    assert wire.written == [frame(1, b"x")]
    await diary.until(1)


def resting(turn: Turn) -> tuple[TcpConnection, list[Diary]]:
    """A connection on which two links have sent little, and have not heard that they may send again."""
    connection, _ = wired(turn)
    diaries = [Diary(), Diary()]
    links = [connection.link(diary) for diary in diaries]
    with turn:
        for link in links:
            link.send(b"x")
    return connection, diaries


async def test_after_little_was_sent_the_links_rest_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_link, "REST_SECONDS", 0.5)  # A busy machine may stop us for longer than the real two ms.
    _, diaries = resting(Turn())
    await asyncio.sleep(0)
    assert [diary.heard for diary in diaries] == [[], []]
    for diary in diaries:
        await diary.until(1)
    await asyncio.sleep(0.01)
    assert [diary.heard for diary in diaries] == [["writable"]] * 2


async def test_an_answer_ends_the_rest() -> None:
    connection, diaries = resting(Turn())
    connection.data_received(frame(1, codec.encode_ack(Position(7))))
    assert diaries[0].heard == ["writable", codec.Ack(7, 0)]
    assert diaries[1].heard == ["writable"]
    await asyncio.sleep(0.01)
    assert diaries[1].heard == ["writable"], "once"


async def test_who_rests_while_the_connection_is_full_waits_until_it_is_not() -> None:
    turn = Turn()
    connection, diaries = resting(turn)
    connection.pause_writing()
    with turn:
        pass
    await asyncio.sleep(0.01)
    assert [diary.heard for diary in diaries] == [[], []]
    connection.resume_writing()
    assert [diary.heard for diary in diaries] == [["writable"]] * 2


@pytest.mark.parametrize("links", [1, 2])
async def test_after_much_was_sent_nobody_rests(links: int) -> None:
    """Nor does the only link of a connection, whose message has left before the turn ends."""
    turn = Turn()
    connection, _ = wired(turn)
    diary = Diary()
    first, *_others = [connection.link(diary) for _ in range(links)]
    with turn:
        first.send(bytes(PROMPT_BYTES))
    await asyncio.sleep(0)
    assert diary.heard == ["writable"]


async def test_what_another_link_sends_during_the_rest_does_not_wait_for_its_end() -> None:
    connection, _ = resting(Turn())
    wire = connection._transport
    third = connection.link(Diary())
    third.send(b"open")
    await asyncio.sleep(0)
    assert wire.written[1:] == [frame(3, b"open")]  # type: ignore[attr-defined]

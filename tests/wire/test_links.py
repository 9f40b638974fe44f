"""Links over real sockets: the listener's contract, back-pressure, cuts, frozen peers, odd targets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from logplayer.core.entry import Delivery, Session
from logplayer.core.invariants import InvariantViolation
from logplayer.errors import AddressError, ConfigError, TargetError
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.wire import codec
from logplayer.wire.framing import CONNECTION, HEAD_BYTES, frame
from logplayer.wire.transport import Link, connect
from tests.wire.wire_diary import Diary

OPEN = codec.encode_open("t1", "log", Session(1, 1))


@pytest.fixture(params=["grpc", "tcp"])
async def address(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    server = TargetServer({"t1": MemoryTarget()})
    yield (await server.start(**{request.param: "127.0.0.1:0"}))[0]
    await server.stop()


async def test_a_message_out_and_one_in(address: str) -> None:
    diary = Diary()
    link = await connect(address, diary)
    assert diary.heard == []
    link.send(OPEN)
    assert diary.heard == [], "callbacks never come from inside send"
    assert set(await diary.until(2)) == {"writable", codec.SessionOpened(0, 0)}
    link.close()
    assert await diary.end() is None


async def test_closing_is_heard_once_and_last(address: str) -> None:
    diary = Diary()
    link = await connect(address, diary)
    link.send(OPEN)
    link.close()
    link.close()
    link.send(OPEN)  # Nothing happens on a closed link.
    assert await diary.end() is None
    await asyncio.sleep(0.2)
    assert diary.heard == [("closed", None)]


async def test_two_sends_at_once_are_a_bug_of_the_caller(address: str) -> None:
    link = await connect(address, Diary())
    link.send(OPEN)
    with pytest.raises(InvariantViolation, match="OneWriter"):
        link.send(OPEN)
    link.close()


async def test_control_messages_are_sent_in_order_at_any_time_and_nothing_answers_them(address: str) -> None:
    diary = Diary()
    link = await connect(address, diary)
    link.send_control(OPEN)
    assert await diary.until(1) == [codec.SessionOpened(0, 0)]
    link.send(codec.encode_batch(0, 3, [Delivery(3, b"")]))
    link.send_control(codec.PROBE)
    link.send_control(codec.PROBE)
    while not any(isinstance(heard, codec.Ack) and heard.index == 3 for heard in diary.heard):
        await diary.until(len(diary.heard) + 1)
    await asyncio.sleep(0.05)
    assert diary.heard.count("writable") == 1
    link.close()
    link.send_control(codec.PROBE)  # Nothing happens on a closed link.
    assert await diary.end() is None


async def test_a_refusal_comes_before_the_end_even_with_messages_under_way(address: str) -> None:
    """The last words must not be lost because the player was still sending."""
    for _ in range(10):
        diary = Diary()
        link = await connect(address, diary)
        link.send(codec.encode_open("t2", "log", Session(1, 1)))
        sent = 1
        for _ in range(50):
            await asyncio.sleep(0)
            if diary.heard.count("writable") == sent:
                sent += 1
                link.send(codec.encode_batch(0, 1, [Delivery(1, bytes(50_000))]))
        assert await diary.end() is None
        assert isinstance(next(what for what in diary.heard if what != "writable"), codec.TargetRefusal)


async def test_the_targets_end_is_told(address: str) -> None:
    server = TargetServer({"t1": MemoryTarget()})
    scheme = address.partition("://")[0]
    mine = (await server.start(**{scheme: "127.0.0.1:0"}))[0]
    diary = Diary()
    link = await connect(mine, diary)
    link.send(OPEN)
    await diary.until(2)
    await server.stop()
    error = await diary.end()
    assert error is None or isinstance(error, TargetError)


async def test_a_link_waits_for_a_target_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """writable() stays away once the buffers are full: the player's batches then grow instead of its memory."""
    listening = socket.create_server(("127.0.0.1", 0))
    diary = Diary()
    link = await connect(f"tcp://127.0.0.1:{listening.getsockname()[1]}", diary)
    chunk = codec.encode_batch(0, 1, [Delivery(1, bytes(200_000))])
    sent = 0
    for _ in range(200):
        link.send(chunk)
        sent += 1
        await asyncio.sleep(0.01)
        if len(diary.heard) < sent:
            break
    assert sent < 200, "40 MB went into a peer that reads nothing"
    link.close()
    listening.close()


@pytest.mark.parametrize("scheme", ["grpc", "tcp"])
async def test_nobody_there(scheme: str) -> None:
    diary = Diary()
    with socket.socket() as bound:  # It does not listen, and nobody else can meanwhile.
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(TargetError, match=r"no connection to .*: Connection refused"):
            await connect(f"{scheme}://127.0.0.1:{bound.getsockname()[1]}", diary, timeout=120)
    assert diary.heard == []


async def test_plain_text_beyond_loopback_is_refused() -> None:
    with pytest.raises(ConfigError, match="--insecure if plain text is meant"):
        await connect("grpc://192.0.2.1:7001", Diary())
    with pytest.raises(AddressError):
        await connect("192.0.2.1:7001", Diary())


# --- tcp:// against peers that misbehave. -----------------------------------------------------------------


async def odd_peer(says: bytes, *, then_close: bool = True) -> tuple[Link, Diary, asyncio.Server]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(HEAD_BYTES + len(OPEN))
        writer.write(says)
        if then_close:
            await writer.drain()
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    diary = Diary()
    link = await connect(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}", diary)
    link.send(OPEN)
    return link, diary, server


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "is an HTTP port"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "does not speak this protocol"),
        (frame(1, b"\x12\x02")[:-1], "ended inside a message"),
        (frame(1, codec.encode_failed(codec.INTERNAL, "the disk is full")), "the disk is full"),
        (frame(CONNECTION, codec.encode_failed(codec.UNAUTHENTICATED, "no")), "refused the token"),
        (frame(1, b"\x2a\x7f"), "does not speak this protocol"),
    ],
)
async def test_what_an_odd_peer_says_is_one_clear_error(says: bytes, told: str) -> None:
    _, diary, server = await odd_peer(says)
    error = await diary.end()
    assert isinstance(error, TargetError)
    assert told in str(error)
    assert diary.heard[:-1] == ["writable"]
    server.close()


async def test_a_peer_that_just_closes() -> None:
    _, diary, server = await odd_peer(b"")
    assert await diary.end() is None
    server.close()


# --- tcp:// targets against players that misbehave. -------------------------------------------------------


async def test_a_connection_that_says_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logplayer.target.tcp_peer._IDLE_SECONDS", 0.1)
    server = TargetServer({"t1": MemoryTarget()})
    address = (await server.start(tcp="127.0.0.1:0"))[0]
    talking, silent = Diary(), Diary()
    link = await connect(address, talking)
    link.send(OPEN)
    await connect(address, silent)
    await silent.end()
    assert codec.SessionOpened(0, 0) in talking.heard
    assert not any(isinstance(what, tuple) and what[0] == "closed" for what in talking.heard)
    link.close()
    await server.stop()


@pytest.mark.parametrize(
    "says",
    [b"GET / HTTP/1.1\r\n\r\n", frame(1, b"\xff\xff"), frame(CONNECTION, OPEN), (2**31).to_bytes(4, "big") + bytes(4)],
)
async def test_a_target_tells_a_stranger_what_is_wrong_and_serves_on(says: bytes) -> None:
    server = TargetServer({"t1": MemoryTarget()})
    address = (await server.start(tcp="127.0.0.1:0"))[0]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]))
    writer.write(says)
    head = await asyncio.wait_for(reader.readexactly(HEAD_BYTES), 120)
    answer = codec.decode_to_player(await reader.readexactly(int.from_bytes(head[:4], "big")))
    assert isinstance(answer, codec.Failed)
    assert answer.code == codec.INVALID
    writer.close()
    diary = Diary()
    link = await connect(address, diary)
    link.send(OPEN)
    assert codec.SessionOpened(0, 0) in await diary.until(2)
    link.close()
    await server.stop()

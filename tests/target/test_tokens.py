"""A target with a token answers nobody without it: each call over gRPC and each kind of frame over tcp://, without a
token, with an empty, a wrong, a shorter and a longer one."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from logplayer.core.entry import Session
from logplayer.core.fence import Batch, Position
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.testing.conformance.client import encode, message
from logplayer.wire import codec
from logplayer.wire.addresses import parse
from logplayer.wire.framing import CONNECTION, Deframer, frame
from logplayer.wire.grpc_link import SERVICE
from logplayer.wire.logplayer.v1 import target_pb2 as pb
from logplayer.wire.security import Security
from logplayer.wire.versions import Versions

TOKEN = "s3cret-s3cret"
SPOKEN = codec.spoken_versions()
WRONG = {
    "none": None,
    "empty": "",
    "wrong": "S3cret-s3cret",
    "shorter": TOKEN[:-1],
    "longer": TOKEN + "x",
    "longer by a space": TOKEN + " ",
    "twice": TOKEN * 2,
    "other case": TOKEN.upper(),
}
OPEN = codec.encode_open("t1", "log", Session(9, 9))
FRAMES = {
    "open": OPEN,
    "batch": encode(Batch(0, 1, (message(1, b"k", b"v"),))),
    "probe": codec.PROBE,
    "position": codec.encode_ask(codec.AskPosition("t1")),
    "wait_for": codec.encode_ask(codec.AskPosition("t1", 1)),
    "auth on a stream": codec.encode_auth(TOKEN),
}
CALLS = {
    "Position": pb.PositionRequest(target="t1", versions=SPOKEN).SerializeToString(),
    "WaitFor": pb.WaitForRequest(target="t1", index=1, versions=SPOKEN).SerializeToString(),
    "WaitFor of what is there": pb.WaitForRequest(target="t1", versions=SPOKEN).SerializeToString(),
}
wrong = pytest.mark.parametrize("shown", WRONG.values(), ids=WRONG)


@pytest.fixture
async def server() -> AsyncIterator[TargetServer]:
    server = TargetServer({"t1": MemoryTarget()}, Security(token=TOKEN))
    await server.start(grpc="127.0.0.1:0", tcp="127.0.0.1:0")
    yield server
    assert server.position("t1") == Position(), "a stranger changed the target"
    await server.stop()


def metadata(shown: str | None) -> tuple[tuple[str, str], ...]:
    return () if shown is None else (("authorization", f"Bearer {shown}"),)


def test_every_call_of_the_service_is_among_them() -> None:
    """Play is a stream, and has a test of its own. Over tcp:// each kind of frame is asked."""
    asked = {name.partition(" ")[0] for name in CALLS} | {"Play"}
    assert asked == {method.name for method in pb.DESCRIPTOR.services_by_name["Target"].methods}
    assert {name.partition(" ")[0] for name in FRAMES} == set(pb.ToTarget.DESCRIPTOR.fields_by_name)


@wrong
@pytest.mark.parametrize("call", CALLS)
async def test_each_call_is_refused(call: str, shown: str | None, server: TargetServer) -> None:
    async with grpc.aio.insecure_channel(parse(server.addresses[0]).netloc) as channel:
        ask: Any = channel.unary_unary(f"/{SERVICE}/{call.partition(' ')[0]}", None, None)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(CALLS[call], metadata=metadata(shown), timeout=120)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@wrong
async def test_play_is_refused(shown: str | None, server: TargetServer) -> None:
    async with grpc.aio.insecure_channel(parse(server.addresses[0]).netloc) as channel:
        stream: Any = channel.stream_stream(f"/{SERVICE}/Play", None, None)
        play = stream(metadata=metadata(shown), timeout=120)
        await play.write(OPEN)
        answer = codec.decode_to_player(await play.read())
        play.cancel()
    assert isinstance(answer, codec.Failed)
    assert answer.code == codec.UNAUTHENTICATED


async def say(server: TargetServer, *frames: bytes) -> codec.Failed:
    """The one answer to the frames, which concerns the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", parse(server.addresses[1]).port)
    writer.write(b"".join(frames))
    deframer = Deframer()
    answers: list[Any] = []
    async with asyncio.timeout(30):
        while not answers:
            answers = list(deframer.feed(await reader.read(1000)))
    writer.close()
    assert [number for number, _ in answers] == [CONNECTION]
    answer = codec.decode_to_player(answers[0][1])
    assert isinstance(answer, codec.Failed)
    return answer


@wrong
@pytest.mark.parametrize("kind", FRAMES)
async def test_each_frame_is_refused(kind: str, shown: str | None, server: TargetServer) -> None:
    token = [] if shown is None else [frame(CONNECTION, codec.encode_auth(shown))]
    answer = await say(server, *token, frame(1, FRAMES[kind]))
    assert answer.code == codec.UNAUTHENTICATED


async def test_a_token_in_another_version_is_refused_by_its_version(server: TargetServer) -> None:
    """Whatever it is in that version: "the token is wrong" would send the operator to the wrong place."""
    for shown in (TOKEN, "of another kind"):
        answer = await say(server, frame(CONNECTION, codec.encode_auth(shown, Versions(7, 8))), frame(1, OPEN))
        assert answer.code == codec.VERSION
        assert "protocol versions 7 to 8" in answer.detail


async def test_the_right_token_opens_everything(server: TargetServer) -> None:
    """Otherwise the tests above would also pass for a target that refuses everybody."""
    async with grpc.aio.insecure_channel(parse(server.addresses[0]).netloc) as channel:
        for call in ("Position", "WaitFor of what is there"):
            ask: Any = channel.unary_unary(f"/{SERVICE}/{call.partition(' ')[0]}", None, None)
            assert codec.decode_position(await ask(CALLS[call], metadata=metadata(TOKEN))) == Position()
    reader, writer = await asyncio.open_connection("127.0.0.1", parse(server.addresses[1]).port)
    writer.write(frame(CONNECTION, codec.encode_auth(TOKEN)) + frame(1, FRAMES["position"]))
    async with asyncio.timeout(30):
        [(number, answer)] = list(Deframer().feed(await reader.read(1000)))
    assert (number, codec.decode_to_player(answer)) == (1, codec.PositionAnswer(Position(), connected=False))
    writer.close()


@pytest.mark.parametrize(("bytes_", "code"), [(16 * 1024 + 1, codec.INVALID), (16 * 1024, codec.UNAUTHENTICATED)])
async def test_a_stranger_may_send_16_kib(bytes_: int, code: int, server: TargetServer) -> None:
    """The length alone is refused, before anything of the frame is kept."""
    whole = frame(1, b"x" * bytes_)
    assert (await say(server, whole[:9] if code == codec.INVALID else whole)).code == code


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for presented in (TOKEN, "", TOKEN[0], TOKEN + "x"):
        assert not Security(token=TOKEN).permits(presented), "decided without compare_digest"
    assert len(compared) == 4


def test_half_a_character_is_a_wrong_token() -> None:
    assert not Security(token=TOKEN).permits("\ud800")
    assert not Security(token=TOKEN).permits(TOKEN + "\udcff")

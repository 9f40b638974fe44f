"""HTTP: who gets in, what a question may cost, and that no question is too odd for an answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request

from logplayer.admin import http_server
from logplayer.admin.access import Access, AccessRefused
from logplayer.admin.app import LONG_BODY_BYTES_MAX, Face, Facts, face_app, question_app
from logplayer.admin.exposition import Samples
from logplayer.admin.http_client import ask
from logplayer.admin.http_server import HEAD_BYTES_MAX, HttpServer
from logplayer.errors import ConfigError, Unavailable, UserError
from logplayer.wire.security import NONE, Security
from tests.player.player_support import until
from tests.player.test_security import Authority, authority

TOKEN = Security(token="s3cret")
__all__ = ["authority"]


@asynccontextmanager
async def listening(app: http_server.App, security: Security = NONE) -> AsyncIterator[str]:
    """An HTTP server; whatever it leaves to the loop's own handler, a traceback, fails the test."""
    tracebacks: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: tracebacks.append(context))
    server = HttpServer(app, security)
    where = await server.start("127.0.0.1:0")
    try:
        yield where
    finally:
        await server.stop()
    assert tracebacks == []


def a_face(not_ready: str = "") -> Face:
    async def status() -> Facts:
        return {"fine": True}

    async def ready() -> str:
        return not_ready

    async def act(question: Facts) -> Facts:
        return {"heard": len(question)}

    async def refuse(question: Facts) -> Facts:
        raise UserError("not now")

    async def wait(question: Facts) -> Facts:
        raise Unavailable("later")

    async def metrics(into: Samples) -> None:
        into.add("logplayer_log_bytes", 7)

    return Face("test", status, ready, metrics, {"act": act, "refuse": refuse, "wait": wait})


def serving(security: Security = NONE, operator: str = "", not_ready: str = "") -> Any:
    return listening(face_app(a_face(not_ready), Access(security, operator)), security)


def asking(answer: Any, security: Security = NONE) -> Any:
    return listening(question_app(answer, Access(security)), security)


async def send(where: str, data: bytes, *, end: bool = True) -> bytes:
    """What comes back for ``data`` as it is."""
    host, port = where.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        if end:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def get(path: str, **headers: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\n{_lines({'host': '127.0.0.1'} | headers)}\r\n".encode()


def post(path: str, body: bytes = b"{}", **headers: str) -> bytes:
    named = {"host": "127.0.0.1", "content_length": str(len(body))} | headers
    return f"POST {path} HTTP/1.1\r\n{_lines(named)}\r\n".encode() + body


def _lines(headers: dict[str, str]) -> str:
    return "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())


def code_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def fine(question: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"heard": len(question)}


async def test_what_a_process_answers() -> None:
    async with serving() as where:
        assert await ask(where, "/status") == {
            "version": 1,
            "kind": "test",
            "fine": True,
            "actions": ["act", "refuse", "wait"],
        }
        assert await ask(where, "/actions/act", {"a": 1}) == {"heard": 1}
        with pytest.raises(ConfigError, match="not now"):
            await ask(where, "/actions/refuse", {})
        with pytest.raises(Unavailable, match="later"):
            await ask(where, "/actions/wait", {})
        with pytest.raises(ConfigError, match="there is no action 'odd' here; there are: act, refuse, wait"):
            await ask(where, "/actions/odd", {})
        with pytest.raises(ConfigError, match="Not Found; see /status"):
            await ask(where, "/nowhere")
        assert code_of(await send(where, get("/healthz"))) == 200
        assert code_of(await send(where, get("/readyz"))) == 200


async def test_health_needs_no_token_and_readiness_says_why_not() -> None:
    async with serving(TOKEN, not_ready="it waits for its log") as where:
        assert code_of(await send(where, get("/healthz"))) == 200
        said = await send(where, get("/readyz"))
        assert (code_of(said), said.split(b"\r\n\r\n")[1]) == (503, b"it waits for its log\n")


@pytest.mark.parametrize("token", [None, "", "guess", "s3cre", "s3crets", "S3CRET", "s\xffcret", "Bearer s3cret"])
async def test_only_the_token_itself_opens_the_port(token: str | None) -> None:
    shown = b"" if token is None else f"authorization: Bearer {token}\r\n".encode("latin-1")
    head = b" HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n" + shown + b"\r\n"
    async with serving(TOKEN) as where:
        for question in (b"GET /status", b"POST /actions/act"):
            said = await send(where, question + head)
            assert code_of(said) == 401
            assert json.loads(said.split(b"\r\n\r\n")[1]) == {"error": "the token is missing or wrong"}
        assert (await ask(where, "/status", security=TOKEN))["fine"]


async def test_only_the_operators_token_acts() -> None:
    operator = replace(TOKEN, token="0perator")
    async with serving(TOKEN, "0perator") as where:
        assert (await ask(where, "/status", security=TOKEN))["fine"]
        assert (await ask(where, "/status", security=operator))["fine"]
        assert await ask(where, "/actions/act", {}, operator) == {"heard": 0}
        with pytest.raises(ConfigError, match="this needs the operator's token"):
            await ask(where, "/actions/act", {}, TOKEN)
    async with serving(NONE, "0perator") as where:
        assert (await ask(where, "/status"))["fine"]
        with pytest.raises(ConfigError, match="this needs the operator's token"):
            await ask(where, "/actions/act", {})


@pytest.mark.parametrize("mark", [{"origin": "http://127.0.0.1"}, {"sec_fetch_site": "cross-site"}])
async def test_a_browser_acts_only_with_a_token(mark: dict[str, str]) -> None:
    """Any page on the web can make a browser send this to loopback."""
    async with serving() as where:
        assert code_of(await send(where, post("/actions/act"))) == 200
        assert code_of(await send(where, post("/actions/act", b"{}", **mark))) == 403
    async with serving(NONE, "0perator") as where:
        shown = {"authorization": "Bearer 0perator"}
        assert code_of(await send(where, post("/actions/act", b"{}", **mark, **shown))) == 200


def test_another_machine_acts_only_with_a_token() -> None:
    """Whoever allows plain text beyond loopback has allowed to look, not to act."""

    def request(client: str, **headers: str) -> Request:
        named = [(name.encode(), value.encode()) for name, value in ({"host": "10.0.0.1"} | headers).items()]
        return Request({"type": "http", "headers": named, "client": (client, 1), "path": "/", "scheme": "http"})

    plain = Access(Security(insecure=True))
    plain.may_look(request("10.0.0.9"))
    plain.may_act(request("127.0.0.1"))
    with pytest.raises(AccessRefused, match="needs a token"):
        plain.may_act(request("10.0.0.9"))
    Access(Security(insecure=True), "0perator").may_act(request("10.0.0.9", authorization="Bearer 0perator"))


async def test_a_name_that_points_here_from_elsewhere_is_not_answered() -> None:
    async with serving() as where:
        for host, code in (("evil.example", 403), ("localhost:7200", 200), ("[::1]:7200", 200), ("127.0.0.1", 200)):
            assert code_of(await send(where, get("/status", host=host))) == code


async def test_the_next_connection_uses_the_certificate_that_is_in_the_files(
    authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.issue("server")
    secure = Security(ca=authority.ca, cert=cert, key=key)
    async with serving(secure) as where:
        before = Security(ca=shutil.copy(authority.ca, str(tmp_path / "old.pem")), cert=cert, key=key)
        assert (await ask(where, "/status", security=before))["fine"]
        authority.give_way_to(Authority(tmp_path / "ca2"), "server")
        assert (await ask(where, "/status", security=secure))["fine"]  # Trusts the new authority only.
        with pytest.raises(Unavailable, match="no player answers"):
            await ask(where, "/status", security=before)


async def test_half_a_handshake_and_half_a_question_are_cut(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert http_server.TURN_SECONDS <= 10
    monkeypatch.setattr(http_server, "TURN_SECONDS", 0.3)
    cert, key = authority.issue("server")
    async with serving(Security(cert=cert, key=key)) as where:
        # The head of a TLS record that never comes, and nothing at all.
        assert await send(where, b"\x16\x03\x01\x02\x00", end=False) == b""
        assert await send(where, b"", end=False) == b""
    async with serving() as where:
        for half in (b"GET /status HTT", get("/status")[:-2], post("/actions/act", b"{}")[:-1]):
            assert await send(where, half, end=False) == b""


async def test_one_request_per_connection() -> None:
    async with serving() as where:
        said = await send(where, get("/healthz") * 3, end=False)
        assert said.count(b"HTTP/1.1 200") == 1
        assert b"connection: close" in said.lower()


@pytest.mark.parametrize(
    "question",
    [b"[" * 60_000, b'{"a":' * 10_000, b"\xff\xfe", b"nul", b"1" * 5000, b'{"do": NaN', b"\x00" * 100, b"[]"],
    ids=lambda question: repr(question[:8]),
)
async def test_an_odd_question_is_answered_with_an_error(question: bytes) -> None:
    async with serving() as where:
        said = await send(where, post("/actions/act", question))
        assert code_of(said) == 400
        assert "error" in json.loads(said.split(b"\r\n\r\n")[1])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
BODIES = st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode())
RAW = st.binary(max_size=300) | st.sampled_from([get("/status")[:-4], post("/odd")[:-3], get("/status") + b"x" * 40])


@settings(max_examples=40, deadline=None)
@given(st.lists(BODIES, min_size=1, max_size=5), st.lists(RAW, max_size=5))
def test_whatever_comes_is_answered_and_never_a_traceback(bodies: list[bytes], raw: list[bytes]) -> None:
    def odd(question: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"x": question["x"] + 1, "y": int(question["y"])}

    async def run() -> None:
        async with asking(odd) as where:
            for body in bodies:
                said = await send(where, post("/odd", body))
                assert isinstance(json.loads(said.split(b"\r\n\r\n")[1]), dict)
            for data in raw:
                await send(where, data)
            assert await ask(where, "/odd", {"x": 1, "y": 2}) == {"x": 2, "y": 2}

    asyncio.run(run())


async def test_a_long_question_needs_the_token_before_it_is_read() -> None:
    """A heartbeat carries the status of many targets; only a driver's own tasks send it."""
    large = {"status": "x" * (1 << 20)}
    async with asking(fine, TOKEN) as where:
        assert await ask(where, "/beat", large, TOKEN) == {"heard": 2}
        endless = post("/beat", b"", content_length=str(1 << 30))
        assert code_of(await send(where, endless, end=False)) == 401  # Answered before the body came.
        with pytest.raises(ConfigError, match=f"{LONG_BODY_BYTES_MAX} bytes"):
            await ask(where, "/beat", {"status": "x" * (LONG_BODY_BYTES_MAX + 1)}, TOKEN)
    async with asking(fine) as where:
        with pytest.raises(ConfigError, match="65536 bytes"):
            await ask(where, "/beat", {"status": "x" * 70_000})


async def test_a_head_without_an_end_is_cut_at_the_limit() -> None:
    async with serving(TOKEN) as where:
        said = await send(where, b"x" * (HEAD_BYTES_MAX + 100), end=False)
        assert code_of(said) in (0, 400)


async def test_strangers_who_say_nothing_do_not_shut_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CONNECTIONS_MAX", 8)
    monkeypatch.setattr(http_server, "TURN_SECONDS", 600.0)
    async with serving(TOKEN) as where:
        host, port = where.split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
        assert (await ask(where, "/status", security=TOKEN))["fine"]
        await until(lambda: sum(reader.at_eof() for reader, _ in silent) >= 12, "the oldest were cut")
        assert not silent[-1][0].at_eof()
        for _, writer in silent:
            writer.close()


SERVER = """
import asyncio
from logplayer.admin.access import Access, AccessRefused
from logplayer.admin.app import question_app
from logplayer.admin.http_server import HttpServer
from logplayer.wire.security import Security

async def main():
    secure = Security(token="t")
    print(await HttpServer(question_app(lambda question: {}, Access(secure)), secure).start("127.0.0.1:0"), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def high_water(pid: int) -> int:
    """The most memory that the process ever had, in bytes."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("head", [b"", post("/beat", b"", content_length="4000000")], ids=["head", "body"])
def test_strangers_cannot_fill_the_memory(head: bytes) -> None:
    """200 connections of 3.9 MB each, without the end of a head or with a body, to a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        host, port = process.stdout.readline().strip().split(":")
        before = high_water(process.pid)

        async def push(stranger: socket.socket, block: bytes = head + b"x" * 3_900_000) -> None:
            loop = asyncio.get_running_loop()
            stranger.setblocking(False)
            with contextlib.suppress(OSError, TimeoutError):  # Cut, as it should be.
                await asyncio.wait_for(loop.sock_connect(stranger, (host, int(port))), 60)
                await asyncio.wait_for(loop.sock_sendall(stranger, block), 60)

        async def all_of_them() -> None:
            strangers = [socket.socket() for _ in range(200)]
            await asyncio.gather(*(push(stranger) for stranger in strangers))
            for stranger in strangers:  # Not before: what is open at the same time is what counts.
                stranger.close()

        asyncio.run(all_of_them())
        assert high_water(process.pid) - before < 100 << 20
    finally:
        process.kill()
        process.wait()

"""TLS, mutual TLS, tokens, and certificates that change while the target serves; over both transports."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from logplayer.core.entry import Session
from logplayer.errors import ConfigError, TargetError
from logplayer.target import client
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.testing.conformance.client import ConformanceStream, StreamEnded
from logplayer.wire import codec
from logplayer.wire.addresses import parse
from logplayer.wire.security import NONE, Security, client_context, read_token, server_context
from tests.servers import Authority

both = pytest.mark.parametrize("scheme", ["grpc", "tcp"])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@asynccontextmanager
async def serving(scheme: str, security: Security) -> AsyncIterator[str]:
    server = TargetServer({"t1": MemoryTarget()}, security)
    address = (await server.start(**{scheme: "127.0.0.1:0"}))[0]
    try:
        yield address
    finally:
        await server.stop()


async def works(address: str, security: Security, term: int = 1) -> ConformanceStream:
    """Open a session and ask for the position, as player and reader do."""
    stream = await ConformanceStream.connect(address, security, timeout=60)
    answer = await stream.open("t1", "log", Session(1, term))
    assert isinstance(answer, codec.SessionOpened), answer
    await client.position(address, "t1", security=security, timeout=60)
    return stream


async def fails(address: str, security: Security, told: str | None = None) -> None:
    """Neither player nor reader gets anywhere."""
    with pytest.raises(TargetError, match=told):
        await client.position(address, "t1", security=security, timeout=60)
    try:
        stream = await ConformanceStream.connect(address, security, timeout=60)
    except TargetError:
        return
    answer = await stream.open("t1", "log", Session(9, 9))
    assert isinstance(answer, StreamEnded), "a stranger opened a session"
    assert told is None or told in str(answer.error)


def replace(new: tuple[str, str], old: tuple[str, str]) -> None:
    for path, place in zip(new, old, strict=True):
        Path(path).replace(place)


def scribble(path: str) -> None:
    Path(path).write_text("not yet written")


@both
async def test_tls(scheme: str, authority: Authority) -> None:
    cert, key = authority.issue("server")
    async with serving(scheme, Security(cert=cert, key=key)) as address:
        (await works(address, Security(ca=authority.ca))).cut()
        await fails(address, NONE)
        await fails(address, Security(ca="system"))


@both
async def test_a_certificate_for_another_host_is_refused(scheme: str, authority: Authority) -> None:
    cert, key = authority.issue("elsewhere", "DNS:elsewhere.example")
    async with serving(scheme, Security(cert=cert, key=key)) as address:
        await fails(address, Security(ca=authority.ca))


@both
async def test_mutual_tls(scheme: str, authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("server")
    mine = authority.issue("player")
    strangers = Authority(tmp_path, "strangers").issue("stranger")
    async with serving(scheme, Security(ca=authority.ca, cert=cert, key=key)) as address:
        (await works(address, Security(ca=authority.ca, cert=mine[0], key=mine[1]))).cut()
        await fails(address, Security(ca=authority.ca))
        await fails(address, Security(ca=authority.ca, cert=strangers[0], key=strangers[1]))


@both
async def test_a_token(scheme: str) -> None:
    async with serving(scheme, Security(token="s3cret")) as address:
        (await works(address, Security(token="s3cret"))).cut()
        await fails(address, Security(token="guess"), "refused the token: the token is wrong")
        await fails(address, NONE, "refused the token: this target wants a token")


@both
async def test_a_token_that_nobody_wants_does_no_harm(scheme: str) -> None:
    async with serving(scheme, NONE) as address:
        (await works(address, Security(token="s3cret"))).cut()


@both
async def test_a_certificate_is_replaced_while_a_session_is_open(
    scheme: str, authority: Authority, tmp_path: Path
) -> None:
    """The next connection sees the new certificate, of another CA."""
    cert, key = authority.issue("rotating")
    other = Authority(tmp_path, "other")
    security = Security(cert=cert, key=key)
    async with serving(scheme, security) as address:
        stream = await works(address, Security(ca=authority.ca))
        replace(other.issue("new"), (cert, key))
        (await works(address, Security(ca=other.ca), term=2)).cut()
        await fails(address, Security(ca=authority.ca))
        stream.cut()


@both
async def test_an_open_session_survives_the_rotation(scheme: str, authority: Authority) -> None:
    cert, key = authority.issue("surviving")
    async with serving(scheme, Security(cert=cert, key=key)) as address:
        stream = await works(address, Security(ca=authority.ca))
        authority.issue("surviving")
        await client.position(address, "t1", security=Security(ca=authority.ca), timeout=60)
        await stream.send(codec.encode_batch(0, 5, []))
        assert (await stream.acked(5)).index == 5
        stream.cut()


@both
async def test_a_half_replaced_certificate_does_not_stop_the_service(scheme: str, authority: Authority) -> None:
    cert, key = authority.issue("half")
    async with serving(scheme, Security(cert=cert, key=key)) as address:
        scribble(cert)
        (await works(address, Security(ca=authority.ca))).cut()
        authority.issue("half")
        (await works(address, Security(ca=authority.ca), term=2)).cut()


def test_bad_files_are_clear_errors(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("server")
    empty = tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(ConfigError, match="no key; give both"):
        Security(cert=cert)
    with pytest.raises(ConfigError, match="no certificate; give both"):
        Security(key=key)
    with pytest.raises(ConfigError, match="contradict"):
        Security(cert=cert, key=key, insecure=True)
    with pytest.raises(ConfigError, match="cannot be read"):
        server_context(Security(cert=str(tmp_path / "none"), key=key))
    with pytest.raises(ConfigError, match="do not work"):
        server_context(Security(cert=str(empty), key=key))
    with pytest.raises(ConfigError, match="no usable certificate"):
        server_context(Security(ca=str(empty), cert=cert, key=key))
    with pytest.raises(ConfigError, match="holds no token"):
        read_token(str(empty))
    (tmp_path / "token").write_text("abc\n")
    assert read_token(str(tmp_path / "token")) == "abc"


def test_a_token_is_not_shown() -> None:
    assert "s3cret" not in repr(Security(token="s3cret"))


@pytest.mark.parametrize("scheme", ["grpc", "tcp"])
async def test_a_pickled_security_needs_no_files(scheme: str, authority: Authority) -> None:
    """A Spark task on another machine has only what was pickled: the files are gone there."""
    cert, key = authority.issue("server")
    mine = authority.issue("player")
    async with serving(scheme, Security(ca=authority.ca, cert=cert, key=key, token="s3cret")) as address:
        there = pickle.loads(pickle.dumps(Security(ca=authority.ca, cert=mine[0], key=mine[1], token="s3cret")))
        for path in mine:
            os.unlink(path)
        (await works(address, there)).cut()
        again = pickle.loads(pickle.dumps(there))
        assert again == there
    assert "PRIVATE KEY" not in repr(there)
    assert "s3cret" not in repr(there)
    served = pickle.loads(pickle.dumps(Security(cert=cert, key=key)))
    async with serving(scheme, served) as address:
        (await works(address, Security(ca=authority.ca))).cut()
    assert pickle.loads(pickle.dumps(Security(ca="system"))) == Security(ca="system")


def test_a_file_that_is_not_pem_is_not_pickled(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no certificate")
    with pytest.raises(ConfigError, match="is not PEM"):
        pickle.dumps(Security(ca=str(tmp_path / "ca")))


def old_tls(authority: Authority) -> ssl.SSLContext:
    """A client of ten years ago, as far as the library here still can."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


@both
async def test_tls_1_1_is_refused(scheme: str, authority: Authority) -> None:
    cert, key = authority.issue("server")
    async with serving(scheme, Security(cert=cert, key=key)) as address:
        where = parse(address)

        def shake() -> None:
            with socket.create_connection((where.host, where.port), timeout=60) as plain:
                old_tls(authority).wrap_socket(plain, server_hostname=where.host)

        with pytest.raises(OSError):
            await asyncio.to_thread(shake)
        (await works(address, Security(ca=authority.ca))).cut()


def test_no_side_speaks_less_than_tls_1_2(authority: Authority) -> None:
    """The library here may refuse TLS 1.1 by itself; another may not."""
    cert, key = authority.issue("server")
    contexts = [server_context(Security(cert=cert, key=key))]
    contexts += [client_context(Security(ca=ca)) for ca in ("system", authority.ca)]
    for context in contexts:
        assert context is not None
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2

"""TLS, mutual TLS and tokens between players and targets; certificates are replaced while entries flow."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from logplayer.admin.access import Access
from logplayer.admin.app import question_app
from logplayer.admin.http_client import ask
from logplayer.admin.http_server import HttpServer
from logplayer.core.entry import HashMap
from logplayer.errors import ConfigError, LogUnavailable, Unavailable
from logplayer.log.client import LogClient
from logplayer.log.server import LogServer
from logplayer.player.ended import STOPPED
from logplayer.player.shell import Shell
from logplayer.wire.security import Security
from tests.player.player_support import House, load, until
from tests.servers import missing

BOTH = pytest.mark.parametrize("scheme", ["grpc", "tcp"])


class Authority:
    """A certificate authority of openssl's, for one test."""

    def __init__(self, directory: Path) -> None:
        if shutil.which("openssl") is None:
            missing("openssl is not installed")
        directory.mkdir()
        self._directory = directory
        self._serial = 0
        self.ca = str(directory / "ca.pem")
        self._ca_key = str(directory / "ca.key")
        self._run("req", "-x509", *self._key(self._ca_key), "-out", self.ca, "-subj", "/CN=test CA", "-days", "2")

    def issue(self, name: str) -> tuple[str, str]:
        """Certificate and key for loopback, in files that may be there already."""
        cert, key, request = (str(self._directory / f"{name}.{kind}") for kind in ("pem", "key", "csr"))
        extension = self._directory / f"{name}.ext"
        extension.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self._serial += 1
        fresh_key, fresh_cert = f"{key}.new", f"{cert}.new"
        self._run("req", *self._key(fresh_key), "-out", request, "-subj", f"/CN={name} {self._serial}")
        self._run(
            "x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._ca_key, "-out", fresh_cert, "-days", "2",
            "-set_serial", str(self._serial), "-extfile", str(extension),
        )  # fmt: skip
        Path(fresh_key).rename(key)
        Path(fresh_cert).rename(cert)
        return cert, key

    def give_way_to(self, other: Authority, *names: str) -> None:
        """Replace the files of these certificates, and of the authority, by those of another."""
        for name in names:
            for new in other.issue(name):
                Path(new).replace(self._directory / Path(new).name)
        Path(other.ca).replace(self.ca)

    @staticmethod
    def _key(path: str) -> tuple[str, ...]:
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path)

    @staticmethod
    def _run(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@BOTH
async def test_delivery_over_tls(house: House, authority: Authority, scheme: str) -> None:
    cert, key = authority.issue("server")
    await house.targets("ab", scheme, Security(cert=cert, key=key))
    player = await house.play(security=Security(ca=authority.ca))
    await house.delivered(await house.append(200))
    assert await house.problems() == []
    assert await player.stop() == STOPPED


@BOTH
async def test_mutual_tls_and_a_token_let_the_right_player_in_and_no_other(
    house: House, authority: Authority, scheme: str
) -> None:
    cert, key = authority.issue("server")
    my_cert, my_key = authority.issue("player")
    await house.targets("ab", scheme, Security(ca=authority.ca, cert=cert, key=key, token="s3cret"))
    right = Security(ca=authority.ca, cert=my_cert, key=my_key, token="s3cret")
    for wrong in (
        Security(),
        Security(ca=authority.ca, token="s3cret"),
        replace(right, token="guess"),
        replace(right, token=""),
    ):
        player = await house.play(security=wrong)
        await house.append(5)
        await until(lambda player=player: player.target("a").attempts >= 1, "the player was turned away")
        assert player.target("a").state == "SUSPENDED"
        assert player.target("a").error
        await player.stop()
    assert [seat.index for seat in house.seats.values()] == [0, 0]
    await house.play(security=right)
    await house.delivered(await house.append(200))
    assert await house.problems() == []


@BOTH
async def test_certificates_are_replaced_without_losing_a_delivery(
    house: House, authority: Authority, scheme: str
) -> None:
    cert, key = authority.issue("server")
    my_cert, my_key = authority.issue("player")
    await house.targets("ab", scheme, Security(ca=authority.ca, cert=cert, key=key))
    player = await house.play(security=Security(ca=authority.ca, cert=my_cert, key=my_key))
    await until(player.live, "both are LIVE")
    async with load(house, 500):
        before = player.target("a").session
        # A new authority: who still showed or trusted the old certificates would be turned away.
        authority.give_way_to(Authority(house.directory / "ca2"), "server", "player")
        assert player.target("a").session == before  # An open session goes on.
        # Whoever connects from here on does so with the new ones.
        for session in list(player.shell._sessions.values()):
            assert session._link is not None
            session._link.close()
        await until(lambda: player.target("a").session > before and player.live("a", "b"), "both are LIVE again")
        await asyncio.sleep(0.2)
    await house.delivered(await house.append(1))
    assert await house.problems() == []


async def test_plain_text_beyond_loopback_needs_a_word(house: House) -> None:
    player = await house.play(targets={"a": "tcp://192.0.2.1:7000"}, map=HashMap(("a",)))
    await until(lambda: player.target("a").error != "", "the address was refused")
    assert "--insecure" in player.target("a").error
    with pytest.raises(ConfigError, match="contradict"):
        Security(ca="x", insecure=True)


async def test_the_log_server_over_mutual_tls_feeds_a_player(house: House, authority: Authority) -> None:
    cert, key = authority.issue("server")
    my_cert, my_key = authority.issue("player")
    both = Security(ca=authority.ca, cert=cert, key=key)
    server = LogServer(house.file, both)
    where = f"127.0.0.1:{await server.start('127.0.0.1', 0)}"
    mine = Security(ca=authority.ca, cert=my_cert, key=my_key)
    await house.targets("ab")
    with pytest.raises(LogUnavailable):
        await LogClient.open(where)
    client = await LogClient.open(where, security=mine)
    shell = Shell(client, house.config())
    task = asyncio.create_task(shell.run())
    await house.delivered(await house.append(200))
    assert await house.problems() == []
    shell.request_stop()
    assert await task == STOPPED
    await client.close()
    await server.stop(0)


async def test_http_asks_for_certificate_and_token(authority: Authority) -> None:
    cert, key = authority.issue("server")
    right = Security(ca=authority.ca, cert=cert, key=key, token="s3cret")
    server = HttpServer(question_app(lambda question: {"ok": True}, Access(right)), right)
    where = await server.start("127.0.0.1:0")
    assert await ask(where, "/beat", {}, right) == {"ok": True}
    with pytest.raises(ConfigError, match="token"):
        await ask(where, "/beat", {}, replace(right, token="guess"))
    for wrong in (Security(token="s3cret"), Security(ca=authority.ca, token="s3cret")):
        with pytest.raises(Unavailable, match="no player answers"):
            await ask(where, "/beat", {}, wrong)
    await server.stop()

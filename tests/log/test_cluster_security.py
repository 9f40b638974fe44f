"""TLS, client certificates, users and keys towards the clusters that keep a log."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logplayer.errors import ConfigError, LogUnavailable, UserError
from logplayer.log.etcd import link
from logplayer.log.etcd.api import EtcdNotAdmitted
from logplayer.log.local_cluster import NODES
from logplayer.log.open import open_log
from logplayer.log.protocol import Log
from logplayer.testing.conformance.logs import collect, fill, in_time
from logplayer.wire.security import NONE, Security
from tests.log.etcd_servers import enable_users, one_etcd
from tests.log.log_support import missing
from tests.servers import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "ca").mkdir()
    return Authority(tmp_path / "ca")


async def use(address: str, security: Security) -> None:
    """Append, read and trim."""
    log: Log = await in_time(open_log(address, security))
    try:
        start = (await log.newest("p")).sequence
        indexes = await fill(log, 3, since=start + 1)
        assert [r.index for r in await collect(log, indexes[0], indexes[-1])] == indexes
        await in_time(log.trim(indexes[0]))
    finally:
        await log.close()


async def test_etcd_with_client_certificates(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "OPEN_SECONDS", 2.0)
    cert, key = authority.issue("server")
    mine = authority.issue("client")
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    theirs = other.issue("client")
    tls = {"cert_file": cert, "key_file": key, "trusted_ca_file": authority.ca, "client_cert_auth": "true"}
    with one_etcd(tmp_path, "https", **tls) as port:
        address = f"etcd://127.0.0.1:{port}/x"
        monkeypatch.setattr(link, "OPEN_SECONDS", 30.0)
        await use(address, Security(ca=authority.ca, cert=mine[0], key=mine[1]))
        monkeypatch.setattr(link, "OPEN_SECONDS", 2.0)
        shipped = pickle.loads(pickle.dumps(Security(ca=authority.ca, cert=mine[0], key=mine[1])))
        await use(address, shipped)
        for wrong in (NONE, Security(ca=authority.ca), Security(ca=authority.ca, cert=theirs[0], key=theirs[1])):
            with pytest.raises(LogUnavailable):
                await use(address, wrong)


async def test_etcd_with_a_user(tmp_path: Path) -> None:
    """A user who may touch the keys of logs; tokens end, and a new one is got in the middle of the work."""
    with one_etcd(tmp_path, auth_token="simple", auth_token_ttl="1") as port:
        enable_users(port)
        address = f"etcd://127.0.0.1:{port}/x"
        for user in ("app", "root"):
            await use(address, Security(user=user, password="secret"))
        for wrong in (Security(user="app", password="guess"), Security(user="nobody", password="secret")):
            with pytest.raises(EtcdNotAdmitted, match="check the user"):
                await use(address, wrong)
        with pytest.raises(UserError):
            await use(address, NONE)
        log = await in_time(open_log(address, Security(user="app", password="secret")))
        await fill(log, 1, "q")
        await asyncio.sleep(2.5)  # The token ends.
        await fill(log, 1, "q", since=2)
        await log.close()
        served = run_server(tmp_path, address)
        assert served["log"] == address


def run_server(tmp_path: Path, address: str) -> dict[str, Any]:
    """``log serve`` with a user for the cluster; what it says when it is up."""
    (tmp_path / "password").write_text("secret\n")
    options = ["--log-user", "app", "--log-password-file", str(tmp_path / "password")]
    command = [sys.executable, "-m", "logplayer.cli", "log", "serve", "--log", address, "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, *options, "--json"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said: dict[str, Any] = json.loads(process.stdout.readline())
        process.terminate()
    return said


def test_a_user_without_a_password_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="a user but no password"):
        Security(user="app")
    assert "secret" not in repr(Security(user="app", password="secret"))


async def test_plain_text_beyond_loopback_is_refused() -> None:
    for address, security in (
        ("etcd://192.0.2.1:2379/x", NONE),
        ("nats://192.0.2.1:4222/x", Security(user="app", password="secret")),
        ("nats://192.0.2.1:4222/x", NONE),
    ):
        with pytest.raises(ConfigError, match="not loopback"):
            await in_time(open_log(address, security))


async def test_nats_with_tls_a_user_and_an_nkey(tmp_path: Path, authority: Authority) -> None:
    try:
        import nkeys  # type: ignore[import-untyped]

        from logplayer.log.nats.local_cluster import Cluster, find_server, free_cluster_port

        find_server()
    except (ImportError, UserError) as error:
        missing(str(error))
    cert, key = authority.issue("server")
    mine = authority.issue("client")
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    (tmp_path / "seed").write_bytes(seed + b"\n")
    cluster = Cluster(tmp_path / "nats", free_cluster_port(1))
    for node in range(NODES):
        cluster.folder(node).mkdir(parents=True)
        (cluster.folder(node) / "nats.conf").write_text(
            cluster._config(node)
            + f"authorization {{ users: [{{user: app, password: secret}}, {{nkey: {public}}}] }}\n"
            + f'tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{authority.ca}", verify: true }}\n'
        )
    await asyncio.to_thread(cluster.up)
    tls = Security(ca=authority.ca, cert=mine[0], key=mine[1])
    try:
        address = cluster.address("x")
        await use(address, replace(tls, user="app", password="secret"))
        by_key = replace(tls, nkey=str(tmp_path / "seed"))
        await use(address, by_key)
        await use(address, pickle.loads(pickle.dumps(by_key)))
        for security in (tls, replace(tls, user="app", password="guess"), Security(user="app", password="secret")):
            with pytest.raises(UserError, match="--password-file"):
                await use(address, security)
    finally:
        await asyncio.to_thread(cluster.down)

"""What an etcd user without the role root may not do, and what the log makes of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from logplayer.errors import LogFull
from logplayer.log.etcd import api
from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.etcd.log import EtcdLog
from logplayer.testing.conformance.logs import collect, fill, in_time
from logplayer.wire.security import Security
from tests.log.etcd_servers import add_user, enable_users, one_etcd

APP, ROOT = (Security(user=user, password="secret") for user in ("app", "root"))


@pytest.fixture
def where(tmp_path: Path) -> Iterator[str]:
    """A server with a small quota, where ``app`` may touch the keys of logs and nothing else."""
    with one_etcd(tmp_path, quota_backend_bytes=str(32 * 1024**2), max_request_bytes=str(24 * 1024**2)) as port:
        enable_users(port)
        yield f"127.0.0.1:{port}"


async def raise_alarm(where: str) -> None:
    """Somebody else fills the cluster until etcd stops all writes."""
    log = await in_time(EtcdLog.open([where], "others", security=ROOT))
    with contextlib.suppress(api.EtcdNoRoom):
        for _ in range(200):
            put = log.link.keys.put(b"other", bytes(500_000))
            await in_time(log.link.patiently(api.TXN, pb.TxnRequest(success=[put])))
    assert await log.engine.keeper.is_alarmed()
    await log.close()


async def test_a_user_who_may_not_defragment(where: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, with the remedy; who may lift the alarm lifts it, and then the user goes on."""
    caplog.set_level(logging.WARNING, "logplayer")
    log = await in_time(EtcdLog.open([where], "x", security=APP))
    await fill(log, 20)
    await raise_alarm(where)
    for _ in range(2):
        with pytest.raises(LogFull, match=r"user 'app' may not [a-z ]+: .*role root.*etcdctl"):
            await in_time(log.trim(10))
    with pytest.raises(LogFull, match="user 'app' may not"):
        await fill(log, 1, since=21)
    said = [record.getMessage() for record in caplog.records if "may not" in record.getMessage()]
    assert len(said) == 1, said
    assert "role root" in said[0]
    assert len(await collect(log, 1, 20)) == 20
    operator = await in_time(EtcdLog.open([where], "x", security=ROOT))
    assert await in_time(operator.trim(10)) == 10
    assert not await operator.engine.keeper.is_alarmed()
    assert await fill(log, 3, since=21) == [21, 22, 23]
    for one in (log, operator):
        await one.close()


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[int]:
    """A server whose tokens are signed: they end with every change of users and roles."""
    (tmp_path / "key").write_text("a key of at least thirty-two bytes")
    with one_etcd(tmp_path, auth_token=f"jwt,priv-key={tmp_path / 'key'},sign-method=HS256") as port:
        enable_users(port)
        yield port


async def test_users_change_under_an_open_log(signed: int) -> None:
    """The log signs in again, whatever it does next."""
    log = await in_time(EtcdLog.open([f"127.0.0.1:{signed}"], "x", security=APP))
    assert await fill(log, 3) == [1, 2, 3]
    tail = asyncio.create_task(collect(log, 3, 7))
    add_user(signed, "b")
    assert await fill(log, 2, since=4) == [4, 5]
    add_user(signed, "c")
    assert len(await collect(log, 1, 5)) == 5
    add_user(signed, "d")
    assert (await in_time(log.info())).last == 5
    add_user(signed, "e")
    assert await in_time(log.trim(2)) == 2
    add_user(signed, "f")
    assert (await in_time(log.newest("p"))).sequence == 5
    assert await fill(log, 2, since=6) == [6, 7]
    assert [record.sequence for record in await in_time(tail)] == list(range(3, 8))
    await log.close()

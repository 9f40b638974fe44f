"""etcd checks its quota when it is asked and again when it applies: then it refuses what it has just taken."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from logplayer.errors import LogFull
from logplayer.log.etcd import api
from logplayer.log.etcd.api import EtcdNoRoom
from logplayer.log.etcd.local_cluster import EtcdCluster
from logplayer.log.etcd.log import EtcdLog
from logplayer.testing.conformance.log_check import entry
from logplayer.testing.conformance.logs import collect, fill, in_time


@pytest.fixture
async def log(etcd_cluster: EtcdCluster, log_name: str) -> AsyncIterator[EtcdLog]:
    opened = await in_time(EtcdLog.open(etcd_cluster.hosts, log_name))
    assert await fill(opened, 3) == [1, 2, 3]
    yield opened
    await opened.close()


@pytest.fixture
def refuse(log: EtcdLog, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Answer the next commit with etcd's ErrNoSpace: ``taken`` or not, with what ``meanwhile`` does before that."""

    def arm(taken: bool, meanwhile: Any = None) -> None:
        honest, armed = log.link.once, True

        async def once(method, request, seconds, member=None):  # type: ignore[no-untyped-def]
            nonlocal armed
            if method is not api.TXN or not armed:
                return await honest(method, request, seconds, member)
            armed = False
            if taken:
                assert (await honest(method, request, seconds, member)).succeeded
            if meanwhile is not None:
                await meanwhile()
            raise EtcdNoRoom("etcdserver: mvcc: database space exceeded")

        async def is_alarmed() -> bool:
            return True

        monkeypatch.setattr(log.link, "once", once)
        monkeypatch.setattr(log.engine.keeper, "is_alarmed", is_alarmed)

    return arm


async def test_what_was_refused_and_taken_is_acknowledged(log: EtcdLog, refuse: Callable[..., None]) -> None:
    """Or its producer would be told that nothing of it is in the log."""
    refuse(taken=True)
    assert await in_time(log.append([entry("p", 4), entry("p", 5)])) == [4, 5]
    assert await in_time(log.append([entry("p", 4), entry("p", 5)])) == [4, 5]
    assert await fill(log, 1, since=6) == [6]
    assert [r.sequence for r in await collect(log, 1, 6)] == [1, 2, 3, 4, 5, 6]


async def test_what_was_refused_and_not_taken_is_not_in_the_log(log: EtcdLog, refuse: Callable[..., None]) -> None:
    refuse(taken=False)
    with pytest.raises(LogFull):
        await in_time(log.append([entry("p", 4), entry("p", 5)]))
    assert (await in_time(log.info())).last == 3
    assert await fill(log, 1, since=4) == [4]


@pytest.mark.parametrize("taken", [True, False])
async def test_another_writer_appends_before_it_is_known(
    etcd_cluster: EtcdCluster, log_name: str, log: EtcdLog, refuse: Callable[..., None], taken: bool
) -> None:
    """The entries are in the log once, either way."""
    other = await in_time(EtcdLog.open(etcd_cluster.hosts, log_name))

    async def meanwhile() -> None:
        await other.append([entry("q", 1)])

    refuse(taken, meanwhile)
    assert await in_time(log.append([entry("p", 4)])) == [4 if taken else 5]
    found = [(r.producer, r.sequence) for r in await collect(log, 1, 5)]
    assert sorted(found) == [("p", 1), ("p", 2), ("p", 3), ("p", 4), ("q", 1)]
    await other.close()

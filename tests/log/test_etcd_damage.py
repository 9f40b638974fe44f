"""What one member of an etcd cluster shows wrong, by range or by watch, is read from another one."""

from __future__ import annotations

from typing import Any

import pytest

from logplayer.log.etcd import api
from logplayer.log.etcd.local_cluster import EtcdCluster
from logplayer.log.etcd.log import EtcdLog
from logplayer.testing.conformance.log_check import entry
from logplayer.testing.conformance.logs import collect, fill, in_time


def damaged(value: bytes, how: str) -> bytes:
    """The bytes of a chunk with something wrong."""
    body = bytearray(value)
    if how == "payload":
        body[len(body) // 2] ^= 1
    elif how == "place":
        body[3] ^= 1
    elif how == "more":
        body += body[8:]
    else:
        del body[{"end": len(body) - 7, "cut": 5, "empty": 0}[how] :]
    return bytes(body)


@pytest.mark.parametrize("left", [0, 5, 8])
async def test_a_chunk_that_is_cut_short_is_read_from_another_member(
    etcd_cluster: EtcdCluster, log_name: str, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """In its first eight bytes, too, which say where it begins; from its first entry on, and from its middle."""
    log = await in_time(EtcdLog.open(etcd_cluster.hosts, log_name))
    await in_time(log.append([entry("p", s) for s in range(1, 11)]))
    honest, bad = log.link.once, log.link.members[0]
    lies = 0

    async def liar(method, request, seconds, member=None):  # type: ignore[no-untyped-def]
        nonlocal lies
        reply = await honest(method, request, seconds, member)
        if method is api.RANGE and member is bad:
            for kv in reply.kvs:
                kv.value = kv.value[:left]
                lies += 1
        return reply

    monkeypatch.setattr(log.link, "once", liar)
    for count, first in enumerate((1, 4, 10), 1):
        for _ in range(100):
            log.reader._next_member = 0
            assert [r.sequence for r in await collect(log, first, 10)] == list(range(first, 11))
            if log.reader.mended >= count:
                break
        assert log.reader.mended >= count
    assert lies >= 3
    await log.close()


@pytest.mark.parametrize("damage", ["payload", "place", "end", "cut", "empty", "more"])
async def test_a_damaged_chunk_that_a_watch_brings_is_read_from_another_member(
    etcd_cluster: EtcdCluster, log_name: str, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Watches have a way of their own to the reader: what they bring is checked as what is read by range."""
    log = await in_time(EtcdLog.open(etcd_cluster.hosts, log_name))
    await fill(log, 3)
    pushed = 0

    class Liar:
        """Every watch damages what it brings; ranges are right."""

        def __init__(self, call: Any) -> None:
            self._call = call

        def __getattr__(self, name: str) -> Any:
            return getattr(self._call, name)

        async def read(self) -> Any:
            nonlocal pushed
            reply = await self._call.read()
            for event in getattr(reply, "events", ()):
                event.kv.value = damaged(event.kv.value, damage)
                pushed += 1
            return reply

    for member in log.link.members:
        honest = member.watch
        monkeypatch.setattr(member, "watch", lambda metadata, honest=honest: Liar(honest(metadata)))
    tail = log.read(1)
    seen: list[bytes] = []
    sequence = 3
    while pushed < 3:
        while len(seen) < sequence:
            seen += [r.payload for r in await in_time(anext(tail))]
        assert seen == [entry("p", s).payload for s in range(1, sequence + 1)]
        sequence += 1
        await in_time(log.append([entry("p", sequence)]))
    while len(seen) < sequence:
        seen += [r.payload for r in await in_time(anext(tail))]
    assert seen == [entry("p", s).payload for s in range(1, sequence + 1)]
    assert log.reader.mended > 0
    await tail.aclose()  # type: ignore[attr-defined]
    await log.close()

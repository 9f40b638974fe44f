"""The harness of the log kit for a log in etcd, on three real servers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Sequence

from logplayer.log.etcd import api
from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.etcd.log import EtcdLog
from logplayer.testing.conformance.log_cluster import ClusterHarness

FILLER_BYTES = 512 * 1024


async def etcd_leader(log: EtcdLog) -> int:
    """The node that leads, counted from 0."""
    while True:
        found = [member for member, status in await log.link.statuses() if status.leader == status.header.member_id]
        if found:
            return log.link.members.index(found[0])
        await asyncio.sleep(0.05)  # An election is under way.


class EtcdHarness(ClusterHarness):
    """One log on a running etcd cluster."""

    stored = "snap/db"

    async def connect(self, hosts: Sequence[str] = ()) -> EtcdLog:
        return await EtcdLog.open(hosts or self.cluster.hosts, self.name)

    async def blocks(self, log: EtcdLog) -> int:
        return (await log.link.head())[0].blocks

    async def leader(self, log: EtcdLog) -> int:
        return await etcd_leader(log)

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.cluster.up)
        with contextlib.suppress(Exception):
            log = await self.connect()
            await _delete(log, log.link.keys.prefix)
            await log.close()

    async def fill_disk(self) -> None:
        """With what is not ours, up to a little below the point where the log stops."""
        log = await self.connect()
        numbers = itertools.count()
        while (room := await log.engine.keeper.settle()).in_use < room.limit - 16 * FILLER_BYTES:
            for _ in range(8):
                put = pb.PutRequest(key=b"filler/%d" % next(numbers), value=random.randbytes(FILLER_BYTES))
                await log.link.patiently(api.TXN, pb.TxnRequest(success=[pb.RequestOp(request_put=put)]))
        await log.close()

    async def free_disk(self) -> None:
        log = await self.connect()
        await _delete(log, b"filler/")
        await log.engine.keeper.settle()
        await log.close()


async def _delete(log: EtcdLog, prefix: bytes) -> None:
    """All keys of a prefix that ends with a slash, and their history."""
    gone = pb.DeleteRangeRequest(key=prefix, range_end=prefix[:-1] + b"0")
    reply = await log.link.patiently(api.TXN, pb.TxnRequest(success=[pb.RequestOp(request_delete_range=gone)]))
    request = pb.CompactionRequest(revision=reply.header.revision, physical=True)
    await log.link.once(api.COMPACT, request, 60)

"""Reads a log in etcd: what is there by range reads from any member, what comes by a watch, every entry checked.

A range read is *serializable*: the member answers from what it has, without asking the leader. That is fast, and it may
be old or damaged, so nothing is taken on trust. The head, read through the leader, says which entries there are; a
chunk that is missing, or has a wrong checksum, is read again from the other members and at last through the leader.

A watch may fall silent when its member is cut off. So after a while without news the head is asked whether there should
have been some; if so, the watch is given up, and the next one is opened at another member.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, NamedTuple

import grpc

from logplayer.errors import CorruptEntry, LogError
from logplayer.log.etcd import api
from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.etcd.api import EtcdAway
from logplayer.log.etcd.keys import StoredChunk
from logplayer.log.etcd.link import CALL_SECONDS_MAX, EtcdLink, EtcdMember
from logplayer.log.frame import corrupt, decode_frames, spans
from logplayer.log.protocol import Record
from logplayer.log.refusals import trimmed

RANGE_BYTES = 2 * 1024 * 1024  # What a range read should bring, as far as it can be foreseen.
RANGE_COUNT_MAX = 64  # Chunks; etcd bounds a reply by count only, and a chunk may be long.
SILENCE_SECONDS = 2.0
_log = logging.getLogger(__name__)


class EtcdBatch(NamedTuple):
    """The frames of the entries ``[first, last]``, all of them checked."""

    first: int
    last: int
    frames: bytes

    def records(self) -> list[Record]:
        return list(decode_frames(self.frames, self.first, self.first, self.last))


class EtcdReader:
    """The reading half of a log in etcd; any number of reads at once."""

    def __init__(self, link: EtcdLink) -> None:
        self._link = link
        self._next_member = 0
        self.mended = 0

    async def read(self, first: int, last: int | None) -> AsyncIterator[EtcdBatch]:
        """Batches without gaps from ``first`` on."""
        at = first
        while last is None or at <= last:
            head, revision = await self._link.head()
            if at < head.first:
                raise trimmed(at, head.first)
            async with contextlib.aclosing(self._stored(at, min(head.last, last or head.last), revision)) as stored:
                async for batch in stored:
                    yield batch
                    at = batch.last + 1
            if last is not None and at > last:
                return
            async with contextlib.aclosing(self._pushed(at, revision)) as pushed:
                async for chunk in pushed:
                    if chunk.last < at:
                        continue
                    found, damage = await self._checked(chunk, at, min(chunk.last, last or chunk.last))
                    if found is not None:
                        yield found
                        at = found.last + 1
                    if damage is not None:
                        raise damage
                    if last is not None and at > last:
                        return

    async def _stored(self, at: int, through: int, revision: int) -> AsyncGenerator[EtcdBatch, None]:
        """The entries ``[at, through]``, which are in the log."""
        count = 1
        while at <= through:
            chunks = await self._range(at, count, revision)
            for chunk in chunks:
                batch, damage = await self._checked(chunk, at, min(chunk.last, through))
                if batch is not None:
                    yield batch
                    at = batch.last + 1
                if damage is not None:
                    raise damage
                if at > through:
                    return
            largest = max(len(chunk.frames) for chunk in chunks)
            count = max(1, min(2 * count, RANGE_BYTES // max(1, largest), RANGE_COUNT_MAX))

    async def _range(self, at: int, count: int, revision: int) -> list[StoredChunk]:
        """At most ``count`` chunks from the one with ``at`` on, from any member that is as new as ``revision``."""
        keys = self._link.keys
        request = pb.RangeRequest(key=keys.chunk(at), range_end=keys.chunks_end, limit=count, serializable=True)
        for _ in self._link.members:
            member = self._member()
            try:
                reply = await self._link.once(api.RANGE, request, CALL_SECONDS_MAX, member)
            except EtcdAway:
                self._next_member += 1
                continue
            if reply.header.revision >= revision and reply.kvs:
                return _decode(reply)
            self._next_member += 1  # It lags, or it has lost what there should be.
        request.serializable = False
        reply = await self._link.patiently(api.RANGE, request)
        if not reply.kvs:
            await self._require_untrimmed(at)
            raise corrupt(at, "no member has it")
        return _decode(reply)

    def _member(self) -> EtcdMember:
        return self._link.members[self._next_member % len(self._link.members)]

    async def _require_untrimmed(self, at: int) -> None:
        head, _ = await self._link.head()
        if at < head.first:
            raise trimmed(at, head.first)

    async def _checked(self, chunk: StoredChunk, at: int, through: int) -> tuple[EtcdBatch | None, LogError | None]:
        """The entries ``[at, through]`` of the chunk; if it is damaged or not the one, as many as any member has."""
        batch, damage = _check(chunk, at, through)
        if damage is None:
            return batch, None
        _log.warning("%s: %s; it is read from another member", self._link.where, damage)
        return await self._mend(at, through, batch, damage)

    async def _mend(
        self, at: int, through: int, best: EtcdBatch | None, damage: LogError
    ) -> tuple[EtcdBatch | None, LogError | None]:
        keys = self._link.keys
        copies = [(member, True) for member in self._link.members]
        copies.append((self._link.members[self._link.first_asked], False))
        for member, serializable in copies:
            request = pb.RangeRequest(key=keys.chunk(at), range_end=keys.chunks_end, limit=1, serializable=serializable)
            try:
                reply = await self._link.once(api.RANGE, request, CALL_SECONDS_MAX, member)
                found, why = _check(_decode(reply)[0], at, through) if reply.kvs else (None, damage)
            except EtcdAway:
                continue
            if found is not None and why is None:
                self.mended += 1
                self._next_member += 1
                return found, None
            if found is not None and why is not None and (best is None or found.last > best.last):
                best, damage = found, why
        await self._require_untrimmed(at)
        return best, damage

    async def _pushed(self, at: int, revision: int) -> AsyncGenerator[StoredChunk, None]:
        """Chunks that are written after ``revision``, until the watch breaks or falls silent for no good reason."""
        call = self._member().watch(self._link.metadata)
        reading: asyncio.Future[Any] | None = None
        try:
            await call.write(_watch(self._link, revision + 1))
            while True:
                # Not wait_for: to cancel a read ends the whole watch.
                reading = reading or asyncio.ensure_future(call.read())
                await asyncio.wait([reading], timeout=SILENCE_SECONDS)
                if not reading.done():
                    if (await self._link.head())[0].last < at:
                        continue
                    break
                reply, reading = reading.result(), None
                if reply is grpc.aio.EOF or reply.canceled:  # type: ignore[attr-defined]  # The stubs lack it.
                    break
                for event in reply.events:
                    chunk = StoredChunk.decode(event.kv)
                    at = max(at, chunk.last + 1)
                    yield chunk
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # What it should have brought is read by range, and the next watch is another member's.
        finally:
            call.cancel()
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])
        self._next_member += 1
        await asyncio.sleep(0.02)  # A member that ends each watch at once must not be asked in a tight loop.


def _watch(link: EtcdLink, revision: int) -> pb.WatchRequest:
    create = pb.WatchCreateRequest(
        key=link.keys.chunk(0),
        range_end=link.keys.chunks_end,
        start_revision=revision,
        filters=[pb.WatchCreateRequest.NODELETE],
        fragment=True,
    )
    return pb.WatchRequest(create_request=create)


def _decode(reply: pb.RangeResponse) -> list[StoredChunk]:
    return [StoredChunk.decode(kv) for kv in reply.kvs]


def _check(chunk: StoredChunk, at: int, through: int) -> tuple[EtcdBatch | None, CorruptEntry | None]:
    """The checked frames of ``[at, through]``, as many as are right, and what is wrong with the next one."""
    if not chunk.first <= at <= chunk.last:
        return None, corrupt(at, f"the chunk [{chunk.first}, {chunk.last}] is in its place")
    begin, end, last = -1, 0, at - 1
    damage: CorruptEntry | None = None
    try:
        for index, start, _, stop in spans(chunk.frames, chunk.first, at, through):
            begin = start if begin < 0 else begin
            end, last = stop, index
        if last < through:
            damage = corrupt(last + 1, "it is missing from its chunk")
        elif through == chunk.last and end != len(chunk.frames):
            damage = corrupt(through, "its chunk holds more than it should")
    except CorruptEntry as error:
        damage = error
    return (EtcdBatch(at, last, chunk.frames[begin:end]) if last >= at else None), damage

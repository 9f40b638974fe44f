"""How a batch gets into etcd, for ``position_writer``: one transaction that compares the head and sets it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Sequence

from logplayer.errors import EntryTooLarge, LogError, LogFull, LogUnavailable
from logplayer.log.etcd import api
from logplayer.log.etcd import etcd_pb2 as pb
from logplayer.log.etcd.api import EtcdAway, EtcdNoRoom
from logplayer.log.etcd.keeper import EtcdKeeper
from logplayer.log.etcd.keys import LogHead, encode_chunk
from logplayer.log.etcd.link import CALL_SECONDS, CALL_SECONDS_MAX, EtcdLink
from logplayer.log.etcd.reader import EtcdReader
from logplayer.log.frame import encode_frame
from logplayer.log.position_writer import Planned, PositionTaken, newest_control
from logplayer.log.protocol import NewEntry, Record

TRIM_STEP = 20_000  # Entries that one transaction deletes at most, so that it does not hold up the appends.
REQUEST_BYTES = 1_500_000  # What every member takes, whatever its --max-request-bytes is.


class EtcdEngine:
    """The keys of one log, as the writer sees them.

    Invariant: ``_head`` is the head that the writer's plans rest on, or None if the head must be read first.
    """

    batch_bytes = 512 * 1024  # Members keep thousands of commits in memory for those of them that lag.
    trouble: tuple[type[Exception], ...] = (EtcdAway,)

    def __init__(self, link: EtcdLink, reader: EtcdReader) -> None:
        self._link = link
        self._reader = reader
        self._keys = link.keys
        self.keeper = EtcdKeeper(link)
        self.where = link.where
        self.patience_seconds = link.patience_seconds
        self._head: LogHead | None = None
        self._seconds = CALL_SECONDS

    async def bounds(self) -> tuple[int, int]:
        self._head, _ = await self._link.head()
        return self._head.first, self._head.last

    async def records(self, first: int, last: int) -> AsyncIterator[list[Record]]:
        async for batch in self._reader.read(first, last):
            yield batch.records()

    async def require_room(self, entries: Sequence[NewEntry]) -> None:
        await self.keeper.require_room(entries)

    async def commit(self, new: Planned, chain: Sequence[bytes]) -> None:
        """One chunk, whatever it holds, and the head."""
        head = self._known_head()
        first, last = new[0][0], new[-1][0]
        if head.last != first - 1:
            raise PositionTaken(f"entry {first} is planned after {head.last}")
        now_us = time.time_ns() // 1000
        frames: list[bytes] = []
        for (index, entry), value in zip(new, chain, strict=True):
            frames += encode_frame(index, entry, now_us, value)
        chunk = self._keys.put(self._keys.chunk(last), encode_chunk(first, frames))
        revision = await self._change(head, head.grown(last, newest_control(new), chain[-1]), chunk)
        self.keeper.appended(sum(map(len, frames)), revision)

    async def _change(self, head: LogHead, after: LogHead, *with_it: pb.RequestOp) -> int:
        """Set the head and do what goes with it, if the head is still ``head``. Returns the revision, 0 if unknown."""
        success = [*with_it, self._keys.put(self._keys.head, after.stored)]
        request = pb.TxnRequest(compare=[self._keys.is_head(head)], success=success)
        self._head = None  # Until it is known whether this got in.
        revision = 0
        try:
            reply = await self._link.once(api.TXN, request, self._seconds)
            taken, revision = reply.succeeded, reply.header.revision
        except EtcdAway:
            self._seconds = min(CALL_SECONDS_MAX, self._seconds * 2)
            await self._link.find_leader()
            raise
        except EtcdNoRoom as error:
            taken = await self._is_taken(head, after)
            if not taken:
                raise await self._no_room(request, error) from None
        except LogError as error:
            raise self._too_large(request) or error from None
        self._seconds = CALL_SECONDS
        if not taken:
            raise PositionTaken(f"another writer has changed {self.where}")
        self._head = after
        return revision

    async def _is_taken(self, head: LogHead, after: LogHead) -> bool:
        """Whether a change that was refused for its room got in: etcd checks the quota again when it applies a change.

        It applies the change then, answers that it has no room, and raises the alarm.
        """
        found, _ = await self._link.head()
        if found.stored not in (head.stored, after.stored):
            raise EtcdAway(f"another writer has changed {self.where}, so it is not known whether the change got in")
        return found.stored == after.stored

    async def _no_room(self, request: pb.TxnRequest, error: EtcdNoRoom) -> LogError:
        """It may be the quota, or a limit of the member on one request; the code is the same for both."""
        alarmed, too_large = await self.keeper.is_alarmed(), self._too_large(request)
        if alarmed or (alarmed is None and too_large is None):
            return LogFull(f"{error}; {self.keeper.remedy}")
        return too_large or EtcdAway(str(error))

    def _too_large(self, request: pb.TxnRequest) -> EntryTooLarge | None:
        if request.ByteSize() <= REQUEST_BYTES:
            return None
        return EntryTooLarge(
            f"{self.where} takes no commit of {request.ByteSize()} bytes; split the group, or start its servers "
            "with --max-request-bytes 25165824"
        )

    def _known_head(self) -> LogHead:
        if self._head is None:
            raise LogUnavailable(f"the head of {self.where} must be read again")
        return self._head

    async def forget(self, up_to: int) -> None:
        """Delete by steps; then give back the room."""
        head = self._known_head()
        while head.first <= up_to:
            step = min(up_to, head.first + TRIM_STEP - 1)
            gone = pb.DeleteRangeRequest(key=self._keys.chunk(0), range_end=self._keys.chunk(step) + b"\0")
            await self._clean_up(self._change(head, head.trimmed(step), pb.RequestOp(request_delete_range=gone)))
            head = self._known_head()
        await self.keeper.trimmed()

    async def newest_block(self) -> tuple[int, bytes] | None:
        head, _ = await self._link.head()
        return (head.blocks, await self.read_block(head.blocks)) if head.blocks else None

    async def read_block(self, number: int) -> bytes:
        reply = await self._link.patiently(api.RANGE, pb.RangeRequest(key=self._keys.block(number)))
        if not reply.kvs:
            raise LogError(f"the sequence map of {self.where} lacks block {number}; it is damaged")
        return reply.kvs[0].value

    async def write_block(self, number: int, data: bytes) -> None:
        head = self._known_head()
        if head.blocks != number - 1:
            raise LogUnavailable(f"another writer has written block {number} of the sequence map of {self.where}")
        await self._clean_up(self._change(head, head.mapped(number), self._keys.put(self._keys.block(number), data)))

    async def _clean_up(self, change: Awaitable[object]) -> None:
        """Old revisions may be all that is in the way of a trim: then it is tried again without them."""
        try:
            await change
        except LogFull as full:
            if await self.keeper.lift_alarm():
                raise LogUnavailable(f"the alarm was lifted: {full}") from None
            raise LogFull(f"the etcd cluster of {self.where} has no room; {self.keeper.remedy}") from None

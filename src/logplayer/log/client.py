"""A log that lives in a log server: the same protocol over gRPC.

Appends are idempotent and reads resume by index, so both are tried again while the server is away, up to
``patience_seconds``. After that the caller gets ``LogUnavailable`` and may try the same append again at any time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import grpc

from logplayer.errors import CorruptEntry, LogError, LogUnavailable
from logplayer.log.frame import decode_reply, last_index
from logplayer.log.protocol import Info, NewEntry, Record, check_group, check_range
from logplayer.log.server import SERVICE
from logplayer.log.status import COMMON_OPTIONS, ServerUnreachable, from_status
from logplayer.wire.address import parse_netloc
from logplayer.wire.grpc_credentials import channel_credentials
from logplayer.wire.logplayer.v1 import log_pb2 as pb
from logplayer.wire.security import NONE, Security, call_metadata, require_protection

T = TypeVar("T")
INLINE_BYTES_MAX = 64 * 1024
OPEN_SECONDS = 5.0  # A server that was started in the same moment as its client is waited for.
_OPTIONS = [
    *COMMON_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class LogClient:
    """A connection to a log server. Made by ``LogClient.open``; one instance belongs to one event loop."""

    def __init__(self, where: str, security: Security, patience_seconds: float) -> None:
        self._where = where
        self._patience = patience_seconds
        self._log_id = ""
        self._metadata = call_metadata(security)
        credentials = channel_credentials(security)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(where, options=_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(where, credentials, options=_OPTIONS)
        self._append = self._unary("Append", pb.AppendReply)
        self._info = self._unary("Info", pb.InfoReply)
        self._trim = self._unary("Trim", pb.InfoReply)
        read: Any = self._channel.unary_stream(
            f"/{SERVICE}/Read", pb.ReadRequest.SerializeToString, response_deserializer=None
        )
        self._read = partial(read, metadata=self._metadata)
        self._closed = False

    def _unary(self, method: str, reply: Any) -> Any:
        # The request's class serializes itself; the stubs' types do not know that.
        call: Any = self._channel.unary_unary(
            f"/{SERVICE}/{method}", lambda request: request.SerializeToString(), reply.FromString
        )
        return partial(call, metadata=self._metadata)

    @classmethod
    async def open(
        cls,
        where: str,
        *,
        security: Security = NONE,
        patience_seconds: float = 15.0,
        open_seconds: float = OPEN_SECONDS,
    ) -> LogClient:
        """Connect to ``host:port``; a server that is not there after ``open_seconds`` is said."""
        require_protection(security, parse_netloc(where)[0], server=False)
        client = cls(where, security, patience_seconds)
        try:
            ask = partial(client._info, pb.InfoRequest(), timeout=10)
            client._log_id = (await client._patiently(ask, open_seconds)).log_id
        except BaseException:
            await client.close()
            raise
        return client

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        """Append the group through the server; an answer that got lost is asked for again."""
        check_group(entries)
        request = pb.AppendRequest()
        for producer, sequence, payload, kind in entries:
            request.entries.add(producer=producer, sequence=sequence, payload=payload, kind=int(kind))
        reply = await self._patiently(lambda: self._append(request))
        return list(reply.indexes)

    async def info(self) -> Info:
        return _info(await self._patiently(lambda: self._info(pb.InfoRequest())))

    async def trim(self, up_to: int) -> None:
        await self._patiently(lambda: self._trim(pb.TrimRequest(up_to=up_to)))

    async def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        """Batches as the server sends them; checked here again, because the network is not the disk."""
        # A reader that stops early closes this generator, and the stream below must close with it.
        async with aclosing(self._stream(first, last)) as stream:
            async for after, data in stream:
                if len(data) <= INLINE_BYTES_MAX:
                    records, damage = _decode(data, after)
                else:
                    records, damage = await asyncio.to_thread(_decode, data, after)
                if records:
                    yield records
                if damage is not None:
                    raise damage

    async def read_frames(self, first: int, last: int | None = None) -> AsyncIterator[bytes]:
        """The messages as they come: the next receiver checks them."""
        async with aclosing(self._stream(first, last)) as stream:
            async for _, data in stream:
                yield data

    async def _stream(self, first: int, last: int | None) -> AsyncGenerator[tuple[int, bytes], None]:
        """(index before the batch, batch); resumes behind the last batch when the connection breaks."""
        check_range(first, last)
        after, pause = first - 1, _Pause(self._patience)
        while last is None or after < last:
            call = self._read(pb.ReadRequest(first=after + 1, last=last or 0))
            try:
                async for data in call:
                    yield after, data
                    after = last_index(data)
                    pause.reset()
                return
            except grpc.aio.AioRpcError as error:
                trouble = from_status(error, self._where)
                if not isinstance(trouble, ServerUnreachable) or self._closed or not await pause.wait():
                    raise trouble from None
                await self._require_same_log()
            except asyncio.CancelledError:
                if not self._closed:
                    raise
                raise LogUnavailable(f"the connection to {self._where} is closed") from None
            finally:
                call.cancel()

    async def _require_same_log(self) -> None:
        """Indexes mean nothing in another log: a server that came back with one is refused."""
        log_id = (await self._patiently(lambda: self._info(pb.InfoRequest()))).log_id
        if log_id != self._log_id:
            raise LogError(f"the server at {self._where} now serves log {log_id}, not {self._log_id}; open it anew")

    async def _patiently(self, call: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        pause = _Pause(self._patience if seconds is None else seconds)
        while True:
            try:
                return await self._once(call)
            except ServerUnreachable:
                if self._closed or not await pause.wait():
                    raise

    async def _once(self, call: Callable[[], Awaitable[T]]) -> T:
        if self._closed:
            raise LogUnavailable(f"the connection to {self._where} is closed")
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            raise from_status(error, self._where) from None

    async def close(self) -> None:
        """End all calls. Safe to call twice."""
        self._closed = True
        await self._channel.close(None)


class _Pause:
    """Rising pauses with jitter, until the patience is used up since the last success."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self.reset()

    def reset(self) -> None:
        self._since: float | None = None
        self._next = 0.05

    async def wait(self) -> bool:
        """Sleep; False when it is time to give up."""
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._patience:
            return False
        await asyncio.sleep(self._next * random.uniform(0.5, 1.0))
        self._next = min(1.0, self._next * 2)
        return True


def _decode(data: bytes, after: int) -> tuple[list[Record], CorruptEntry | None]:
    records: list[Record] = []
    try:
        records.extend(decode_reply(data, after))
    except CorruptEntry as damage:
        return records, damage
    return records, None


def _info(reply: pb.InfoReply) -> Info:
    return Info(reply.log_id, reply.first, reply.last, reply.control, reply.bytes)

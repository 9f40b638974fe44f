"""A log that lives in a log server: the same protocol over gRPC.

Appends are idempotent and reads resume by index, so both are tried again while the server is away, up to
``patience_seconds``. After that the caller gets ``LogUnavailable`` and may try the same append again at any time.
If several servers are known they are tried in turn: see ``server_pool``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

import grpc

from logplayer.errors import CorruptEntry, LogError, LogUnavailable, NotALog
from logplayer.log.append_stream import AppendStream, OpenStream
from logplayer.log.frame import decode_reply, last_index
from logplayer.log.grpc_errors import LOG_ID_KEY, VERSIONS_KEY, ServerUnreachable, from_status, is_away
from logplayer.log.pause import Pause
from logplayer.log.protocol import (
    BadRequest,
    History,
    Info,
    NewEntry,
    Newest,
    Record,
    check_group,
    check_producer,
    check_range,
)
from logplayer.log.server_pool import ServerPool
from logplayer.wire import versions
from logplayer.wire.addresses import Address, parse_netloc
from logplayer.wire.logplayer.v1 import log_pb2 as pb
from logplayer.wire.recognise import PeerKind, mixed_up, why_not
from logplayer.wire.security import NONE, Security, call_metadata, require_protection
from logplayer.wire.versions import Versions

T = TypeVar("T")
INLINE_BYTES_MAX = 64 * 1024
OPEN_SECONDS = 5.0  # A server that was started in the same moment as its client is waited for.


class LogClient:
    """A connection to a log server. Made by ``LogClient.open``; one instance belongs to one event loop."""

    def __init__(self, hosts: tuple[str, ...], security: Security, patience_seconds: float) -> None:
        self._where = ",".join(hosts)
        self._patience = patience_seconds
        self._closed = False
        self._servers = ServerPool(hosts, security, self._move)
        self._servers.metadata = (*(call_metadata(security) or ()), _says(versions.OURS))
        self._appends = AppendStream(self._open_stream, self._send, self._where, patience_seconds)

    def _open_stream(self) -> OpenStream:
        """To the current server."""
        endpoint = self._servers.current
        call = endpoint.appends(metadata=self._servers.metadata)
        failed = partial(self._servers.failed, endpoint)
        return OpenStream(call, endpoint.watched(call), endpoint.heard, failed, self._servers.several)

    def _move(self) -> None:
        self._appends.move()

    def _ask(self, method: str, request: Any, **options: Any) -> Awaitable[Any]:
        return self._servers.call(method, request, **options)

    @classmethod
    async def open(
        cls,
        where: str | Sequence[str],
        *,
        security: Security = NONE,
        patience_seconds: float = 15.0,
        open_seconds: float = OPEN_SECONDS,
    ) -> LogClient:
        """Connect to ``host:port``, or to the first of several that answers; if none does after ``open_seconds``,
        that is said."""
        hosts = (where,) if isinstance(where, str) else tuple(where)
        for host in hosts:
            require_protection(security, parse_netloc(host)[0], server=False)
        client = cls(hosts, security, patience_seconds)
        try:
            ask = partial(client._ask, "Info", pb.InfoRequest(), timeout=10 / len(hosts))
            reply = await client._patiently(ask, open_seconds)
            client._know(reply.version, reply.log_id)
        except ServerUnreachable as unreachable:
            await client.close()
            raise await _other_server(hosts[0], security) or unreachable from None
        except BaseException:
            await client.close()
            raise
        return client

    def _know(self, version: int, log_id: str) -> None:
        """From here on every call says in which version it is, and for which log: an index means nothing in another."""
        versions.require(version, "log server", "client", self._where)
        said = [pair for pair in self._servers.metadata if pair[0] != VERSIONS_KEY]
        self._servers.metadata = (*said, _says(Versions(version, version)), (LOG_ID_KEY, log_id))

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        """Append the group through the server; groups get in in the order of the calls.

        An answer that got lost is asked for again.
        """
        check_group(entries)
        if self._closed:
            raise LogUnavailable(f"the connection to {self._where} is closed")
        return await self._appends.append(entries)

    async def _send(self, entries: Sequence[NewEntry]) -> list[int]:
        """In a call of its own."""
        request = pb.AppendRequest()
        for producer, sequence, payload, kind in entries:
            request.entries.add(producer=producer, sequence=sequence, payload=payload, kind=int(kind))
        indexes = list((await self._patiently(lambda: self._ask("Append", request))).indexes)
        if len(indexes) != len(entries):
            raise LogError(f"the log server at {self._where} gave {len(indexes)} indexes for {len(entries)} entries")
        return indexes

    async def info(self) -> Info:
        reply = await self._patiently(lambda: self._ask("Info", pb.InfoRequest()))
        versions.require(reply.version, "log server", "client", self._where)
        return _info(reply)

    async def newest(self, producer: str) -> Newest:
        check_producer(producer)
        reply = await self._patiently(lambda: self._ask("Newest", pb.NewestRequest(producer=producer)))
        return Newest(int(reply.sequence), int(reply.index))

    async def trim(self, up_to: int, history: History | None = None) -> int:
        if not 0 <= up_to < 2**63:
            raise BadRequest(f"cannot trim up to {up_to}: indexes start at 1 and stay below 2^63")
        index, chain = history or History(0, b"")
        request = pb.TrimRequest(up_to=up_to, index=index, chain=chain)
        reply = await self._patiently(lambda: self._ask("Trim", request))
        return int(reply.first) - 1

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
        """(index before the batch, batch); resumes after the last batch when the connection breaks."""
        check_range(first, last)
        after, pause = first - 1, Pause(self._patience)
        while last is None or after < last:
            endpoint = self._servers.current
            call = endpoint.read(pb.ReadRequest(first=after + 1, last=last or 0), metadata=self._servers.metadata)
            try:
                with endpoint.watched(call):
                    async for data in call:
                        endpoint.heard()
                        yield after, data
                        after = max(after, last_index(data))  # Never back, whatever a broken server sent.
                        pause.reset()
                return
            except grpc.aio.AioRpcError as error:
                self._servers.failed(endpoint, error)
                trouble = self._trouble(error)
                if not isinstance(trouble, ServerUnreachable) or self._closed or not await pause.wait():
                    raise trouble from None
            except asyncio.CancelledError:
                if not self._closed:
                    raise
                raise LogUnavailable(f"the connection to {self._where} is closed") from None
            finally:
                call.cancel()

    async def _patiently(self, call: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        pause = Pause(self._patience if seconds is None else seconds)
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
            raise self._trouble(error) from None

    def _trouble(self, error: grpc.aio.AioRpcError) -> LogError:
        """What went wrong; if another server may do better, it is tried as if this one could not be reached."""
        trouble = from_status(error, self._where)
        if self._servers.several and is_away(error) and not isinstance(trouble, ServerUnreachable):
            return ServerUnreachable(str(trouble))
        return trouble

    async def close(self) -> None:
        """End all calls. Safe to call twice."""
        self._closed = True
        await self._appends.close(LogUnavailable(f"the connection to {self._where} is closed"))
        await self._servers.close()


def _says(speaks: Versions) -> tuple[str, str]:
    return VERSIONS_KEY, versions.to_text(speaks)


async def _other_server(where: str, security: Security) -> NotALog | None:
    """What to tell if somebody else than a gRPC server answers there."""
    _, found = await why_not(Address("grpc", *parse_netloc(where)), security)
    if found is PeerKind.TCP:
        return NotALog(f"no log server at {where}: a target listens there, for tcp://; give the log server's port")
    mixed = mixed_up(f"grpc://{where}", where, found)
    return NotALog(f"no log server at {where}: {mixed}") if mixed else None


def _decode(data: bytes, after: int) -> tuple[list[Record], CorruptEntry | None]:
    records: list[Record] = []
    try:
        records.extend(decode_reply(data, after))
    except CorruptEntry as damage:
        return records, damage
    return records, None


def _info(reply: pb.InfoReply) -> Info:
    return Info(**{name: getattr(reply, name) for name in Info._fields})

"""The log server: any log over gRPC, so that several processes and languages share it.

A reader's flow control is HTTP/2's own: the server reads the log only as fast as the reader takes it, a few megabytes
ahead at most. New entries are pushed. Frames go from the log to the wire as they are.

To gRPC every method streams its request, although one message is all that comes: so the server takes the message off
the wire when it wants it. It looks at the token first, and an append first waits for room. A handler for a single
request would get it whole, from anybody, before the first line of ours runs. Most appends come on streams, see
``append_service``; those that are too large for one, and those of simple clients, in calls of their own.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import grpc
from google.protobuf.message import DecodeError, Message

from logplayer.errors import CorruptEntry, LogDiverged, LogError, OtherLog, VersionMismatch
from logplayer.log.append_service import STREAM_WINDOW_BYTES, AppendService, note_answered
from logplayer.log.frame import encode_frame
from logplayer.log.grpc_errors import COMMON_OPTIONS, LOG_ID_KEY, MESSAGE_BYTES_MAX, VERSIONS_KEY, to_status
from logplayer.log.protocol import BadRequest, History, Info, Kind, Log, NewEntry
from logplayer.log.room import Room
from logplayer.observe.instruments import AppendCounts
from logplayer.observe.logs import about
from logplayer.wire import versions
from logplayer.wire.grpc_credentials import server_credentials
from logplayer.wire.listening import cannot_listen, require_free
from logplayer.wire.logplayer.v1 import log_pb2 as pb
from logplayer.wire.security import NONE, Security, require_protection

SERVICE = "logplayer.v1.Log"
APPENDS_BYTES_MAX = 5 * MESSAGE_BYTES_MAX
"""What all appends that are read or wait for the log may hold. Five of any length can be read at once."""
M = TypeVar("M", bound=Message)
RpcMethod = Callable[[Any], Awaitable[Any]]
_OPTIONS: list[tuple[str, int]] = [
    *COMMON_OPTIONS,
    # A stream that is not read yet keeps this much here, not the megabytes that probing grants it. A message that is
    # read gets a window of its own length all the same; the messages of an append stream need not wait for that.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", STREAM_WINDOW_BYTES),
    ("grpc.so_reuseport", 0),  # Or a second server would share the port in silence.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]
_log = logging.getLogger(__name__)


@runtime_checkable
class ReadsFrames(Protocol):
    """A log that can hand out encoded ``ReadReply`` messages without decoding them."""

    def read_frames(self, first: int, last: int | None = None) -> AsyncIterator[bytes]: ...


class LogServer:
    """Serves one log, which it does not close. ``start`` returns the port; ``security``: which clients it accepts."""

    def __init__(self, log: Log, security: Security = NONE) -> None:
        self._log = log
        self._security = security
        self._room = Room(APPENDS_BYTES_MAX)
        self.counts = AppendCounts()
        self._appends = AppendService(log, self._room, self.counts)
        self._server: Any = None
        self._log_id = ""  # Known once somebody asks.

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; port 0 takes a free one."""
        require_protection(self._security, host, server=True)
        credentials = server_credentials(self._security)
        require_free(host, port, "--listen")
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((self._handlers(),))
        where = f"{host}:{port}"
        try:
            if credentials is None:
                bound = self._server.add_insecure_port(where)
            else:
                bound = self._server.add_secure_port(where, credentials)
        except RuntimeError:
            bound = 0
        if not bound:
            await self._server.stop(None)
            raise cannot_listen(host, port, "--listen", OSError(errno.EADDRINUSE, "in use"))
        await self._server.start()
        return int(bound)

    async def stop(self, grace_seconds: float = 0.5) -> None:
        """Finish the appends that are under way; readers are ended and come back elsewhere by index."""
        server, self._server = self._server, None  # It refers to us: let it go while its event loop still runs.
        if server is not None:
            self._appends.end()
            await server.stop(grace_seconds)

    async def wait(self) -> None:
        await self._server.wait_for_termination()

    def _handlers(self) -> Any:
        methods = {
            "Append": grpc.stream_unary_rpc_method_handler(
                self._admitted(self._append), None, pb.AppendReply.SerializeToString
            ),
            "AppendStream": grpc.stream_stream_rpc_method_handler(self._admitted(self._appends.serve), None, None),
            "Read": grpc.stream_stream_rpc_method_handler(self._admitted(self._read), None, None),
            "Info": grpc.stream_unary_rpc_method_handler(
                self._admitted(self._info), None, pb.InfoReply.SerializeToString
            ),
            "Newest": grpc.stream_unary_rpc_method_handler(
                self._admitted(self._newest), None, pb.NewestReply.SerializeToString
            ),
            "Trim": grpc.stream_unary_rpc_method_handler(
                self._admitted(self._trim), None, pb.InfoReply.SerializeToString
            ),
            "Alive": grpc.stream_unary_rpc_method_handler(
                self._admitted(self._alive), None, pb.AliveReply.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _admitted(self, method: RpcMethod) -> Callable[[Any, Any], Awaitable[Any]]:
        """The method for clients that show the token; the log's errors become statuses."""

        async def handle(_: Any, context: Any) -> Any:
            metadata = dict(context.invocation_metadata() or ())
            if not self._security.permits(str(metadata.get("authorization", "")).removeprefix("Bearer ")):
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")
            try:
                require_version(metadata)
                await self._require_log(str(metadata.get(LOG_ID_KEY, "")))
                return await method(context)
            except LogError as error:
                return await _abort(context, error)

        return handle

    async def _require_log(self, wanted: str) -> None:
        """Refuse a call that is for another log. Without an id it is for whichever log is here."""
        if wanted and not self._log_id:
            self._log_id = (await self._log.info()).log_id
        if wanted and wanted != self._log_id:
            raise OtherLog(
                f"this server has log {self._log_id} now, the call is for log {wanted}: serve that one here again, "
                "or open this one (nothing was read or changed)"
            )

    async def _append(self, context: Any) -> pb.AppendReply:
        held, began = MESSAGE_BYTES_MAX, time.perf_counter()
        await self._room.take(held)
        try:
            group, needed = _group(await _receive(context, pb.AppendRequest))
            self._room.give(held - needed)
            held = needed
            try:
                indexes = await self._log.append(group)
            except LogError as error:
                note_answered(self.counts, began, [error], needed)
                raise
            note_answered(self.counts, began, [indexes], needed)
            return pb.AppendReply(indexes=indexes)
        finally:
            self._room.give(held)

    async def _read(self, context: Any) -> None:
        request = await _receive(context, pb.ReadRequest)
        async with contextlib.aclosing(frames_of(self._log, request.first, request.last or None)) as frames:
            async for data in frames:
                try:
                    await context.write(data)
                except grpc.aio.InternalError:
                    return  # The reader is gone, which gRPC found out in the middle of the write.

    async def _info(self, context: Any) -> pb.InfoReply:
        await _receive(context, pb.InfoRequest)
        reply = _reply(await self._log.info())
        reply.version = require_version(dict(context.invocation_metadata()))
        return reply

    async def _alive(self, context: Any) -> pb.AliveReply:
        await _receive(context, pb.AliveRequest)
        return pb.AliveReply()

    async def _newest(self, context: Any) -> pb.NewestReply:
        request = await _receive(context, pb.NewestRequest)
        sequence, index = await self._log.newest(request.producer)
        return pb.NewestReply(sequence=sequence, index=index)

    async def _trim(self, context: Any) -> pb.InfoReply:
        request = await _receive(context, pb.TrimRequest)
        await self._log.trim(request.up_to, History(request.index, request.chain) if request.index else None)
        return _reply(await self._log.info())


def require_version(metadata: Mapping[str, Any]) -> int:
    """The version of a call that says this about itself; a call whose client speaks none of ours is refused."""
    said = str(metadata.get(VERSIONS_KEY, ""))
    theirs = versions.from_text(said)
    if theirs is None:
        raise BadRequest(f"{VERSIONS_KEY}: {said!r} is not a range of versions; send it as 1-1, for example")
    version = versions.agreed(theirs)
    if version is None:
        raise VersionMismatch(versions.conflict("client", theirs, "log server"))
    return version


async def _receive(context: Any, kind: type[M]) -> M:
    """The one message of the call, which waited outside until now."""
    body = await context.read()
    if body is grpc.aio.EOF:  # type: ignore[attr-defined]  # The stubs lack it.
        raise BadRequest(f"the call ended without a {kind.DESCRIPTOR.full_name}; send one")
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise BadRequest(f"the request is not a {kind.DESCRIPTOR.full_name}: {error}") from None


def _group(request: pb.AppendRequest) -> tuple[list[NewEntry], int]:
    """The entries of a request, and its bytes. The request itself goes: its payloads would be held twice."""
    if any(int(m.kind) not in (0, 1) for m in request.entries):
        raise BadRequest("an entry's kind must be DATA or CONTROL")
    return [NewEntry(m.producer, m.sequence, m.payload, Kind(m.kind)) for m in request.entries], request.ByteSize()


async def frames_of(log: Log, first: int, last: int | None) -> AsyncGenerator[bytes, None]:
    """Encoded batches of any log."""
    if isinstance(log, ReadsFrames):
        async for data in log.read_frames(first, last):
            yield data
        return
    async for records in log.read(first, last):
        parts: list[bytes] = []
        for r in records:
            entry = NewEntry(r.producer, r.sequence, r.payload, r.kind)
            parts += encode_frame(r.index, entry, r.committed_at_us, r.chain)
        yield b"".join(parts)


def _reply(info: Info) -> pb.InfoReply:
    return pb.InfoReply(**info._asdict())


async def _abort(context: Any, error: LogError) -> Any:
    code, details, trailing = to_status(error)
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS):
        known = about(index=error.index) if isinstance(error, CorruptEntry | LogDiverged) else None
        _log.error("%s: %s", type(error).__name__, details, extra=known)
    await context.abort(code, details, trailing)

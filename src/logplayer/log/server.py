"""The log server: any log behind gRPC, so that several processes and languages share it.

A reader's flow control is HTTP/2's own: the server reads the log only as fast as the reader takes it, a few megabytes
ahead at most. New entries are pushed. Frames go from the log to the wire as they are.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from typing import Any, Protocol, runtime_checkable

import grpc

from logplayer.errors import AddressError, LogError
from logplayer.log.frame import encode_frame
from logplayer.log.protocol import BadRequest, Info, Kind, Log, NewEntry
from logplayer.log.status import COMMON_OPTIONS, to_status
from logplayer.wire.grpc_credentials import server_credentials
from logplayer.wire.logplayer.v1 import log_pb2 as pb
from logplayer.wire.security import NONE, Security, require_protection

SERVICE = "logplayer.v1.Log"
_OPTIONS: list[tuple[str, int]] = [
    *COMMON_OPTIONS,
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
    """Serves one log, which it does not close. ``start`` returns the port; ``security`` says who may come."""

    def __init__(self, log: Log, security: Security = NONE) -> None:
        self._log = log
        self._security = security
        self._server: Any = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen; port 0 takes a free one. A port in use is the user's to solve."""
        require_protection(self._security, host, server=True)
        credentials = server_credentials(self._security)
        _require_free(host, port)
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
            raise _cannot_listen(host, port)
        await self._server.start()
        return int(bound)

    async def stop(self, grace_seconds: float = 0.5) -> None:
        """Finish the appends that are under way; readers are ended and come back elsewhere by index."""
        await self._server.stop(grace_seconds)

    async def wait(self) -> None:
        await self._server.wait_for_termination()

    def _handlers(self) -> Any:
        methods = {
            "Append": grpc.unary_unary_rpc_method_handler(
                self._append, pb.AppendRequest.FromString, pb.AppendReply.SerializeToString
            ),
            "Read": grpc.unary_stream_rpc_method_handler(self._read, pb.ReadRequest.FromString, None),
            "Info": grpc.unary_unary_rpc_method_handler(
                self._info, pb.InfoRequest.FromString, pb.InfoReply.SerializeToString
            ),
            "Trim": grpc.unary_unary_rpc_method_handler(
                self._trim, pb.TrimRequest.FromString, pb.InfoReply.SerializeToString
            ),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _admit(self, context: Any) -> None:
        """End a call that does not show the token."""
        shown = dict(context.invocation_metadata() or ()).get("authorization", "")
        if not self._security.permits(str(shown).removeprefix("Bearer ")):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")

    async def _append(self, request: pb.AppendRequest, context: Any) -> Any:
        await self._admit(context)
        try:
            if any(int(m.kind) not in (0, 1) for m in request.entries):
                raise BadRequest("an entry's kind must be DATA or CONTROL")
            group = [NewEntry(m.producer, m.sequence, m.payload, Kind(m.kind)) for m in request.entries]
            return pb.AppendReply(indexes=await self._log.append(group))
        except LogError as error:
            return await _abort(context, error)

    async def _read(self, request: pb.ReadRequest, context: Any) -> None:
        await self._admit(context)
        frames = frames_of(self._log, request.first, request.last or None)
        try:
            async for data in frames:
                await context.write(data)
        except LogError as error:
            await _abort(context, error)
        finally:
            await frames.aclose()  # type: ignore[attr-defined]  # Ends the log's own reader at once.

    async def _info(self, request: pb.InfoRequest, context: Any) -> Any:
        await self._admit(context)
        try:
            return _reply(await self._log.info())
        except LogError as error:
            return await _abort(context, error)

    async def _trim(self, request: pb.TrimRequest, context: Any) -> Any:
        await self._admit(context)
        try:
            await self._log.trim(request.up_to)
            return _reply(await self._log.info())
        except LogError as error:
            return await _abort(context, error)


def _require_free(host: str, port: int) -> None:
    """gRPC writes a line of its own to stderr when it cannot bind; so we look first."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        raise _cannot_listen(host, port, error.strerror or str(error)) from None


def _cannot_listen(host: str, port: int, why: str = "it is in use or not ours") -> AddressError:
    return AddressError(f"cannot listen on {host}:{port} ({why}); choose another port or stop what uses it")


async def frames_of(log: Log, first: int, last: int | None) -> AsyncIterator[bytes]:
    """Encoded batches of any log."""
    if isinstance(log, ReadsFrames):
        async for data in log.read_frames(first, last):
            yield data
        return
    async for records in log.read(first, last):
        parts: list[bytes] = []
        for r in records:
            parts += encode_frame(r.index, NewEntry(r.producer, r.sequence, r.payload, r.kind), r.committed_at_us)
        yield b"".join(parts)


def _reply(info: Info) -> pb.InfoReply:
    return pb.InfoReply(log_id=info.log_id, first=info.first, last=info.last, control=info.control, bytes=info.bytes)


async def _abort(context: Any, error: LogError) -> Any:
    code, details, trailing = to_status(error)
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS):
        _log.error("%s: %s", type(error).__name__, details)
    await context.abort(code, details, trailing)

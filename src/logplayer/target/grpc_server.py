"""The target's service over gRPC: bytes in and bytes out, one writer for each stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from logplayer.errors import UserError
from logplayer.target.ack_round import AckRound
from logplayer.target.host import Host
from logplayer.target.stream import ACK_SECONDS, Stream, absent, find
from logplayer.wire import codec
from logplayer.wire.address import Address
from logplayer.wire.grpc_credentials import server_credentials
from logplayer.wire.grpc_link import EOF, SERVER_OPTIONS, SERVICE
from logplayer.wire.logplayer.v1 import target_pb2 as pb
from logplayer.wire.security import Security

_STATUS = {
    codec.INTERNAL: grpc.StatusCode.INTERNAL,
    codec.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    codec.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
}
_LINGER_SECONDS = 2.0
_STOP_SECONDS = 0.2


class GrpcServer:
    """Listens at one port for any number of players."""

    def __init__(self, hosts: Mapping[str, Host], security: Security) -> None:
        self._hosts = hosts
        self._security = security
        self._acks = AckRound(ACK_SECONDS)
        self._server: Any = None

    async def start(self, address: Address) -> int:
        """Listen; the port that was bound."""
        server: Any = grpc.aio.server(options=SERVER_OPTIONS)
        handlers = {
            "Play": grpc.stream_stream_rpc_method_handler(self._play),
            "Position": grpc.unary_unary_rpc_method_handler(self._position),
            "WaitFor": grpc.unary_unary_rpc_method_handler(self._wait_for),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        credentials = server_credentials(self._security)
        try:
            if credentials is None:
                port = server.add_insecure_port(address.netloc)
            else:
                port = server.add_secure_port(address.netloc, credentials)
        except RuntimeError:
            # gRPC does not say why; it only names its own logging.
            raise UserError(f"cannot listen at {address}: is the port in use, and is the host one of ours?") from None
        await server.start()
        self._server = server
        return int(port)

    async def stop(self) -> None:
        """End every stream."""
        if self._server is not None:
            await self._server.stop(_STOP_SECONDS)

    def _stranger(self, context: Any) -> str:
        """Why the caller may not go on; empty if it may."""
        token = ""
        for key, value in context.invocation_metadata() or ():
            if key == "authorization" and isinstance(value, str):
                token = value.removeprefix("Bearer ")
        if self._security.permits(token):
            return ""
        return "the token is wrong" if token else "this target wants a token"

    async def _authorize(self, context: Any) -> None:
        stranger = self._stranger(context)
        if stranger:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, stranger)

    async def _play(self, _requests: Any, context: Any) -> None:
        stranger = self._stranger(context)
        if stranger:
            await _fail(context, codec.UNAUTHENTICATED, stranger)
        peer = _GrpcPeer(self._hosts, context, self._acks)
        try:
            await peer.write_until_end()
        finally:
            peer.reader.cancel()
            peer.stream.gone()
        if peer.stream.failure is not None:
            await _fail(context, *peer.stream.failure)
        if not peer.hung_up:
            await _leave_the_end_to_the_player()

    async def _position(self, data: bytes, context: Any) -> bytes:
        await self._authorize(context)
        request = await _parse(pb.PositionRequest, data, context)
        host = await self._find(request.target, context)
        return codec.encode_position(host.name, host.position)

    async def _wait_for(self, data: bytes, context: Any) -> bytes:
        await self._authorize(context)
        request = await _parse(pb.WaitForRequest, data, context)
        host = await self._find(request.target, context)
        # A deadline or a client that leaves cancels this handler, and with it the waiting.
        return codec.encode_position(host.name, await host.reached(request.index))

    async def _find(self, name: str, context: Any) -> Host:
        host = find(self._hosts, name)
        if host is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, absent(self._hosts, name))
            raise AssertionError  # abort() never returns.
        return host


class _GrpcPeer:
    """See :class:`logplayer.target.stream.Peer`. The reader is a task; the handler itself is the only writer."""

    def __init__(self, hosts: Mapping[str, Host], context: Any, acks: AckRound) -> None:
        self.stream = Stream(hosts, self, acks)
        self._context = context
        self._wake = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self.hung_up = False
        self.reader = asyncio.get_running_loop().create_task(self._read())

    def flush(self) -> None:
        self._wake.set()

    def pause(self) -> None:
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    async def write_until_end(self) -> None:
        while True:
            data = self.stream.take()
            if data is not None:
                await self._context.write(data)
            elif self.stream.ended:
                return
            else:
                await self._wake.wait()
                self._wake.clear()

    async def _read(self) -> None:
        try:
            while not self.stream.ended:
                await self._may_read.wait()
                data = await self._context.read()
                if data is EOF:
                    break
                self.stream.received(data)
        except grpc.aio.BaseError:
            pass  # The player is gone; the handler is being cancelled too.
        except grpc.aio.UsageError:
            pass  # The call ended while a read began.
        if not self.stream.ended:
            self.hung_up = True
            self.stream.gone()
            self._wake.set()


async def _fail(context: Any, code: int, detail: str) -> None:
    """End the stream with a reason, in a message and as the status."""
    await context.write(codec.encode_failed(code, detail))
    await _leave_the_end_to_the_player()
    await context.abort(_STATUS[code], detail)


async def _leave_the_end_to_the_player() -> None:
    """Wait until it hangs up, which cancels this handler; for a player that does not, a moment.

    If the target ended the stream first while the player writes, the player's library would report the failed write
    as the end, and throw the last message away unread.
    """
    await asyncio.sleep(_LINGER_SECONDS)


async def _parse(kind: Any, data: bytes, context: Any) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not a {kind.__name__}: {error}")

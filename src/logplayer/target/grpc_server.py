"""The target's service over gRPC: bytes in and bytes out, one writer for each stream.

To gRPC every method streams its request, although a question is one message: so the server looks at the token before it
takes the first message off the wire. A handler for a single request would get it whole, from anybody.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from logplayer.core.fence import Position
from logplayer.target.ack_coalescing import AckRound
from logplayer.target.bounds import Questions
from logplayer.target.host import Host
from logplayer.target.stream import ACK_SECONDS, Stream, absent, find
from logplayer.wire import codec, versions
from logplayer.wire.addresses import Address
from logplayer.wire.grpc_credentials import server_credentials
from logplayer.wire.grpc_link import EOF, SERVER_OPTIONS, SERVICE
from logplayer.wire.listening import cannot_listen, require_free
from logplayer.wire.logplayer.v1 import target_pb2 as pb
from logplayer.wire.security import Security

_STATUS = {
    codec.INTERNAL: grpc.StatusCode.INTERNAL,
    codec.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    codec.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    codec.EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    codec.VERSION: grpc.StatusCode.FAILED_PRECONDITION,
}
_LINGER_SECONDS = 2.0
_STOP_SECONDS = 0.2
# Calls at once, of all connections: streams of players, and questions. Those over it are refused by gRPC.
CALLS_MAX = 10_000


class GrpcServer:
    """Listens at one port for any number of players."""

    def __init__(self, hosts: Mapping[str, Host], security: Security, questions: Questions) -> None:
        self._hosts = hosts
        self._security = security
        self._acks = AckRound(ACK_SECONDS)
        self._questions = questions
        self._server: Any = None

    async def start(self, address: Address) -> int:
        """Listen; the port that was bound."""
        server: Any = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        handlers = {
            "Play": grpc.stream_stream_rpc_method_handler(self._play),
            "Position": grpc.stream_unary_rpc_method_handler(self._question(pb.PositionRequest, self._position)),
            "WaitFor": grpc.stream_unary_rpc_method_handler(self._question(pb.WaitForRequest, self._wait_for)),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        credentials = server_credentials(self._security)
        require_free(address.host, address.port, "--listen")
        try:
            if credentials is None:
                port = server.add_insecure_port(address.netloc)
            else:
                port = server.add_secure_port(address.netloc, credentials)
        except RuntimeError:  # gRPC does not say why; but it was free a moment ago.
            raise cannot_listen(address.host, address.port, "--listen", OSError(errno.EADDRINUSE, "in use")) from None
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

    def _question(
        self, kind: Any, answer: Callable[[Any, Host, Any], Awaitable[Position]]
    ) -> Callable[[Any, Any], Awaitable[bytes]]:
        """The handler of a question: the token, then the request, then the answer about one target."""

        async def handle(_requests: Any, context: Any) -> bytes:
            stranger = self._stranger(context)
            if stranger:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, stranger)
            data = await context.read()
            request = await _parse(kind, b"" if data is EOF else data, context)
            version = await _agreed(request, context)
            host = await self._find(request.target, context)
            position = await answer(request, host, context)
            return codec.answer_position(
                host.name, position, host.connected, version, host.quiet_ms
            ).SerializeToString()

        return handle

    async def _play(self, _requests: Any, context: Any) -> None:
        stranger = self._stranger(context)
        if stranger:
            await _fail(context, codec.UNAUTHENTICATED, stranger)
            return
        peer = _GrpcPeer(self._hosts, context, self._acks, self._questions)
        try:
            await peer.write_until_end()
        finally:
            peer.reader.cancel()
            peer.stream.gone()
        if peer.stream.failure is not None:
            await _fail(context, *peer.stream.failure)
        elif not peer.hung_up:
            await _leave_the_end_to_the_player()

    async def _position(self, _request: Any, host: Host, _context: Any) -> Position:
        return host.position

    async def _wait_for(self, request: Any, host: Host, context: Any) -> Position:
        if host.position.index >= request.index:
            return host.position
        connection = context.peer()
        too_many = self._questions.admit(connection)
        if too_many:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, too_many)
        try:
            # A deadline or a client that leaves cancels this handler, and with it the waiting.
            return await host.reached(request.index)
        finally:
            self._questions.leave(connection)

    async def _find(self, name: str, context: Any) -> Host:
        host = find(self._hosts, name)
        if host is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, absent(self._hosts, name))
            raise AssertionError  # abort() never returns.
        return host


class _GrpcPeer:
    """See :class:`logplayer.target.stream.Peer`. The reader is a task; the handler itself is the only writer."""

    def __init__(self, hosts: Mapping[str, Host], context: Any, acks: AckRound, questions: Questions) -> None:
        self.stream = Stream(hosts, self, acks, questions, context.peer())
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
                try:
                    await self._context.write(data)
                except grpc.aio.InternalError:
                    self.hung_up = True  # The player is gone, which gRPC found out in the middle of the write.
                    return
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
    try:
        await context.write(codec.encode_failed(code, detail))
    except grpc.aio.InternalError:
        return  # Nobody is there to read it.
    await _leave_the_end_to_the_player()
    await context.abort(_STATUS[code], detail)


async def _leave_the_end_to_the_player() -> None:
    """Wait until it hangs up, which cancels this handler; for a player that does not, a moment.

    If the target ended the stream first while the player writes, the player's library would report the failed write
    as the end, and throw the last message away unread.
    """
    await asyncio.sleep(_LINGER_SECONDS)


async def _agreed(request: Any, context: Any) -> int:
    """The version to answer in; without one the call ends here."""
    theirs = codec.versions_of(request.versions)
    version = versions.agreed(theirs)
    if version is None:
        await context.abort(_STATUS[codec.VERSION], versions.conflict("reader", theirs, "target"))
        raise AssertionError  # abort() never returns.
    return version


async def _parse(kind: Any, data: bytes, context: Any) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not a {kind.__name__}: {error}")

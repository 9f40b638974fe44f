"""For readers: where targets stand, waiting for an index, and the cut that is consistent across all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import grpc
import grpc.aio

from logplayer.core.fence import Position
from logplayer.errors import LogPlayerError, TargetError
from logplayer.wire import address as addresses
from logplayer.wire import codec, grpc_link, transport
from logplayer.wire.address import Address
from logplayer.wire.logplayer.v1 import target_pb2 as pb
from logplayer.wire.security import NONE, Security, call_metadata, require_protection


async def position(address: str, target: str = "", *, timeout: float = 10.0, security: Security = NONE) -> Position:
    """Where the target stands. Never a basis for sending: only an Open is."""
    return await _ask(address, codec.AskPosition(target), timeout, security)


async def wait_for(address: str, target: str, index: int, timeout: float = 10.0, security: Security = NONE) -> Position:
    """Return once the target has durably applied everything up to ``index``: read your writes.

    Raises TargetError if it has not within ``timeout`` seconds.
    """
    return await _ask(address, codec.AskPosition(target, index), timeout, security)


async def consistent_cut(
    targets: Mapping[str, str] | Iterable[str], *, timeout: float = 10.0, security: Security = NONE
) -> int:
    """The index up to which every target has everything: state up to it is whole on all of them.

    ``targets`` are names with their addresses, or just addresses where each has one target.
    """
    named = targets.items() if isinstance(targets, Mapping) else [("", address) for address in targets]
    asked = [position(address, name, timeout=timeout, security=security) for name, address in named]
    return min([stood.index for stood in await asyncio.gather(*asked)], default=0)


async def _ask(address: str, ask: codec.AskPosition, timeout: float, security: Security) -> Position:
    parsed = addresses.parse(address)
    require_protection(security, parsed.host, server=False)
    call = _ask_grpc if parsed.scheme == "grpc" else _ask_tcp
    try:
        async with asyncio.timeout(timeout):
            return await call(parsed, ask, timeout, security)
    except TimeoutError:
        what = f"reach index {ask.at_least}" if ask.at_least else "answer"
        why = "is it served there, and does a player feed it?"
        raise TargetError(f"the target at {address} did not {what} within {timeout:g} s; {why}") from None


async def _ask_grpc(address: Address, ask: codec.AskPosition, timeout: float, security: Security) -> Position:
    channel = grpc_link.open_channel(address, security)
    try:
        await grpc_link.wait_until_ready(channel, address, timeout)
        metadata = call_metadata(security)
        if ask.at_least:
            method, request = "WaitFor", pb.WaitForRequest(target=ask.target, index=ask.at_least).SerializeToString()
        else:
            method, request = "Position", pb.PositionRequest(target=ask.target).SerializeToString()
        reply = await channel.unary_unary(f"/{grpc_link.SERVICE}/{method}")(request, metadata=metadata)
        return codec.decode_position(reply)
    except grpc.aio.AioRpcError as error:
        raise (
            grpc_link.describe(address, error.code(), error.details()) or TargetError(f"{address} did not answer")
        ) from None
    finally:
        await channel.close()


class _Answer:
    """Hears the one answer to a question over tcp://."""

    def __init__(self) -> None:
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def received(self, data: bytes) -> None:
        if not self.future.done():
            self.future.set_result(data)

    def writable(self) -> None:
        """One question is all there is to send."""

    def closed(self, error: Exception | None) -> None:
        if not self.future.done():
            self.future.set_exception(error or TargetError("the target closed the connection without an answer"))


async def _ask_tcp(address: Address, ask: codec.AskPosition, timeout: float, security: Security) -> Position:
    answer = _Answer()
    link = await transport.connect(str(address), answer, security, timeout)
    try:
        link.send(codec.encode_ask(ask))
        reply = codec.decode_to_player(await answer.future)
    finally:
        link.close()
    if not isinstance(reply, Position):
        raise LogPlayerError(f"{address} answered a question about its position with {reply}")
    return reply

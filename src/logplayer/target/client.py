"""For readers: the index that a target has, waiting for one, and the cut that is consistent across all of them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Mapping

import grpc
import grpc.aio

from logplayer.core.fence import Position
from logplayer.errors import LogPlayerError, TargetError, TargetUnavailable
from logplayer.log.protocol import Log
from logplayer.target.agreement import agreed_position
from logplayer.wire import addresses, codec, grpc_link, transport
from logplayer.wire.addresses import Address
from logplayer.wire.codec import PositionAnswer
from logplayer.wire.recognise import hung_up
from logplayer.wire.security import NONE, Security, call_metadata, require_protection

_PAUSE_SECONDS = 0.2


async def position(address: str, target: str = "", *, timeout: float = 10.0, security: Security = NONE) -> Position:
    """What the target has: its index, its session, the digest of all that it applied. Never a basis for sending.

    Args:
        address: ``tcp://host:port`` or ``grpc://host:port``.
        target: The target's name; may be left out where the address has one target.
        timeout: How many seconds to wait for the answer.
        security: TLS and token.

    Raises:
        TargetUnavailable: No server listens there.
        VersionMismatch: The target speaks other versions of the protocol.
        TargetError: No answer in time, or no such target.

    Example:
        >>> (await lp.position("tcp://127.0.0.1:7201", "a")).index  # doctest: +SKIP
        42
    """
    return (await standing(address, target, timeout=timeout, security=security)).position


async def standing(
    address: str, target: str = "", *, timeout: float = 10.0, security: Security = NONE
) -> PositionAnswer:
    """The target's position, and whether a player feeds it now."""
    return await ask_position(address, codec.AskPosition(target), timeout, security)


async def wait_for(address: str, target: str, index: int, timeout: float = 10.0, security: Security = NONE) -> Position:
    """Return once the target has durably applied everything up to ``index``: read your writes.

    A target that is away meanwhile is waited for, too. An index does not say which history of the log it belongs to: a
    target that is DIVERGED, because the log was restored from a backup, may have the index without your transaction.
    ``receipt.applied`` finds that out, and ``consistent_cut`` with ``log``.

    Args:
        address: ``tcp://host:port`` or ``grpc://host:port``.
        target: The target's name.
        index: What it must have; ``receipt.index``, for example.
        timeout: How many seconds to wait at most.
        security: TLS and token.

    Raises:
        TargetError: It does not have the index within ``timeout`` seconds.

    Example:
        >>> (await lp.wait_for("tcp://127.0.0.1:7201", "a", 42)).index  # doctest: +SKIP
        42
    """
    return (await ask_position(address, codec.AskPosition(target, index), timeout, security)).position


async def consistent_cut(
    targets: Mapping[str, str] | Iterable[str],
    *,
    timeout: float = 10.0,
    security: Security = NONE,
    log: Log | None = None,
) -> int:
    """The index up to which every target has everything: state up to it is whole on all of them.

    It is a number, not a snapshot: a target may have more. Without ``log`` it is no more than the smallest index, and
    after a restore from an older backup a target may have that index with entries that the log has lost. Give the log
    if you trim by the answer.

    Args:
        targets: Names with their addresses, or just addresses where each has one target.
        timeout: How many seconds to wait for each answer.
        security: TLS and token.
        log: The log that they are played from: what each has must be what this log has up to there.

    Raises:
        TargetError: A target did not answer, or has another history than ``log``, or has less than ``log`` can tell of.
        LogError: ``log`` cannot be asked.

    Example:
        >>> targets = {"a": "tcp://127.0.0.1:7201", "b": "tcp://127.0.0.1:7202"}
        >>> await lp.consistent_cut(targets, log=log)  # doctest: +SKIP
        42
    """
    named = targets.items() if isinstance(targets, Mapping) else [("", address) for address in targets]

    async def has(name: str, address: str) -> int:
        ask = functools.partial(position, address, name, timeout=timeout, security=security)
        found = await ask() if log is None else await agreed_position(log, name or address, ask)
        return found.index

    return min(await asyncio.gather(*(has(name, address) for name, address in named)), default=0)


async def ask_position(address: str, ask: codec.AskPosition, timeout: float, security: Security) -> PositionAnswer:
    """The answer to any question about a position."""
    parsed = addresses.parse(address)
    require_protection(security, parsed.host, server=False)
    away: TargetUnavailable | None = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    return await _CALLS[parsed.scheme](parsed, ask, timeout, security)
                except TargetUnavailable as error:
                    if not ask.at_least:
                        raise
                    away = error  # Started in the same moment, or again: whoever waits, waits for that too.
                await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError:
        if away is not None:
            raise away from None
        waited = f"reach index {ask.at_least}" if ask.at_least else "answer"
        why = "does a player feed it?" if ask.at_least else "is it frozen?"
        raise TargetError(f"the target at {address} did not {waited} within {timeout:g} s; {why}") from None


async def _ask_grpc(address: Address, ask: codec.AskPosition, timeout: float, security: Security) -> PositionAnswer:
    channel = grpc_link.open_channel(address, security)
    try:
        await grpc_link.wait_until_ready(channel, address, security, timeout)
        metadata = call_metadata(security)
        method, request = "WaitFor" if ask.at_least else "Position", codec.position_request(ask).SerializeToString()
        reply = await channel.unary_unary(f"/{grpc_link.SERVICE}/{method}")(request, metadata=metadata)
        return codec.decode_standing(reply)
    except grpc.aio.AioRpcError as error:
        raise (
            grpc_link.describe(address, error.code(), error.details()) or TargetError(f"{address} did not answer")
        ) from None
    finally:
        await channel.close()


class _Answer:
    """Hears the one answer to a question over tcp://."""

    def __init__(self, silent: str) -> None:
        self._silent = silent  # What to say if none comes.
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def received(self, data: bytes) -> None:
        if not self.future.done():
            self.future.set_result(data)

    def writable(self) -> None:
        """One question is all there is to send."""

    def closed(self, error: Exception | None) -> None:
        if not self.future.done():
            self.future.set_exception(error or TargetUnavailable(self._silent))


async def _ask_tcp(address: Address, ask: codec.AskPosition, timeout: float, security: Security) -> PositionAnswer:
    answer = _Answer(f"no answer from {address}: {hung_up(security)}")
    link = await transport.connect(str(address), answer, security, timeout)
    try:
        link.send(codec.encode_ask(ask))
        reply = codec.decode_to_player(await answer.future)
    finally:
        link.close()
    if not isinstance(reply, PositionAnswer):
        raise LogPlayerError(f"{address} answered a question about its position with {reply}")
    return reply


_CALLS = {"grpc": _ask_grpc, "tcp": _ask_tcp}

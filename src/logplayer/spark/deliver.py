"""One session to one target, by the player's protocol, for code that has the entries in order: sinks and backfill."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from logplayer.core.entry import Message, Refusal, Session
from logplayer.core.fence import Batch, Refused
from logplayer.errors import Fenced, LogPlayerError, OutOfSync, Poison, TargetError
from logplayer.spark import loop
from logplayer.target.client import position
from logplayer.wire import codec, transport
from logplayer.wire.security import NONE, Security

FLIGHT_BYTES_MAX = 8 << 20
BATCH_BYTES = 256 << 10
BATCH_COUNT = 1024
PATIENCE_SECONDS = 60.0

BatchesFrom = Callable[[int], Iterable[Batch]]


@dataclass(frozen=True)
class Destination:
    """Where one target is, and what it must be filled from."""

    target: str
    address: str
    log_id: str
    epoch: int
    security: Security = NONE


class Link:
    """An open session. ``index`` is what the target has durably, ``sent`` how far batches were sent."""

    def __init__(self, where: Destination) -> None:
        self.index = 0
        self.sent = 0
        self.digest = 0
        self._where = where
        self._flight: list[tuple[int, int]] = []  # (to, bytes) of unacked batches
        self._news = asyncio.Event()
        self._error: Exception | None = None
        self._writable = True
        self._open = False
        self._link: transport.Link

    @classmethod
    async def open(cls, where: Destination, session: Session) -> Link:
        """Open the session; raises Fenced, OutOfSync (a newer session is there) or TargetError."""
        link = cls(where)
        link._link = await transport.connect(where.address, link, where.security)
        link._send(codec.encode_open(where.target, where.log_id, session))
        async with asyncio.timeout(30):
            while not link._open:
                await link._wait()
        return link

    async def send(self, batch: Batch) -> None:
        """Send the next batch; waits while too much is unacked."""
        if batch.prev != self.sent:
            raise OutOfSync(f"a batch from {batch.prev} cannot follow {self.sent}")
        data = codec.encode_batch(batch.prev, batch.to, batch.messages)
        while not self._writable or (self._flight and sum(b for _, b in self._flight) + len(data) > FLIGHT_BYTES_MAX):
            await self._wait()
        self._flight.append((batch.to, len(data)))
        self.sent = batch.to
        self._send(data)

    async def drain(self) -> None:
        """Wait until everything that was sent is durable."""
        while self._flight:
            await self._wait()

    def close(self) -> None:
        self._link.close()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._news.clear()
        async with asyncio.timeout(60):
            await self._news.wait()
        if self._error is not None:
            raise self._error

    def _send(self, data: bytes) -> None:
        self._writable = False
        self._link.send(data)

    # --- The transport's callbacks ---

    def received(self, data: bytes) -> None:
        try:
            answer = codec.decode_to_player(data)
        except LogPlayerError as error:
            self._error = error
        else:
            self._take(answer)
        self._news.set()

    def _take(self, answer: codec.ToPlayer) -> None:
        if isinstance(answer, codec.Opened):
            self._open = True
            self.index = self.sent = answer.index
            self.digest = answer.digest
        elif isinstance(answer, codec.Ack):
            self.index, self.digest = answer.index, answer.digest
            self._flight = [(to, size) for to, size in self._flight if to > answer.index]
        elif isinstance(answer, Refused):
            self._error = _error_of(self._where, answer)
        elif isinstance(answer, codec.Failed):
            self._error = TargetError(f"target {self._where.target} failed: {answer.detail}")

    def writable(self) -> None:
        self._writable = True
        self._news.set()

    def closed(self, error: Exception | None) -> None:
        self._error = self._error or error or TargetError(f"the stream to {self._where.target} ended")
        self._news.set()


def _error_of(where: Destination, refused: Refused) -> TargetError:
    text = f"target {where.target} at {where.address} refused: {refused.reason.name}: {refused.detail}"
    if refused.reason is Refusal.FENCED:
        return Fenced(text)
    if refused.reason in (Refusal.OUT_OF_SYNC, Refusal.STALE_SESSION):
        return OutOfSync(text)
    if refused.reason is Refusal.POISON:
        return Poison(text, refused.index)
    return Refusing(text)


class Refusing(TargetError):
    """The target says no for a reason that another try does not change."""


async def open_next(where: Destination) -> Link:
    """Open a session with the next free term of the destination's epoch."""
    stood = await position(where.address, where.target, security=where.security)
    term = stood.session.term + 1 if stood.session.epoch == where.epoch else 1
    return await Link.open(where, Session(where.epoch, term))


def play(where: Destination, batches_from: BatchesFrom, patience: float = PATIENCE_SECONDS) -> Link:
    """Deliver ``batches_from(index)`` from wherever the target stands, through lost connections; blocking.

    Whatever fails on the way, the next session begins at the index that the target reports, so nothing is delivered
    twice. Gives up after ``patience`` seconds without progress, and at once when fenced, refused or poisoned.
    """
    reached, since = -1, time.monotonic()
    while True:
        link: Link | None = None
        try:
            link = loop.run(open_next(where))
            for batch in batches_from(link.index):
                loop.run(link.send(batch))
            loop.run(link.drain())
            return link
        except (Fenced, Poison, Refusing):
            raise
        except (TargetError, TimeoutError, OSError) as error:
            if link is not None and link.index > reached:
                reached, since = link.index, time.monotonic()
            if time.monotonic() - since > patience:
                raise TargetError(f"target {where.target} made no progress for {patience:g} s: {error}") from error
            time.sleep(random.uniform(0.05, 0.3))
        finally:
            if link is not None:
                loop.background().call_soon_threadsafe(link.close)


def batched(prev: int, to: int, messages: Iterable[Message]) -> Iterator[Batch]:
    """Batches that cover ``(prev, to]``; messages at or below ``prev`` are left out, as the target has them."""
    held: list[Message] = []
    size = 0
    for message in messages:
        if message.index <= prev:
            continue
        if held and (size + len(message.payload) > BATCH_BYTES or len(held) >= BATCH_COUNT):
            # Just up to the last entry: the next one may lie right behind it.
            yield Batch(prev, held[-1].index, tuple(held))
            prev, held, size = held[-1].index, [], 0
        held.append(message)
        size += len(message.payload)
    if to > prev:
        yield Batch(prev, to, tuple(held))

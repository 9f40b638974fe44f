"""Fills one target from deliveries that are at hand in order, for blocking code: sinks and backfill.

What is sent and what the answers mean is decided by ``core.feed``, which is the player's own machine. This file brings
it the source, and tells its caller by an exception how it ended, if it did not end well.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from logplayer.core import effects, events
from logplayer.core.chain import GENESIS
from logplayer.core.entry import Delivery, Refusal
from logplayer.core.feed import PATIENCE_MS, AskSession, Fed, Feed, FeedEffect, FeedEvent, Stood
from logplayer.core.fence import Batch
from logplayer.core.reconnect import Blocked
from logplayer.errors import Fenced, Poison, TargetError
from logplayer.log.protocol import History
from logplayer.player.feeding import Feeding
from logplayer.spark import event_loop
from logplayer.target.protocol import Change, Rejected, Target
from logplayer.wire.security import NONE, Security

# index -> the target's deliveries after it, in order. They may begin earlier: what the target has is left out. It is
# called again if a session was lost and what was on its way must be read again.
Source = Callable[[int], Iterable[Delivery]]


@dataclass(frozen=True)
class Destination:
    """Where one target is, and what it must be filled from."""

    target: str
    address: str
    log_id: str
    epoch: int
    security: Security = NONE


class Refusing(TargetError):
    """The target says no for a reason that another try does not change."""


def play(
    where: Destination, source: Source, through: int | History, *, after: int = 0, patience: float = PATIENCE_MS / 1000
) -> Fed:
    """Deliver the source, which holds ``(after, through]``, from wherever the target stands; blocking.

    Raises Fenced, Poison, or another TargetError: at once if the target is fenced, refuses for good or has less than
    ``after``, else once it has made no progress for ``patience`` seconds. What the source raises passes through.
    """
    end = _end_of(through)
    feed = Feed(where.target, where.epoch, end.index, after=after, chain=end.chain, patience_ms=int(patience * 1000))
    requests: queue.SimpleQueue[effects.ReadCatchUp | None] = queue.SimpleQueue()
    feeding = Feeding(feed, where.address, where.log_id, where.security, requests.put)
    ending = event_loop.submit(feeding.run())
    ending.add_done_callback(lambda _: requests.put(None))
    reader = _Reader(source, end.chain)
    try:
        # The source is read here, where it may block, while the loop sends what was read before.
        while (request := requests.get()) is not None:
            event_loop.background().call_soon_threadsafe(feeding.tell, reader.read(request))
        return _or_raise(ending.result(), where.target, where.address, patience)
    finally:
        ending.cancel()
        reader.close()


def play_into(store: Target, where: Destination, source: Source, through: int | History, *, after: int = 0) -> Fed:
    """The same into a store that nobody serves; nothing is waited for. ``where.address`` names the store in errors."""
    end = _end_of(through)
    feed = Feed(where.target, where.epoch, end.index, after=after, chain=end.chain)
    reader = _Reader(source, end.chain)
    inbox: deque[FeedEvent] = deque()
    now = 0

    def perform(request: FeedEffect) -> None:
        if isinstance(request, AskSession):
            inbox.append(Stood(store.position().session))
        elif isinstance(request, effects.ReadCatchUp):
            inbox.append(reader.read(request))
        elif isinstance(request, effects.OpenSession | effects.SendBatch):
            inbox.extend(_answers(store, where.log_id, request))

    try:
        while feed.ended is None:
            if not inbox:  # Only time can help: a session was lost to another writer of the file.
                now += 100
                inbox.append(events.Ticked(now))
            feed.take(inbox.popleft(), perform)
        return _or_raise(feed.ended, where.target, where.address, PATIENCE_MS / 1000)
    finally:
        reader.close()


def _end_of(through: int | History) -> History:
    """A source that is not a log has no chain."""
    return through if isinstance(through, History) else History(through, GENESIS)


def _answers(store: Target, log_id: str, request: effects.OpenSession | effects.SendBatch) -> Iterator[events.Event]:
    """What a server of the store would answer."""
    target, session = request.target, request.session
    try:
        if isinstance(request, effects.OpenSession):
            stored = store.apply(Change(session, log_id=log_id))
            yield events.Opened(target, session, stored.index, stored.digest, stored.chain)
        else:
            _, _, prev, to, messages, prev_chain, to_chain = request
            batch = Batch(prev, to, tuple(messages), prev_chain, to_chain)
            stored = store.apply(Change(session, batch=batch))
            yield events.Written(target, session)
            yield events.Acked(target, session, stored.index, stored.digest)
    except Rejected as rejected:
        told = rejected.refused
        yield events.Refused(target, session, told.reason, told.detail, told.index, told.epoch, told.chain)
    except Poison as poison:
        yield events.Refused(target, session, Refusal.POISON, str(poison), poison.index)


# --- How it ended ---


def _or_raise(fed: Fed, target: str, place: str, patience: float) -> Fed:
    if fed.blocked is not None:
        raise _error_of(target, place, fed.blocked)
    if fed.error:
        raise TargetError(f"target {target} made no progress for {patience:g} s: {fed.error}")
    return fed


def _error_of(target: str, place: str, blocked: Blocked) -> TargetError:
    if blocked.kind == "POISON":
        return poisoned(target, place, blocked.detail, blocked.index)
    text = f"target {target} at {place} refused: {blocked.kind}: {blocked.detail}"
    return Fenced(text) if blocked.kind == "FENCED" else Refusing(text)


def poisoned(target: str, place: str, detail: str, index: int) -> Poison:
    """An entry that the target, at a server or in a file, refuses for good."""
    return Poison(f"target {target} at {place} refused: POISON: {detail}", index)


# --- The source ---


class _Reader:
    """Reads the source piece by piece as the feed asks for it, and from its beginning again only if it must."""

    def __init__(self, source: Source, chain: bytes) -> None:
        self._source = source
        self._chain = chain  # The chain value at the source's end.
        self._rest: Iterator[Delivery] | None = None
        self._after = 0  # Invariant: ``_held`` and then ``_rest`` have every delivery after here.
        self._held: list[Delivery] = []

    def read(self, request: effects.ReadCatchUp) -> events.DeliveriesRead:
        """The deliveries from ``first`` on, about as many as the feed has room for, and up to where they go."""
        first = request.first
        rest, held = self._seek(first)
        count_max, bytes_max = request.count_max, request.bytes_max
        bytes_ = sum([len(message.payload) for message in held])
        through, chain = request.last, self._chain
        messages = held
        for message in rest:
            if message.index < first:
                continue
            held.append(message)
            bytes_ += len(message.payload)
            if len(held) > max(count_max, 1) or (bytes_ > bytes_max and len(held) > 1):
                # One too many: it stays for the next read. What is covered ends where the chain value is known.
                messages = held[:-1]
                through, chain = messages[-1].index, messages[-1].chain
                break
        return events.DeliveriesRead(request.target, request.session, first - 1, through, messages, chain)

    def _seek(self, first: int) -> tuple[Iterator[Delivery], list[Delivery]]:
        if self._rest is None or first <= self._after:
            self.close()
            self._rest, self._held = iter(self._source(first - 1)), []
        else:
            # A read that did not fit is asked for again: what was given stays here until the feed has moved past it.
            self._held = [message for message in self._held if message.index >= first]
        self._after = first - 1
        return self._rest, self._held

    def close(self) -> None:
        close = getattr(self._rest, "close", None)
        if close is not None:
            close()  # A generator may hold a log open.
        self._rest = None

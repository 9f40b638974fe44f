"""The log server's end of append streams: what arrived goes to the log at once, and the answers go back in order.

A stream is read on while earlier calls of it wait for the log, so that the log finds many at once and commits them as
one group. The answers that are there leave together.

Memory. A stream that is open costs what gRPC keeps for it, ``STREAM_WINDOW_BYTES``, and the message that is being read:
up to ``STREAM_BYTES_MAX`` of a client that keeps to the protocol; any other is cut off. What was read waits for room,
together with the requests of all other streams and calls, before the log gets it and before the next message is read.
At most ``STREAMS_MAX`` streams are open at once. When one more wants to be, the one that has been silent for the
longest time is ended in order: what was read is answered, and its client opens a new one when it has more to append.
If there are more clients than that, and all are busy, they take turns of ``TURN_SECONDS``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import grpc

from logplayer.errors import LogError
from logplayer.log.answer import GroupOutcome
from logplayer.log.append_codec import decode_calls, encode_answers
from logplayer.log.grpc_errors import ADMITTED_KEY
from logplayer.log.protocol import BadRequest, Log, NewEntry
from logplayer.log.room import Room
from logplayer.observe import tracing
from logplayer.observe.instruments import AppendCounts

STREAM_BYTES_MAX = 1024 * 1024
STREAM_WINDOW_BYTES = 512 * 1024
STREAMS_MAX = 64
TURN_SECONDS = 0.2
_log = logging.getLogger(__name__)


@runtime_checkable
class AppendsGroups(Protocol):
    """A log that can take several calls in one, in their order, and answer each by itself."""

    def append_groups(self, groups: Sequence[Sequence[NewEntry]]) -> asyncio.Future[list[GroupOutcome]]: ...


class AppendService:
    """All append streams of a server."""

    def __init__(self, log: Log, room: Room, counts: AppendCounts | None = None) -> None:
        self.counts = counts or AppendCounts()
        self._log = log
        self._room = room
        self._places = Room(STREAMS_MAX)
        self._streams: set[_Stream] = set()
        # Those that nobody wants to end yet; first the one that has been silent for the longest time.
        self._silent: OrderedDict[_Stream, None] = OrderedDict()

    async def serve(self, context: Any) -> None:
        """One stream, from the first message to the last answer."""
        if not self._places.free and self._silent:
            self._silent.popitem(last=False)[0].end_turn()
        await self._places.take(1)
        try:
            await context.send_initial_metadata(((ADMITTED_KEY, "1"),))
            await self._run(_Stream(self, context))
        finally:
            self._places.give(1)

    async def _run(self, stream: _Stream) -> None:
        self._streams.add(stream)
        if self._places.wanted:
            stream.end_turn()
        else:
            self._silent[stream] = None
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)
            self._silent.pop(stream, None)

    def end(self) -> None:
        """Read no more; whatever was read is still answered."""
        for stream in self._streams:
            stream.end()

    async def begin(
        self, stream: _Stream, calls: list[list[NewEntry]], count: int
    ) -> asyncio.Future[list[GroupOutcome]]:
        """Give the calls, of ``count`` bytes, to the log as soon as there is room for them."""
        if stream in self._silent:
            self._silent.move_to_end(stream)
        began, began_ns = time.perf_counter(), time.time_ns()
        await self._room.take(count)
        if isinstance(self._log, AppendsGroups):
            outcomes = self._log.append_groups(calls)
        else:
            outcomes = asyncio.ensure_future(_one_by_one(self._log, calls))

        def done(answered: asyncio.Future[list[GroupOutcome]]) -> None:  # Also if the stream is gone by then.
            self._room.give(count)
            if not answered.cancelled() and answered.exception() is None:
                note_answered(self.counts, began, answered.result(), count)
                if tracing.active():
                    _trace_commits(calls, answered.result(), began_ns)

        outcomes.add_done_callback(done)
        return outcomes


def note_answered(counts: AppendCounts, began: float, outcomes: Sequence[GroupOutcome], bytes_: int) -> None:
    """The log has answered calls of ``bytes_`` together, that came at ``began``."""
    counts.appends.note(time.perf_counter() - began)
    counts.bytes += bytes_
    for outcome in outcomes:
        if isinstance(outcome, LogError):
            counts.refusals[type(outcome).__name__] += 1
        else:
            counts.entries += len(outcome)


def _trace_commits(calls: list[list[NewEntry]], outcomes: Sequence[GroupOutcome], began_ns: int) -> None:
    for call, outcome in zip(calls, outcomes, strict=True):
        if not isinstance(outcome, LogError):
            for entry, index in zip(call, outcome, strict=True):
                tracing.note("commit", entry.payload, began_ns, index=index)


async def _one_by_one(log: Log, calls: list[list[NewEntry]]) -> list[GroupOutcome]:
    """Each call by itself, begun in their order, and none waits for another."""
    done = await asyncio.gather(*(log.append(call) for call in calls), return_exceptions=True)
    return [_outcome(one) for one in done]


def _outcome(done: list[int] | BaseException) -> GroupOutcome:
    if isinstance(done, BaseException) and not isinstance(done, LogError):
        _log.error("an append failed", exc_info=done)
        return LogError(f"the append failed: {type(done).__name__}; the server's log says more")
    return done


class _Begun(NamedTuple):
    first: int
    counts: list[int]  # Entries of each call.
    outcomes: asyncio.Future[list[GroupOutcome]]


class _Stream:
    """One stream: a task reads, and whoever called ``run`` writes the answers.

    Invariant: messages are begun and answered in the order in which they came.
    """

    def __init__(self, service: AppendService, context: Any) -> None:
        self._service = service
        self._context = context
        self._begun: deque[_Begun] = deque()
        self._news = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())
        self._ended = False
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()

    def end_turn(self) -> None:
        """Somebody else wants the place: end when the turn is over, which it is at once for an old stream."""
        self._loop.call_at(self._began + TURN_SECONDS, self.end)

    def end(self) -> None:
        self._ended = True
        self._reader.cancel()

    async def run(self) -> None:
        self._reader.add_done_callback(lambda _: self._news.set())
        try:
            while self._begun or not self._reader.done():
                if self._begun:
                    await self._answer()
                else:
                    self._news.clear()
                    await self._news.wait()
            if not (self._ended and self._reader.cancelled()):
                self._reader.result()
        except grpc.aio.InternalError:
            pass  # The client is gone, which gRPC found out in the middle of a read or a write.
        finally:
            self._reader.cancel()

    async def _read(self) -> None:
        following = 1
        while (data := await self._context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            if len(data) > STREAM_BYTES_MAX:
                raise BadRequest(f"a message of {len(data)} bytes is over the stream's limit of {STREAM_BYTES_MAX}")
            calls = decode_calls(data, following)
            count = len(data)
            del data  # Its payloads would be held twice.
            outcomes = await self._service.begin(self, calls, count)
            self._begun.append(_Begun(following, [len(call) for call in calls], outcomes))
            self._news.set()
            following += len(calls)

    async def _answer(self) -> None:
        """Wait for the oldest message, and answer with it all that are done by then."""
        await asyncio.wait([self._begun[0].outcomes])
        first, outcomes = self._begun[0].first, list[GroupOutcome]()
        while self._begun and self._begun[0].outcomes.done():
            begun = self._begun.popleft()
            outcomes += map(_checked, begun.outcomes.result(), begun.counts)
        await self._context.write(encode_answers(first, outcomes))


def _checked(outcome: GroupOutcome, count: int) -> GroupOutcome:
    if isinstance(outcome, list) and len(outcome) != count:
        return LogError(f"the log gave {len(outcome)} indexes for {count} entries")
    return outcome

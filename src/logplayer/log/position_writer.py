"""Writes a replicated log: each batch says which position it expects, so one position is given once.

All that waits goes as one atomic batch, and the next batch waits for its answer. A second batch under way would expect
the position after the first one. If another writer takes the place of the first, it fills just that position: the
engine would refuse the first and take the second, and the producer's order would have a hole for good.

Whatever goes wrong (a lost answer, an election, another writer) has one remedy: read the log's state again and plan
again what is unanswered. An entry that did get in is then found by its (producer, sequence), one that did not is sent
again, and one that arrives late is refused because its position is taken.

What differs from engine to engine is in ``Engine``: how a batch is committed, and how the log's state is read.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Protocol

from logplayer.core.chain import extend, mark_of
from logplayer.errors import CorruptEntry, LogError, LogFull, LogUnavailable, Superseded, Trimmed
from logplayer.log.control_rules import Guard
from logplayer.log.map_blocks import NOTHING, BlockStore, SequenceMap, Stretch
from logplayer.log.protocol import (
    CONTROL_PRODUCER,
    GROUP_COUNT_MAX,
    BadRequest,
    History,
    Kind,
    NewEntry,
    Newest,
    Record,
)
from logplayer.log.refusals import is_in_the_log, other_history, with_newest
from logplayer.log.sequences import NO_MARK, Place, Producers, check_mark, runs_of
from logplayer.log.write_request import Flight, Trouble, WriteRequest
from logplayer.observe.instruments import ReplicaCounts

BLOCK_COUNT = 2000  # Entries per block of the map: what a new writer has to read,
BLOCK_BYTES = 16 * 1024 * 1024  # and their bytes.
LOST_RACES_MAX = 40  # Then another writer holds the log for good.
NOWHERE = Place(0, NO_MARK)
Planned = list[tuple[int, NewEntry]]
"""New entries with the indexes that they are to have, without gaps."""


class PositionTaken(LogUnavailable):
    """Another writer has appended since we read the log's state: nothing of the batch is in the log."""


class Engine(BlockStore, Protocol):
    """What the writer needs of the system that keeps the log."""

    patience_seconds: float
    batch_bytes: int
    trouble: tuple[type[Exception], ...]
    """What an election, or a lost connection, looks like: whether a batch got in is not known then."""

    async def bounds(self) -> tuple[int, int]:
        """The first and the last index, as the whole cluster knows them; ``(last + 1, last)`` of an empty log."""
        ...

    def records(self, first: int, last: int) -> AsyncIterator[list[Record]]: ...

    async def require_room(self, entries: Sequence[NewEntry]) -> None:
        """Raise ``LogFull`` if the engine is known to have no room for them."""
        ...

    async def commit(self, new: Planned, chain: Sequence[bytes]) -> None:
        """Make the batch durable at its position, as a whole. ``PositionTaken``, ``LogFull``: nothing of it is in.

        ``chain`` has the chain value of each entry.
        """
        ...

    async def forget(self, up_to: int) -> None:
        """Delete the entries up to and including ``up_to``."""
        ...


class PositionWriter:
    """The writing half. One task does everything, so there are no locks.

    Invariant: ``_flights`` are in index order; all up to ``_confirmed`` is committed on a majority and synced.
    """

    def __init__(self, engine: Engine) -> None:
        self.counts = ReplicaCounts()
        self._engine = engine
        self._away: tuple[type[Exception], ...] = (LogUnavailable, *engine.trouble)
        self._map = SequenceMap(engine)
        self._requests: deque[WriteRequest] = deque()
        self._flights: deque[Flight] = deque()
        self._producers = Producers()
        self._stretch = Stretch(NOTHING)
        self._guard: Guard | None = None  # Made when the first decision or trim asks for it.
        self._next = 1
        self._confirmed = 0
        self._loaded = False
        self._trouble: Trouble | None = None
        self._races = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def ask(
        self, entries: Sequence[NewEntry], up_to: int = 0, producer: str = "", history: History | None = None
    ) -> list[int]:
        """Queue a call and wait for its answer."""
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._run())
        future: asyncio.Future[list[int]] = loop.create_future()
        deadline = loop.time() + self._engine.patience_seconds
        self._requests.append(WriteRequest(entries, up_to, future, deadline, producer, history))
        self._wake.set()
        return await future

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail_all(LogUnavailable(f"the log {self._engine.where} is closed"))

    async def _run(self) -> None:
        while True:
            if not self._requests and not self._flights:
                self._wake.clear()
                await self._wake.wait()
            try:
                if self._trouble is not None:
                    await self._start_over()
                if not self._loaded:
                    await self._load()
                await self._send_what_waits()
                stretch = self._stretch
                if stretch.last - stretch.after.last >= BLOCK_COUNT or stretch.bytes >= BLOCK_BYTES:
                    await self._write_block()
            except PositionTaken as error:
                self._trouble = Trouble(str(error), raced=True)
            except self._away as error:
                self._trouble = Trouble(str(error) or type(error).__name__)
            except LogError as error:
                self._loaded = False
                self._fail_all(error)

    async def _load(self) -> None:
        """Read the state: the newest block, and every entry after it."""
        block = await self._map.newest()
        _, last = await self._engine.bounds()
        self._stretch, self._producers, self._guard = Stretch(block), Producers(), None
        self._producers.newest.update(block.newest)
        if last > block.last:
            async for records in self._engine.records(block.last + 1, last):
                made = [(r.index, NewEntry(r.producer, r.sequence, r.payload, r.kind)) for r in records]
                runs = runs_of(made)
                for run in runs:
                    self._producers.learn(run)
                last_record = records[-1]
                self._stretch.add(runs, last_record.index, newest_control(made), _bytes(made), last_record.chain)
        self._next, self._confirmed = last + 1, last
        self._loaded, self._trouble = True, None

    async def _start_over(self) -> None:
        """Unanswered requests go back to the front of the queue, in their order."""
        trouble, self._trouble = self._trouble, None
        self._loaded = False
        self._requests.extendleft(flight.request for flight in reversed(self._flights))
        self._flights.clear()
        self._races += 1
        now = asyncio.get_running_loop().time()
        if self._races > LOST_RACES_MAX and trouble is not None and trouble.raced:
            self._fail_all(Superseded(f"another writer holds {self._engine.where}; stop one of the two"))
        why = trouble.why if trouble else "no reason is known"
        for request in self._requests:
            if now >= request.deadline:
                request.fail(LogUnavailable(f"{self._engine.where} does not take appends now ({why})"))
        self._requests = deque(request for request in self._requests if not request.future.done())
        await asyncio.sleep(random.uniform(0.0, min(0.2, 0.005 * self._races)))

    async def _send_what_waits(self) -> None:
        new: Planned = []
        room = self._engine.batch_bytes
        while self._requests and room > 0:
            request = self._requests[0]
            if request.future.done():
                self._requests.popleft()  # The caller gave up before anything was sent.
                continue
            size = sum(len(entry.payload) for entry in request.entries)
            if new and (not request.entries or len(new) + len(request.entries) > GROUP_COUNT_MAX or size > room):
                break  # A trim and a question wait until everything before them is confirmed.
            try:
                if request.entries:
                    planned = await self._plan(request, new)
                    new += planned
                    room -= _bytes(planned)
                elif request.producer:
                    await self._tell_newest(request)
                else:
                    await self._trim(request)
            except self._away:
                raise
            except LogError as error:
                if not await self._is_certain():
                    break
                if is_in_the_log(error):
                    error = with_newest(error, await self._newest_of(error.producer))
                request.fail(error)
            if self._requests and self._requests[0] is request:
                self._requests.popleft()
        if new:
            await self._commit(new)

    async def _is_certain(self) -> bool:
        """Whether a refusal rests on all that is in the log; another writer may have appended since we read it."""
        if self._flights:
            return False  # Their answer tells whether the positions are still ours. Then the request is planned again.
        if (await self._engine.bounds())[1] > self._confirmed:
            raise LogUnavailable("another writer appended meanwhile")
        return True

    async def _plan(self, request: WriteRequest, before: Planned) -> Planned:
        """Give indexes to what is new of the group, and return that. The request waits for its answer from here on.

        ``before`` is what was planned since the last batch was confirmed.
        """
        old = {}
        for entry in request.entries:
            if entry.sequence <= self._producers.newest.get(entry.producer, 0):
                place = await self._look_up(entry.producer, entry.sequence)
                if place.index:
                    check_mark(place, entry)
                old[entry.producer, entry.sequence] = place.index

        def compare(index: int, entry: NewEntry) -> None:
            if index > self._confirmed:
                check_mark(Place(index, mark_of(before[index - before[0][0]][1].payload)), entry)

        if len(old) < len(request.entries):
            await self._engine.require_room(request.entries)
        guard = await self._decisions() if any(entry.kind for entry in request.entries) else None
        plan = self._producers.plan(
            request.entries, self._next, lambda p, s: old.get((p, s), 0), guard.admit if guard else _never, compare
        )
        self._requests.popleft()
        last = max(plan.indexes)
        if last <= self._confirmed:
            request.answer(plan.indexes)
            return []
        runs, control = runs_of(plan.new), newest_control(plan.new)
        self._flights.append(Flight(request, plan.indexes, last, runs, control, _bytes(plan.new)))
        self._next += len(plan.new)
        return plan.new

    async def _decisions(self) -> Guard:
        """The newest decision. It is read while none is in flight, so the newest in the log is the newest there is."""
        if self._guard is None:
            newest, sequence = self._stretch.control, self._producers.newest.get(CONTROL_PRODUCER, 0)
            found: Record | LogError | None = None
            if newest:
                try:
                    async for records in self._engine.records(newest, newest):
                        found = records[0]
                except (Trimmed, CorruptEntry) as error:
                    found = error
            self._guard = Guard.after(newest, sequence, found)
        return self._guard

    async def _look_up(self, producer: str, sequence: int) -> Place:
        """The place of an old sequence, or ``NOWHERE`` while it is in flight: then the plan itself knows it."""
        place = self._stretch.find(producer, sequence)
        if place is None and sequence <= self._stretch.after.newest.get(producer, 0):
            place = await self._map.find(producer, sequence)
            if place is None:
                raise LogError(f"the sequence map of {self._engine.where} lacks {producer!r}/{sequence}; it is damaged")
        return place or NOWHERE

    async def _tell_newest(self, request: WriteRequest) -> None:
        """Nothing of ours is in flight; what another writer has appended since we read the state, we read first."""
        await self._is_certain()
        request.answer([*await self._newest_of(request.producer)])

    async def _newest_of(self, producer: str) -> Newest:
        sequence = self._producers.newest.get(producer, 0)
        place = await self._look_up(producer, sequence) if sequence else NOWHERE
        return Newest(sequence, place.index)

    async def _commit(self, new: Planned) -> None:
        """The engine takes the batch at this position, or nothing of it."""
        chain = list(self._chain_values(new))
        began = time.perf_counter()
        try:
            await self._engine.commit(new, chain)
        except PositionTaken:
            self.counts.conflicts += 1
            raise
        except LogFull as error:  # Nothing that is in flight got in, and a retry would not either.
            for flight in self._flights:
                flight.request.fail(error)
            self._trouble = Trouble(str(error))
            return
        self.counts.commits.note(time.perf_counter() - began)
        self._confirmed = new[-1][0]
        self._races = 0
        first = new[0][0]
        for flight in self._flights:
            if flight.runs:
                value = chain[flight.runs[-1].index + flight.runs[-1].count - 1 - first]
                self._stretch.add(flight.runs, flight.last, flight.control, flight.bytes, value)
            flight.request.answer(flight.indexes)
        self._flights.clear()

    def _chain_values(self, new: Planned) -> Iterator[bytes]:
        """A batch that is refused by its position is planned again, and so is its chain."""
        value = self._stretch.chain
        for _, (producer, sequence, payload, kind) in new:
            value = extend(value, kind, producer, sequence, mark_of(payload))
            yield value

    async def _chain_at(self, index: int) -> bytes | None:
        """The chain value at an index that is confirmed; None if there is none."""
        if index == self._confirmed:
            return self._stretch.chain
        if not 0 < index < self._confirmed:
            return None
        try:
            async for records in self._engine.records(index, index):
                return records[0].chain
        except Trimmed:
            pass
        return await self._map.chain_at(index)

    async def _write_block(self) -> None:
        """What is confirmed while the block is on its way belongs to the next one; if it fails, all is read again."""
        block = self._stretch.block()
        self._stretch = Stretch(block)
        await self._map.write(block)

    async def _trim(self, request: WriteRequest) -> None:
        """The map must answer for what is about to go, so its block comes first. A crash in between is harmless."""
        first, last = await self._engine.bounds()
        if request.up_to > last:
            raise BadRequest(f"cannot trim up to {request.up_to}: the newest entry is {last}")
        if last > self._confirmed:
            raise LogUnavailable("another writer appended meanwhile")
        if request.history is not None and await self._chain_at(request.history.index) != request.history.chain:
            raise other_history(request.history)
        up_to = (await self._decisions()).trim_limit(request.up_to)
        if self._stretch.last > self._stretch.after.last and up_to > self._stretch.after.last:
            await self._write_block()
        if up_to >= first:
            await self._engine.forget(up_to)
        request.answer([max(up_to, first - 1, 0)])

    def _fail_all(self, error: LogError) -> None:
        waiting = [flight.request for flight in self._flights] + list(self._requests)
        self._flights.clear()
        self._requests.clear()
        for request in waiting:
            request.fail(error)


def _never(index: int, entry: NewEntry) -> None:
    """For groups without a decision."""


def newest_control(new: Planned) -> int:
    """The newest CONTROL index among them, 0 if there is none."""
    return max((index for index, entry in new if entry.kind == Kind.CONTROL), default=0)


def _bytes(new: Planned) -> int:
    return sum(len(entry.payload) for _, entry in new)

"""Writes a replicated log: each entry says which position it expects, so one position is given once.

Entries are sent without waiting for those before them. Whatever goes wrong (a lost answer, an election, a rival
writer) has one remedy: stop sending, read the log's state again, plan what is unanswered anew. An entry that did get in
is then found by its (producer, sequence), one that did not is sent again, and one that arrives late is refused because
its position is taken.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from nats.aio.msg import Msg

from logplayer.errors import LogError, LogUnavailable, Superseded
from logplayer.log.frame import encode
from logplayer.log.nats_link import TROUBLE, Link, decode_json, error_of
from logplayer.log.nats_map import NOTHING, SequenceMap, Stretch
from logplayer.log.nats_reader import NatsReader
from logplayer.log.protocol import BadRequest, Kind, NewEntry
from logplayer.log.sequences import Producers, Run, runs_of

BLOCK_COUNT = 2000  # Entries per block of the map: what a new writer has to read.
WINDOW_COUNT, WINDOW_BYTES = 512, 16 * 1024 * 1024
ACK_SECONDS = 2.0
LOST_RACES_MAX = 40  # Then a rival holds the log for good.


@dataclass(eq=False)
class Request:
    """One call that waits: a group, or a trim when ``entries`` is empty."""

    entries: Sequence[NewEntry]
    up_to: int
    future: asyncio.Future[list[int]]
    deadline: float


@dataclass(eq=False)
class Flight:
    """A request whose answer is due when everything up to ``last`` is confirmed."""

    request: Request
    indexes: list[int]
    last: int
    runs: list[Run]
    control: int
    bytes: int
    sent_at: float = field(default_factory=time.monotonic)


class NatsWriter:
    """The writing half. One task does everything, so there are no locks.

    Invariant: ``_flights`` are in index order; all up to ``_confirmed`` is committed on a majority and synced.
    """

    def __init__(self, link: Link, reader: NatsReader) -> None:
        self._link = link
        self._reader = reader
        self._map = SequenceMap(link)
        self._requests: deque[Request] = deque()
        self._flights: deque[Flight] = deque()
        self._flight_bytes = 0
        self._producers = Producers()
        self._stretch = Stretch(NOTHING)
        self._next = 1
        self._confirmed = 0
        self._loaded = False
        self._trouble: str | None = None
        self._races = 0
        self._wake = asyncio.Event()
        self._inbox = ""
        self._life = uuid.uuid4().hex[:8]
        self._sent = 0
        self._task: asyncio.Task[None] | None = None

    async def ask(self, entries: Sequence[NewEntry], up_to: int = 0) -> list[int]:
        """Queue a call and wait for its answer."""
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._run())
        future: asyncio.Future[list[int]] = loop.create_future()
        self._requests.append(Request(entries, up_to, future, loop.time() + self._link.patience_seconds))
        self._wake.set()
        return await future

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._fail_all(LogUnavailable(f"the log {self._link.where} is closed"))

    async def _run(self) -> None:
        self._inbox = self._link.nc.new_inbox()
        await self._link.nc.subscribe(f"{self._inbox}.*", cb=self._on_answer)
        while True:
            if not self._requests and not self._flights:
                await self._wake.wait()
            self._wake.clear()
            try:
                if self._trouble is not None:
                    await self._start_over()
                if not self._loaded:
                    await self._load()
                if self._trouble is None:
                    await self._send_what_waits()
                if self._flights:
                    await self._wait_for_answers()
                if self._stretch.last - self._stretch.after.last >= BLOCK_COUNT:
                    await self._write_block()
            except TROUBLE as error:
                self._trouble = str(error) or type(error).__name__
            except LogUnavailable as error:
                self._trouble = str(error)
            except LogError as error:
                self._loaded = False
                self._fail_all(error)

    async def _load(self) -> None:
        """Read the state: the newest block, and every entry behind it."""
        block = await self._map.newest()
        state = (await self._link.info()).state
        self._stretch, self._producers = Stretch(block), Producers()
        self._producers.newest.update(block.newest)
        if state.last_seq > block.last:
            async for records, _ in self._reader.read(block.last + 1, state.last_seq):
                made = [(r.index, NewEntry(r.producer, r.sequence, b"", r.kind)) for r in records]
                runs = runs_of(made)
                for run in runs:
                    self._producers.learn(run)
                self._stretch.add(runs, records[-1].index, _control(made))
        self._next, self._confirmed = state.last_seq + 1, state.last_seq
        self._loaded, self._trouble = True, None

    async def _start_over(self) -> None:
        """Unanswered requests go back to the front of the queue, in their order."""
        why, self._trouble = self._trouble, None
        self._loaded = False
        self._requests.extendleft(flight.request for flight in reversed(self._flights))
        self._flights.clear()
        self._flight_bytes = 0
        self._life = uuid.uuid4().hex[:8]  # Answers to what was sent before mean nothing now.
        self._races += 1
        now = asyncio.get_running_loop().time()
        late = [request for request in self._requests if now >= request.deadline]
        if self._races > LOST_RACES_MAX and "wrong last sequence" in (why or ""):
            self._fail_all(Superseded(f"a rival writer holds {self._link.where}; stop one of the two"))
        for request in late:
            if not request.future.done():
                request.future.set_exception(LogUnavailable(f"{self._link.where} does not take appends now ({why})"))
        self._requests = deque(request for request in self._requests if not request.future.done())
        await asyncio.sleep(random.uniform(0.0, min(0.2, 0.005 * self._races)))

    async def _send_what_waits(self) -> None:
        while self._requests and self._trouble is None:
            if len(self._flights) >= WINDOW_COUNT or self._flight_bytes >= WINDOW_BYTES:
                return
            request = self._requests[0]
            if request.future.done():
                self._requests.popleft()  # The caller gave up before anything was sent.
                continue
            if not request.entries and self._flights:
                return  # A trim waits until everything before it is confirmed.
            try:
                if request.entries:
                    await self._send(request)
                else:
                    await self._trim(request)
            except (LogUnavailable, *TROUBLE):
                raise
            except LogError as error:
                if not request.future.done():
                    request.future.set_exception(error)
            if self._requests and self._requests[0] is request:
                self._requests.popleft()

    async def _send(self, request: Request) -> None:
        old = {}
        for entry in request.entries:
            if entry.sequence <= self._producers.newest.get(entry.producer, 0):
                old[entry.producer, entry.sequence] = await self._look_up(entry.producer, entry.sequence)
        plan = self._producers.plan(request.entries, self._next, lambda p, s: old.get((p, s), 0))
        self._requests.popleft()
        size = sum(len(entry.payload) for _, entry in plan.new)
        last = max(plan.indexes)
        flight = Flight(request, plan.indexes, last, runs_of(plan.new), _control(plan.new), size)
        if last <= self._confirmed:
            self._answer(flight)
            return
        self._flights.append(flight)
        self._flight_bytes += size
        self._next += len(plan.new)
        if plan.new:
            await self._publish(plan.new)

    async def _look_up(self, producer: str, sequence: int) -> int:
        """The index of an old sequence, or 0 while it is in flight: then the plan itself knows it."""
        index = self._stretch.find(producer, sequence)
        if index is None and sequence <= self._stretch.after.newest.get(producer, 0):
            index = await self._map.find(producer, sequence)
            if index is None:
                raise LogError(f"the sequence map of {self._link.where} lacks {producer!r}/{sequence}; it is damaged")
        return index or 0

    async def _publish(self, new: list[tuple[int, NewEntry]]) -> None:
        """One entry as a message, several as an atomic batch; the server takes it at this position or not at all."""
        now_us = time.time_ns() // 1000
        batch = uuid.uuid4().hex if len(new) > 1 else ""
        self._sent += 1
        reply = f"{self._inbox}.{self._life}-{new[-1][0]}"
        for nth, (index, entry) in enumerate(new, 1):
            headers: dict[str, str] = {}
            if nth == 1:
                headers["Nats-Expected-Last-Sequence"] = str(index - 1)
            if batch:
                headers["Nats-Batch-Id"], headers["Nats-Batch-Sequence"] = batch, str(nth)
            if batch and nth == len(new):
                headers["Nats-Batch-Commit"] = "1"
            subject = self._link.control_subject if entry.kind == Kind.CONTROL else self._link.data_subject
            body = b"".join(encode(index, entry, now_us))
            answer_to = reply if nth == len(new) else ""
            await self._link.nc.publish(subject, body, reply=answer_to, headers=headers)

    async def _on_answer(self, message: Msg) -> None:
        """A publish was acknowledged, or refused."""
        life, _, index = message.subject.rpartition(".")[2].partition("-")
        if life != self._life:
            return  # From before we started over.
        reply = decode_json(message.data)
        if "error" in reply or reply.get("seq") != int(index):
            fatal = error_of(reply, self._link.where)
            status = (message.headers or {}).get("Status", "no answer")
            description = reply.get("error", {}).get("description") or status
            if fatal is not None:
                self._refuse(fatal)
            elif self._trouble is None:
                self._trouble = str(description)
        else:
            self._confirm(int(index))
        self._wake.set()

    def _confirm(self, index: int) -> None:
        """Everything up to ``index`` is durable: a position is only taken when the one before it is."""
        self._confirmed = max(self._confirmed, index)
        self._races = 0
        while self._flights and self._flights[0].last <= self._confirmed:
            flight = self._flights.popleft()
            self._flight_bytes -= flight.bytes
            if flight.runs:
                self._stretch.add(flight.runs, flight.last, flight.control)
            self._answer(flight)

    @staticmethod
    def _answer(flight: Flight) -> None:
        if not flight.request.future.done():
            flight.request.future.set_result(flight.indexes)

    def _refuse(self, error: LogError) -> None:
        """No room: nothing that is in flight got in, and a retry would not either."""
        for flight in self._flights:
            if not flight.request.future.done():
                flight.request.future.set_exception(error)
        self._trouble = str(error)

    async def _wait_for_answers(self) -> None:
        try:
            async with asyncio.timeout(ACK_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            pass
        if self._flights and time.monotonic() - self._flights[0].sent_at > ACK_SECONDS and self._trouble is None:
            self._trouble = "no acknowledgement came"

    async def _write_block(self) -> None:
        """What is confirmed while the block is on its way belongs to the next one; if it fails, all is read again."""
        block = self._stretch.block()
        self._stretch = Stretch(block)
        await self._map.write(block)

    async def _trim(self, request: Request) -> None:
        """The map must answer for what is about to go, so its block comes first. A crash in between is harmless."""
        info = await self._link.info()
        if request.up_to > info.state.last_seq:
            raise BadRequest(f"cannot trim up to {request.up_to}: the newest entry is {info.state.last_seq}")
        if info.state.last_seq > self._confirmed:
            raise LogUnavailable("a rival writer appended meanwhile")
        if self._stretch.last > self._stretch.after.last and request.up_to > self._stretch.after.last:
            await self._write_block()
        if request.up_to >= info.state.first_seq:
            await self._link.js.purge_stream(self._link.stream, seq=request.up_to + 1)
        if not request.future.done():
            request.future.set_result([])

    def _fail_all(self, error: LogError) -> None:
        waiting = [flight.request for flight in self._flights] + list(self._requests)
        self._flights.clear()
        self._requests.clear()
        self._flight_bytes = 0
        for request in waiting:
            if not request.future.done():
                request.future.set_exception(error)


def _control(new: list[tuple[int, NewEntry]]) -> int:
    """The newest CONTROL index among them, 0 if there is none."""
    return max((index for index, entry in new if entry.kind == Kind.CONTROL), default=0)

"""Writes a log on Kafka: an entry as a record of an idempotent producer, a group as a Kafka transaction.

Entries are sent without waiting for those before them; the client keeps their order and repeats what got lost, without
duplicates for as long as it lives. When it gives up (a fatal error, no answer in time), everything is started over: a
new client, the state read from the log again, and what is unanswered planned anew. An entry that did get in is then
found by its (producer, sequence).

What is weaker than with compare-and-set: a record of a client that was given up may still be on its way and arrive
after the state was read, and a rival writer is only noticed behind its back. Both leave an entry in the log twice.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from logplayer.errors import LogError, LogUnavailable, SequenceGap, Superseded
from logplayer.log.frame import encode
from logplayer.log.kafka_link import FENCED, Link
from logplayer.log.kafka_map import BLOCK_COUNT, State, header
from logplayer.log.protocol import BadRequest, NewEntry, gap_message

WINDOW_COUNT, WINDOW_BYTES = 512, 16 * 1024 * 1024
TRANSACTION_MS = 10_000
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Request:
    """One call that waits: a group, or a trim when ``entries`` is empty."""

    entries: Sequence[NewEntry]
    up_to: int
    future: asyncio.Future[list[int]]
    deadline: float
    indexes: list[int] = field(default_factory=list)
    open: int = 0  # Entries whose index is not known yet.
    bytes: int = 0

    def fill(self, place: int, index: int) -> None:
        self.indexes[place] = index
        self.open -= 1
        if not self.open and not self.future.done():
            self.future.set_result(self.indexes)

    def fail(self, error: LogError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Sender:
    """A producer and the thread that takes its answers to the event loop."""

    def __init__(self, link: Link, on_answer: Callable[[Sender, NewEntry | None, int, str], None]) -> None:
        self._topic = link.topic
        self._producer = link.producer()
        self._loop = asyncio.get_running_loop()
        self._on_answer = on_answer
        self._stopped = threading.Event()
        threading.Thread(target=self._poll, name="kafka-write", daemon=True).start()

    def send(self, entry: NewEntry) -> None:
        def answered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self._tell(entry, -1, error.str())
            else:
                self._tell(entry, message.offset(), "")

        produce(self._producer, self._topic, entry, answered)

    def _poll(self) -> None:
        try:
            while not self._stopped.is_set():
                self._producer.poll(0.1)
        except KafkaException as error:  # The client cannot go on.
            self._tell(None, -1, error.args[0].str())

    def _tell(self, entry: NewEntry | None, offset: int, why: str) -> None:
        if not self._stopped.is_set():
            self._loop.call_soon_threadsafe(self._on_answer, self, entry, offset, why)

    def stop(self) -> None:
        """Whatever it still holds is dropped; what is on its way may arrive."""
        self._stopped.set()
        self._producer.purge()


def produce(producer: Producer, topic: str, entry: NewEntry, answered: Any) -> None:
    """Hand one entry over. Its index is 0 in it: the broker decides."""
    body = b"".join(encode(0, entry, time.time_ns() // 1000))
    key = entry.producer.encode()
    producer.produce(topic, body, key, 0, answered, headers=header(entry.sequence, entry.kind))


class KafkaWriter:
    """The writing half. One task does everything, so there are no locks.

    Invariant: ``_planned`` is each producer's newest sequence in the log or among ``_waiting``.
    """

    def __init__(self, link: Link, state: State) -> None:
        self._link = link
        self._state = state
        self._requests: deque[Request] = deque()
        self._flights: dict[Request, None] = {}  # Sent and not answered, in order.
        self._bytes = 0
        self._planned: dict[str, int] = {}
        self._waiting: dict[tuple[str, int], list[tuple[Request, int]]] = {}
        self._sender: Sender | None = None
        self._transactions: Producer | None = None
        self._unsure = False  # A transaction may be half done.
        self._stale = False  # Somebody else appended.
        self._trouble: str | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, entries: Sequence[NewEntry], up_to: int = 0) -> list[int]:
        """Queue a call and wait for its answer."""
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._run())
        request = Request(entries, up_to, loop.create_future(), loop.time() + self._link.patience_seconds)
        self._requests.append(request)
        self._wake.set()
        return await request.future

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._sender is not None:
            self._sender.stop()
        self._fail_all(LogUnavailable(f"the log {self._link.where} is closed"))

    async def _run(self) -> None:
        while True:
            await self._wake.wait()  # A call came, or an answer: whatever waits for something waits for one of these.
            self._wake.clear()
            try:
                if self._trouble is not None:
                    await self._start_over()
                if self._sender is None or self._stale:
                    await self._look()
                await self._send_what_waits()
                if self._stale or self._trouble is not None:
                    self._wake.set()
                if self._state.end - self._state.covered >= BLOCK_COUNT:
                    await self._state.write_block()
            except LogUnavailable as error:
                self._trouble = str(error)
                self._wake.set()
            except KafkaException as error:
                self._trouble = error.args[0].str()
                self._wake.set()
            except LogError as error:
                self._state.loaded = False
                self._trouble = str(error)
                self._fail_all(error)

    def _full(self) -> bool:
        return len(self._flights) >= WINDOW_COUNT or self._bytes >= WINDOW_BYTES

    async def _look(self) -> None:
        """Read the state; at first, and after somebody else was found to write."""
        self._stale = False
        found = await self._state.refresh()
        if self._sender is None:
            self._planned = dict(self._state.newest)
            self._sender = Sender(self._link, self._on_answer)
        elif found:
            _log.warning("%s has another writer, which Kafka cannot refuse; let one log server write", self._link.where)
            for producer, newest in self._state.newest.items():
                self._planned[producer] = max(newest, self._planned.get(producer, 0))

    async def _start_over(self) -> None:
        """Unanswered requests go back to the front of the queue, in their order."""
        why, self._trouble = self._trouble, None
        if self._sender is not None:
            self._sender.stop()
            self._sender = None
        self._requests.extendleft(reversed(self._flights))
        self._flights.clear()
        self._waiting.clear()
        self._bytes = 0
        self._state.loaded = False
        now = asyncio.get_running_loop().time()
        for request in self._requests:
            if now >= request.deadline:
                request.fail(LogUnavailable(f"{self._link.where} does not take appends now ({why})"))
        self._requests = deque(request for request in self._requests if not request.future.done())
        if self._unsure:
            self._transactions = None
            await self._transactional()  # Its start ends what the one before left open, either way.
        await asyncio.sleep(0.05)

    async def _send_what_waits(self) -> None:
        while self._requests and self._trouble is None and not self._stale and not self._full():
            request = self._requests[0]
            if request.future.done():
                self._requests.popleft()  # The caller gave up before anything was sent.
                continue
            if not request.entries and self._flights:
                return  # A trim waits until everything before it is confirmed.
            try:
                if not request.entries:
                    await self._trim(request)
                elif not await self._send(request):
                    return
            except (LogUnavailable, KafkaException):
                raise
            except LogError as error:
                request.fail(error)
            if self._requests and self._requests[0] is request:
                self._requests.popleft()

    async def _send(self, request: Request) -> bool:
        """Send what is new of the group; False if it has to wait for those before it."""
        new, newest = self._plan(request)
        if len(new) > 1 and self._flights:
            return False  # A transaction comes from another client, which knows nothing of this one's order.
        request.indexes, request.open = [0] * len(request.entries), len(request.entries)
        request.bytes = sum(len(entry.payload) for entry in request.entries)
        known: dict[int, int] = {}
        for place, entry in enumerate(request.entries):
            key = entry.producer, entry.sequence
            if entry.sequence <= self._planned.get(entry.producer, 0) and key not in self._waiting:
                known[place] = await self._state.find(*key)
        self._requests.popleft()
        self._planned.update(newest)
        self._flights[request] = None
        self._bytes += request.bytes
        for place, entry in enumerate(request.entries):
            if place not in known:
                self._waiting.setdefault((entry.producer, entry.sequence), []).append((request, place))
        for place, index in known.items():
            request.fill(place, index)
        if request.future.done():
            self._landed(request)
        if len(new) > 1:
            await self._send_together(new)
        elif new:
            assert self._sender is not None
            self._sender.send(new[0])
        return True

    def _plan(self, request: Request) -> tuple[list[NewEntry], dict[str, int]]:
        """What is new; a gap refuses the whole group and changes nothing."""
        newest: dict[str, int] = {}
        new = []
        for entry in request.entries:
            last = newest.get(entry.producer, self._planned.get(entry.producer, 0))
            if entry.sequence > last + 1:
                raise SequenceGap(gap_message(entry.producer, entry.sequence, last))
            if entry.sequence == last + 1:
                newest[entry.producer] = entry.sequence
                new.append(entry)
        return new, newest

    def _on_answer(self, sender: Sender, entry: NewEntry | None, offset: int, why: str) -> None:
        """A record was acknowledged, or given up."""
        if sender is not self._sender:
            return  # From before we started over.
        if why or entry is None:
            self._trouble = self._trouble or why
        elif self._trouble is None:
            self._stale = self._stale or offset > self._state.end
            if not self._stale:
                self._state.learn(offset, entry.producer, entry.sequence, entry.kind)
            self._confirm(entry, offset + 1)
        self._wake.set()

    def _confirm(self, entry: NewEntry, index: int) -> None:
        for request, place in self._waiting.pop((entry.producer, entry.sequence), ()):
            request.fill(place, index)
            if not request.open:
                self._landed(request)

    def _landed(self, request: Request) -> None:
        if request in self._flights:
            del self._flights[request]
            self._bytes -= request.bytes

    async def _send_together(self, new: list[NewEntry]) -> None:
        """One transaction; nothing else is in flight."""
        self._unsure = True
        try:
            producer = await self._transactional()
            offsets = await asyncio.to_thread(_commit, producer, self._link, new)
        except KafkaException as error:
            if error.args[0].code() in FENCED:
                self._fail_all(Superseded(f"a rival writer holds {self._link.where}; stop one of the two"))
            raise
        self._unsure = False
        end = await asyncio.to_thread(_wait_visible, self._link, offsets[-1])
        if offsets[0] == self._state.end and end == offsets[-1] + 2 and offsets[-1] - offsets[0] == len(new) - 1:
            for entry, offset in zip(new, offsets, strict=True):
                self._state.learn(offset, entry.producer, entry.sequence, entry.kind)
            self._state.end = end  # Behind the mark that ends a transaction.
        else:
            self._stale = True
        for entry, offset in zip(new, offsets, strict=True):
            self._confirm(entry, offset + 1)

    async def _transactional(self) -> Producer:
        if self._transactions is None:
            name = {"transactional.id": f"logplayer-{self._link.topic}", "transaction.timeout.ms": TRANSACTION_MS}
            limit = {"delivery.timeout.ms": TRANSACTION_MS}
            made = self._link.producer(**name, **limit)
            await asyncio.to_thread(made.init_transactions, self._link.patience_seconds)
            self._transactions = made
        return self._transactions

    async def _trim(self, request: Request) -> None:
        """The map must answer for what is about to go, so its block comes first. A crash in between is harmless."""
        await self._state.refresh()
        if request.up_to > self._state.last:
            raise BadRequest(f"cannot trim up to {request.up_to}: the newest entry is {self._state.last}")
        if request.up_to > self._state.covered:
            await self._state.write_block()
        await asyncio.to_thread(self._link.patiently, lambda: self._link.trim(request.up_to))
        if not request.future.done():
            request.future.set_result([])

    def _fail_all(self, error: LogError) -> None:
        for request in [*self._flights, *self._requests]:
            request.fail(error)
        self._flights.clear()
        self._requests.clear()
        self._waiting.clear()
        self._bytes = 0


def _commit(producer: Producer, link: Link, new: list[NewEntry]) -> list[int]:
    """All of the group or nothing; the offsets that it got."""
    offsets: dict[int, int] = {}
    failed: list[KafkaError] = []
    producer.begin_transaction()
    for place, entry in enumerate(new):

        def answered(error: KafkaError | None, message: Any, place: int = place) -> None:
            if error is not None:
                failed.append(error)
            else:
                offsets[place] = message.offset()

        produce(producer, link.topic, entry, answered)
    producer.flush(link.patience_seconds)
    if failed:
        raise KafkaException(failed[0])
    producer.commit_transaction(link.patience_seconds)
    return [offsets[place] for place in range(len(new))]


def _wait_visible(link: Link, offset: int) -> int:
    """A commit is decided before it is shown: wait until readers see it. The end of the log then."""
    deadline = time.monotonic() + link.patience_seconds
    while (end := link.patiently(link.bounds)[1]) <= offset:
        if time.monotonic() > deadline:
            raise LogUnavailable(f"{link.where} does not show what was committed")
        time.sleep(0.001)
    return end

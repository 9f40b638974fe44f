"""Writes a log on Kafka: an entry as a record of an idempotent producer, a group as a Kafka transaction.

Entries are sent without waiting for those before them; the client keeps their order and repeats what got lost, without
duplicates for as long as it lives. When it gives up (a fatal error, no answer in time), everything is started over: a
new client, the state read from the log again, and what is unanswered planned again. An entry that did get in is then
found by its (producer, sequence).

What is weaker than with compare-and-set: a record of a client that was given up may still be on its way and arrive
after the state was read, and a second writer is only noticed afterwards. Both leave an entry in the log twice.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from logplayer.core.chain import GENESIS, extend, mark_of
from logplayer.errors import CorruptEntry, LogError, LogUnavailable, Superseded, Trimmed
from logplayer.log.control_rules import Guard
from logplayer.log.kafka.link import FENCED, KafkaLink
from logplayer.log.kafka.produce import commit, produce, wait_visible
from logplayer.log.kafka.reader import read
from logplayer.log.kafka.request import KafkaLogRequest
from logplayer.log.kafka.sequence_map import BLOCK_COUNT, KafkaLogState, TrimMark
from logplayer.log.protocol import CONTROL_PRODUCER, BadRequest, History, NewEntry, Newest, Record, overtaken
from logplayer.log.refusals import is_in_the_log, other_history, producer_conflict, sequence_gap, with_newest
from logplayer.log.sequences import check_mark
from logplayer.observe.instruments import ReplicaCounts

WINDOW_COUNT, WINDOW_BYTES = 512, 16 * 1024 * 1024
TRANSACTION_MS = 10_000
_log = logging.getLogger(__name__)


class Sender:
    """A producer and the thread that takes its answers to the event loop."""

    def __init__(self, link: KafkaLink, on_answer: Callable[[Sender, NewEntry | None, bytes, int, str], None]) -> None:
        self._topic = link.topic
        self._producer = link.producer()
        self._loop = asyncio.get_running_loop()
        self._on_answer = on_answer
        self._stopped = threading.Event()
        threading.Thread(target=self._poll, name="kafka-write", daemon=True).start()

    def send(self, entry: NewEntry, chain: bytes) -> None:
        def answered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self._tell(entry, chain, -1, error.str())
            else:
                self._tell(entry, chain, message.offset(), "")

        produce(self._producer, self._topic, entry, chain, answered)

    def _poll(self) -> None:
        try:
            while not self._stopped.is_set():
                self._producer.poll(0.1)
        except KafkaException as error:  # The client cannot go on.
            self._tell(None, b"", -1, error.args[0].str())

    def _tell(self, entry: NewEntry | None, chain: bytes, offset: int, why: str) -> None:
        if not self._stopped.is_set():
            self._loop.call_soon_threadsafe(self._on_answer, self, entry, chain, offset, why)

    def stop(self) -> None:
        """Whatever it still holds is dropped; what is on its way may arrive."""
        self._stopped.set()
        self._producer.purge()


class KafkaWriter:
    """The writing half. One task does everything, so there are no locks.

    Invariant: ``_planned`` is each producer's newest sequence in the log or among ``_waiting``.
    """

    def __init__(
        self, link: KafkaLink, state: KafkaLogState, chain_at: Callable[[int], Awaitable[bytes | None]]
    ) -> None:
        self.counts = ReplicaCounts()
        self._link = link
        self._state = state
        self._chain_at = chain_at
        self._requests: deque[KafkaLogRequest] = deque()
        self._flights: dict[KafkaLogRequest, None] = {}  # Sent and not answered, in order.
        self._bytes = 0
        self._planned: dict[str, int] = {}
        self._chain = GENESIS  # The chain value after all that is sent.
        self._waiting: dict[tuple[str, int], list[tuple[KafkaLogRequest, int]]] = {}
        self._sender: Sender | None = None
        self._transactions: Producer | None = None
        self._unsure = False  # A transaction may be half done.
        self._stale = False  # Somebody else appended.
        self._trouble: str | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, entries: Sequence[NewEntry], up_to: int = 0, history: History | None = None) -> list[int]:
        """Queue a call and wait for its answer."""
        loop = asyncio.get_running_loop()
        if self._task is None:
            self._task = loop.create_task(self._run())
        deadline = loop.time() + self._link.patience_seconds
        request = KafkaLogRequest(entries, up_to, loop.create_future(), deadline, history)
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
            except Exception as error:  # noqa: BLE001 - the callers wait for this task, whatever happens to it.
                self._state.loaded = False
                self._trouble = f"{type(error).__name__}: {error}"
                self._fail_all(LogError(f"{self._link.where} cannot be written: {self._trouble}"))

    def _full(self) -> bool:
        return len(self._flights) >= WINDOW_COUNT or self._bytes >= WINDOW_BYTES

    async def _look(self) -> None:
        """Read the state; at first, and after somebody else was found to write."""
        self._stale = False
        found = await self._state.refresh()
        if self._sender is None:
            self._planned, self._chain = dict(self._state.newest), self._state.chain
            self._sender = Sender(self._link, self._on_answer)
        elif found:
            if not self._flights:
                self._chain = self._state.chain
            self.counts.conflicts += 1
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
                request.fail(
                    with_newest(error, await self._newest_of(error.producer)) if is_in_the_log(error) else error
                )
            if self._requests and self._requests[0] is request:
                self._requests.popleft()

    async def _newest_of(self, producer: str) -> Newest:
        sequence = self._state.newest.get(producer, 0)
        return Newest(sequence, (await self._state.find(producer, sequence)).index if sequence else 0)

    async def _send(self, request: KafkaLogRequest) -> bool:
        """Send what is new of the group; False if it has to wait for those before it."""
        if any(map(self._is_contested, request.entries)):
            return False  # The answer says at which index the other one is.
        new, newest = self._plan(request)
        if len(new) > 1 and self._flights:
            return False  # A transaction comes from another client, which knows nothing of this one's order.
        for entry in new:
            if entry.kind:  # CONTROL
                if any(producer == CONTROL_PRODUCER for producer, _ in self._waiting):
                    return False  # The decision before it has no index yet, and its index is part of the state.
                (await self._decisions()).check(entry.payload)
        request.indexes, request.open = [0] * len(request.entries), len(request.entries)
        request.bytes = sum(len(entry.payload) for entry in request.entries)
        known: dict[int, int] = {}
        for place, entry in enumerate(request.entries):
            key = entry.producer, entry.sequence
            if entry.sequence <= self._planned.get(entry.producer, 0) and key not in self._waiting:
                found = await self._state.find(*key)
                check_mark(found, entry)
                known[place] = found.index
        self._requests.popleft()
        request.began = time.perf_counter()
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
        chain = [self._extend(entry) for entry in new]
        if len(new) > 1:
            await self._send_together(new, chain)
        elif new:
            assert self._sender is not None
            self._sender.send(new[0], chain[0])
        return True

    def _extend(self, entry: NewEntry) -> bytes:
        """The chain value of the entry that is sent next."""
        self._chain = extend(self._chain, entry.kind, entry.producer, entry.sequence, mark_of(entry.payload))
        return self._chain

    def _plan(self, request: KafkaLogRequest) -> tuple[list[NewEntry], dict[str, int]]:
        """What is new; a gap refuses the whole group and changes nothing."""
        newest: dict[str, int] = {}
        new = []
        for entry in request.entries:
            last = newest.get(entry.producer, self._planned.get(entry.producer, 0))
            if entry.sequence > last + 1:
                raise sequence_gap(entry.producer, entry.sequence, self._planned.get(entry.producer, 0))
            if entry.sequence == last + 1:
                newest[entry.producer] = entry.sequence
                new.append(entry)
            elif any(other[:2] == entry[:2] and other.payload != entry.payload for other in new):
                raise producer_conflict(entry.producer, entry.sequence, 0)
        return new, newest

    def _is_contested(self, entry: NewEntry) -> bool:
        """Whether the sequence is on its way with another payload: its index is not known yet."""
        waiting = self._waiting.get((entry.producer, entry.sequence), ())
        return any(request.entries[place].payload != entry.payload for request, place in waiting)

    async def _decisions(self) -> Guard:
        """The newest decision, read each time: there are few, and none is in flight."""
        newest = self._state.control
        found: Record | LogError | None = None
        if newest:
            try:
                async for records in read(self._link, newest, newest):
                    found = records[0]
            except (Trimmed, CorruptEntry) as error:
                found = error
        return Guard.after(newest, self._state.newest.get(CONTROL_PRODUCER, 0), found)

    def _on_answer(self, sender: Sender, entry: NewEntry | None, chain: bytes, offset: int, why: str) -> None:
        """A record was acknowledged, or given up."""
        if sender is not self._sender:
            return  # From before we started over.
        if why or entry is None:
            self._trouble = self._trouble or why
        elif self._trouble is None:
            self._stale = self._stale or offset > self._state.end
            if not self._stale:
                self._learn(offset, entry, chain)
            self._confirm(entry, offset + 1)
        self._wake.set()

    def _learn(self, offset: int, entry: NewEntry, chain: bytes) -> None:
        self._state.learn(offset, entry.producer, entry.sequence, entry.kind, mark_of(entry.payload), chain)

    def _confirm(self, entry: NewEntry, index: int) -> None:
        for request, place in self._waiting.pop((entry.producer, entry.sequence), ()):
            request.fill(place, index)
            if not request.open:
                self.counts.commits.note(time.perf_counter() - request.began)
                self._landed(request)

    def _landed(self, request: KafkaLogRequest) -> None:
        if request in self._flights:
            del self._flights[request]
            self._bytes -= request.bytes

    async def _send_together(self, new: list[NewEntry], chain: list[bytes]) -> None:
        """One transaction; nothing else is in flight."""
        self._unsure = True
        try:
            producer = await self._transactional()
            offsets = await asyncio.to_thread(commit, producer, self._link, new, chain)
        except KafkaException as error:
            if error.args[0].code() in FENCED:
                self._fail_all(Superseded(f"another writer holds {self._link.where}; stop one of the two"))
            raise
        self._unsure = False
        end = await asyncio.to_thread(wait_visible, self._link, offsets[-1])
        if offsets[0] == self._state.end and end == offsets[-1] + 2 and offsets[-1] - offsets[0] == len(new) - 1:
            for entry, offset, value in zip(new, offsets, chain, strict=True):
                self._learn(offset, entry, value)
            self._state.end = end  # After the mark that ends a transaction.
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

    async def _trim(self, request: KafkaLogRequest) -> None:
        """The map must answer for what is about to go, so its block comes first. A crash in between is harmless."""
        await self._state.refresh()
        if request.up_to > self._state.last:
            raise BadRequest(f"cannot trim up to {request.up_to}: the newest entry is {self._state.last}")
        history = request.history
        low, _ = await asyncio.to_thread(self._link.patiently, self._link.bounds)
        compared = history is not None and not overtaken(request.up_to, history, low + 1)
        if history is not None and compared and await self._chain_at(history.index) != history.chain:
            raise other_history(history)
        up_to = (await self._decisions()).trim_limit(request.up_to)
        if up_to > low:
            await self._state.write_block(TrimMark(up_to, await self._chain_at(up_to) or GENESIS))
            await asyncio.to_thread(self._link.patiently, lambda: self._link.trim(up_to))
        low, _ = await asyncio.to_thread(self._link.patiently, self._link.bounds)
        if not request.future.done():
            request.future.set_result([low])

    def _fail_all(self, error: LogError) -> None:
        for request in [*self._flights, *self._requests]:
            request.fail(error)
        self._flights.clear()
        self._requests.clear()
        self._waiting.clear()
        self._bytes = 0

"""What a capture appends, in order, one group at a time, until it is durable.

``logplayer.capture.resume`` relies on where the marks are: after the entry whose LSN a mark has, and before the next
entry of the capture. So there is one group under way at a time; one that was sent never changes and is sent again as it
is; nothing is marked while entries go in that the log may have already; and every process begins with a claim, an entry
of the marks' producer that only it can have written. What an earlier process still sends has a used number then, and
the log refuses its whole group.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from logplayer.capture.resume import mark, marks_of, schema_of
from logplayer.crashpoint import crashpoint
from logplayer.errors import LogFull, LogUnavailable
from logplayer.log.protocol import GROUP_BYTES_MAX, GROUP_COUNT_MAX, Log, NewEntry
from logplayer.observe.instruments import CaptureCounts
from logplayer.wire.entries import encode_headers

GROUP_BYTES = 4 * 1024 * 1024  # A group takes what is there up to this, and one item at least.
MARK_SECONDS = 5.0  # What is sent again after a crash, at most, beside what is unanswered.
ITEM_BYTES_MAX = GROUP_BYTES_MAX - GROUP_BYTES - 64 * 1024
RETRY_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
_log = logging.getLogger("logplayer.capture")


class Item(NamedTuple):
    """What enters the log together: the entries of one transaction, or a part of them."""

    payloads: list[bytes]
    lsn: int = 0  # What the source may forget once this is durable; 0: nothing.
    schema: bytes = b""  # The tables' descriptions, if they are new.


class Appender:
    """Appends items for one producer.

    Args:
        log: The log.
        producer: The producer's name.
        sequence: Its newest sequence that the source will not send again.
        confirm: Called with an LSN once that is durable and marked.
        counts: Where it is counted.

    Attributes:
        unanswered_bytes: How much was submitted and is not durable.
        lsn: The newest LSN that is durable.
        entries: How many entries this process has appended.
    """

    def __init__(
        self,
        log: Log,
        producer: str,
        sequence: int,
        confirm: Callable[[int], None],
        counts: CaptureCounts | None = None,
    ) -> None:
        self.counts = counts or CaptureCounts()
        self.unanswered_bytes = 0
        self.lsn = 0
        self.entries = 0
        self._log = log
        self._names = producer, marks_of(producer), schema_of(producer)
        self._sequences = dict.fromkeys(self._names, 0)
        self._sequences[producer] = sequence
        self._confirm = confirm
        self._items: deque[Item] = deque()
        self._marked = 0
        self._known = 0  # The producer's newest sequence when this process began.
        self._whole = False  # The newest entry is the last one of its transaction.
        self._marked_at = time.monotonic()
        self._work = asyncio.Event()
        self._moved = asyncio.Event()  # Something became durable.
        self._mark_now = False

    async def open(self) -> None:
        """Learn how far the producers are, and claim the marks.

        Raises:
            ProducerConflict: Another process did so at the same time.
            LogError: The log cannot be asked.
        """
        data, marks, schema = self._names
        self._known = (await self._log.newest(data)).sequence
        for name in (marks, schema):
            self._sequences[name] = (await self._log.newest(name)).sequence
        await self._send([self._entry(marks, encode_headers([("pg-claim", uuid.uuid4().hex)]))])

    def submit(self, item: Item) -> None:
        """Append it after everything that was submitted before."""
        self._items.append(item)
        self.unanswered_bytes += sum(map(len, item.payloads))
        self.counts.unanswered_bytes = self.unanswered_bytes
        self._work.set()

    async def room(self, bytes_max: int) -> None:
        """Wait until less than so many bytes are unanswered."""
        while self.unanswered_bytes >= bytes_max:
            self._moved.clear()
            await self._moved.wait()

    async def drain(self) -> None:
        """Wait until everything is durable, and marked."""
        self._mark_now = True
        self._work.set()
        while self._items or self.unanswered_bytes or self._mark_due(self.lsn):
            self._moved.clear()
            await self._moved.wait()

    async def run(self) -> None:
        """Append until cancelled.

        Raises:
            LogError: The log refuses for good.
        """
        while True:
            if not self._items and not self._mark_due(self.lsn):
                self._work.clear()
                try:
                    async with asyncio.timeout(MARK_SECONDS / 5):
                        await self._work.wait()
                except TimeoutError:
                    continue
                if not self._items and not self._mark_due(self.lsn):
                    continue
            await self._append_group()

    def _mark_due(self, lsn: int) -> bool:
        due = self._mark_now or time.monotonic() - self._marked_at >= MARK_SECONDS
        return due and lsn > self._marked and self._whole and self._sequences[self._names[0]] >= self._known

    async def _append_group(self) -> None:
        data, marks, schema = self._names
        group: list[NewEntry] = []
        sent = lsn = 0
        while self._items and sent < GROUP_BYTES:
            item = self._items[0]
            if group and len(group) + len(item.payloads) + 2 > GROUP_COUNT_MAX:
                break
            self._items.popleft()
            group += [self._entry(data, payload) for payload in item.payloads]
            if item.schema:
                group.append(self._entry(schema, item.schema))
            sent += sum(map(len, item.payloads))
            lsn, self._whole = item.lsn or lsn, bool(item.lsn)
        marked = max(lsn, self.lsn)
        if is_marked := self._mark_due(marked):
            group.append(self._entry(marks, mark(marked)))
        if group:
            await self._send(group)
        crashpoint("capture-group-durable")
        self.entries += len(group)
        self.unanswered_bytes -= sent
        self.lsn = marked
        self.counts.entries, self.counts.unanswered_bytes = self.entries, self.unanswered_bytes
        self.counts.make_durable(lsn, time.time())
        if is_marked:
            self._marked, self._marked_at, self._mark_now = marked, time.monotonic(), bool(self._items)
            self._confirm(marked)
        self._moved.set()

    def _entry(self, producer: str, payload: bytes) -> NewEntry:
        self._sequences[producer] += 1
        return NewEntry(producer, self._sequences[producer], payload)

    async def _send(self, group: list[NewEntry]) -> None:
        attempts = 0
        while True:
            try:
                await self._log.append(group)
                if attempts:
                    self.counts.why = ""
                return
            except (LogUnavailable, LogFull) as error:
                if not attempts:
                    _log.warning("the log does not take entries now; trying on: %s", error)
                self.counts.waits[type(error).__name__] += 1
                self.counts.why = f"the log does not take entries now: {error}"
                pause = RETRY_SECONDS[min(attempts, len(RETRY_SECONDS) - 1)]
                attempts += 1
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))

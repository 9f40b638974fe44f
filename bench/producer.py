"""The process that appends: the application of the benchmark."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator

from bench.actor import usage
from bench.contest import VALUE_BYTES, Workload
from logplayer.log.open import open_log
from logplayer.log.producer import Producer as LogProducer
from logplayer.log.protocol import Log, NewEntry
from logplayer.wire.entries import encode_mutation

NAME = "bench"
GROUP = 100
LATE_SECONDS = 120.0
_KEY_AT = encode_mutation(b"\xff", bytes(VALUE_BYTES)).encoded.index(b"\xff")


def payload_of(workload: Workload, number: int) -> bytes:
    """Transaction ``number`` as an entry of the log holds it."""
    return b"".join(encode_mutation(key, value).encoded for key, value in workload.transaction(number))


def number_of(payload: bytes) -> int:
    """Which transaction an entry holds: the first key begins with it."""
    return int(payload[_KEY_AT : _KEY_AT + 8])


async def paced(first: int, last: int | None, rate: float) -> AsyncIterator[int]:
    """Numbers from ``first`` at a steady rate; what is late is made up for at once."""
    start = time.perf_counter()
    number = first
    while last is None or number <= last:
        wait = start + (number - first) / rate - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        yield number
        number += 1


class Producer:
    """An actor: see ``bench.actor``."""

    def __init__(self) -> None:
        self._log: Log | None = None
        self._going: asyncio.Task[None] | None = None
        self._sent: array[int] = array("q")
        self._pending: set[asyncio.Task[None]] = set()
        # Calls that are under way at once are one producer each: a producer would send them in groups, and what is
        # measured here is what a lone transaction of many independent processes meets.
        self._idle: list[LogProducer] = []

    async def open(self, address: str) -> None:
        await self.close()
        self._idle = []
        self._log = await open_log(address)

    async def steady(self, workload: Workload) -> array[int]:
        """Append at the workload's rate, without waiting for answers: number, index, asked and committed of each."""
        payloads = [payload_of(workload, number) for number in range(1, workload.count + 1)]
        async for number in paced(1, workload.count, workload.rate):
            self._append(number, payloads[number - 1])
        async with asyncio.timeout(LATE_SECONDS):
            await asyncio.gather(*self._pending)
        return self.take()

    async def fill(self, workload: Workload) -> tuple[int, int]:
        """Append everything as fast as it goes; the last index, and the payload bytes."""
        assert self._log is not None
        last = total = 0
        for first in range(1, workload.count + 1, GROUP):
            numbers = range(first, min(first + GROUP, workload.count + 1))
            group = [NewEntry(NAME, number, payload_of(workload, number)) for number in numbers]
            total += sum(len(entry.payload) for entry in group)
            last = (await self._log.append(group))[-1]
        return last, total

    def begin(self, workload: Workload, first: int = 1) -> None:
        """Append for ever, until ``finish``."""

        async def go() -> None:
            async for number in paced(first, None, workload.rate):
                self._append(number, payload_of(workload, number))

        self._going = asyncio.create_task(go())

    async def finish(self) -> array[int]:
        """Stop, and what was appended since the last time, as ``steady`` tells it."""
        assert self._going is not None
        self._going.cancel()
        await asyncio.gather(self._going, return_exceptions=True)
        self._going = None
        async with asyncio.timeout(LATE_SECONDS):
            await asyncio.gather(*self._pending)
        return self.take()

    def take(self) -> array[int]:
        """What was acknowledged since the last time."""
        taken, self._sent = self._sent, array("q")
        return taken

    def usage(self) -> dict[str, float]:
        return usage()

    def _append(self, number: int, payload: bytes) -> None:
        task = asyncio.create_task(self._ask(number, payload))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _ask(self, number: int, payload: bytes) -> None:
        assert self._log is not None
        producer = self._idle.pop() if self._idle else await LogProducer.open(self._log)
        asked = time.monotonic_ns()
        receipt = await producer.append_payload(payload)
        self._sent.extend((number, receipt.index, asked, time.monotonic_ns()))
        self._idle.append(producer)

    async def close(self) -> None:
        if self._going is not None:
            self._going.cancel()
        for task in self._pending:
            task.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)
        self._going = None
        self._sent = array("q")
        if self._log is not None:
            await self._log.close()
            self._log = None

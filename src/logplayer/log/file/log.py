"""The embedded log: SQLite segments in one directory, one writer thread, readers in any number of processes.

The process that writes pushes new entries to its own readers from memory. A reader in another process looks at the
newest segment every few milliseconds; through the log server it is pushed to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

from logplayer.errors import CorruptEntry, LogError, LogFormatError, LogUnavailable
from logplayer.log.answer import GroupAnswer, GroupOutcome
from logplayer.log.file.directory import Directory
from logplayer.log.file.past import Past
from logplayer.log.file.reader import SegmentReader
from logplayer.log.file.segment import FrameChunk
from logplayer.log.file.writer import SEGMENT_BYTES, CommittedState, FileLogRequest, Outcome, Writer
from logplayer.log.frame import corrupt, decode_frames, spans
from logplayer.log.protocol import (
    BATCH_BYTES,
    History,
    Info,
    NewEntry,
    Newest,
    Record,
    check_group,
    check_producer,
    check_range,
)
from logplayer.log.refusals import trimmed
from logplayer.observe.instruments import WriterCounts

RECENT_BYTES_MAX = 8 * 1024 * 1024
POLL_SECONDS = 0.004  # What a reader of another process's log waits between two looks.
INLINE_BYTES_MAX = 64 * 1024  # More than this is decoded in a thread, so that the loop stays free.
FOREVER = 2**63 - 1
T = TypeVar("T")


class FileLog:
    """A log in a directory. Made by ``FileLog.open``; one instance belongs to one event loop."""

    def __init__(self, path: Path) -> None:
        self.directory = Directory(path)
        self._writer: Writer | None = None
        self._standing = CommittedState(1, 0, 0)
        self._log_id = ""
        self._recent: deque[FrameChunk] = deque()
        self._recent_bytes = 0
        self._news = asyncio.Event()
        self._waiting: set[GroupAnswer | _Each] = set()
        self._closed = False
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="logplayer-log-reader")

    @classmethod
    async def open(cls, path: str | Path, *, readonly: bool = False, segment_bytes: int = SEGMENT_BYTES) -> Self:
        """Open the log, and make it if it is new. A second writer is refused with the first one's pid."""
        log = cls(Path(path))
        log._loop = asyncio.get_running_loop()
        try:
            if readonly:
                log._log_id = (await log._in_thread(log._require)).log_id
            else:
                writer = Writer(log.directory, log._tell, segment_bytes)
                log._standing = await log._in_thread(writer.open)
                log._writer, log._log_id = writer, writer.log_id
        except BaseException:
            log._threads.shutdown(wait=False)
            raise
        return log

    _loop: asyncio.AbstractEventLoop

    def _require(self) -> Info:
        self.directory.check()
        if not self.directory.segments():
            raise LogFormatError(f"there is no log at {self.directory.path}; append to it or serve it first")
        with contextlib.closing(SegmentReader(self.directory)) as reader:
            return reader.info()

    async def _in_thread(self, function: Callable[..., T], *args: object) -> T:
        return await self._loop.run_in_executor(self._threads, function, *args)

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        """Commit the group, together with whatever else waits, and return its indexes."""
        check_group(entries)
        return await self._ask(entries, None)

    def append_groups(self, groups: Sequence[Sequence[NewEntry]]) -> asyncio.Future[list[GroupOutcome]]:
        """Several calls of ``append`` in one, in their order; each is answered by itself, all at once."""
        if _are_transactions(groups):
            each = _Each(self._loop, len(groups))
            try:
                self._submit([entry for [entry] in groups], None, each, each=True)
            except LogError as error:
                each.set_exception(error)
            return each.answer
        together = _Together(self._loop, len(groups))
        for nth, entries in enumerate(groups):
            try:
                check_group(entries)
                self._submit(entries, None, _Nth(together, nth))
            except LogError as error:
                together.put(nth, error)
        return together.answer

    async def trim(self, up_to: int, history: History | None = None) -> int:
        """Forget entries up to and including ``up_to``; segments that hold nothing else are deleted at once."""
        [trimmed_to] = await self._ask((), up_to, history=history)
        return trimmed_to

    async def newest(self, producer: str) -> Newest:
        """What the producer appended last, with everything that was asked for before this call."""
        check_producer(producer)
        if self._writer is None:
            return await self._in_thread(Past(self.directory).newest, producer)
        return Newest(*await self._ask((), None, producer))

    def _ask(
        self, entries: Sequence[NewEntry], trim: int | None, producer: str = "", history: History | None = None
    ) -> asyncio.Future[list[int]]:
        future: asyncio.Future[list[int]] = self._loop.create_future()
        self._submit(entries, trim, future, producer, history)
        return future

    def _submit(
        self,
        entries: Sequence[NewEntry],
        trim: int | None,
        answer: GroupAnswer | _Each,
        producer: str = "",
        history: History | None = None,
        each: bool = False,
    ) -> None:
        if self._closed:
            raise LogUnavailable(f"the log at {self.directory.path} is closed")
        if self._writer is None:
            raise LogUnavailable(f"the log at {self.directory.path} was opened for reading only")
        self._waiting.add(answer)
        self._writer.submit(FileLogRequest(entries, trim, answer, producer, history, each))

    def _tell(self, outcomes: list[Outcome], chunks: list[FrameChunk], standing: CommittedState) -> None:
        """Called in the writer's thread."""
        with contextlib.suppress(RuntimeError):  # The loop is gone, and with it every call that waited.
            self._loop.call_soon_threadsafe(self._told, outcomes, chunks, standing)

    def _told(self, outcomes: list[Outcome], chunks: list[FrameChunk], standing: CommittedState) -> None:
        self._standing = standing
        for chunk in chunks:
            self._recent.append(chunk)
            self._recent_bytes += len(chunk.data)
        while self._recent_bytes > RECENT_BYTES_MAX:
            self._recent_bytes -= len(self._recent.popleft().data)
        for token, indexes, error in outcomes:
            self._waiting.discard(token)
            if token.done():
                continue  # The caller gave up waiting; the entry is in the log all the same.
            if error is None:
                token.set_result(indexes)
            else:
                token.set_exception(error)
        if chunks:
            self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    @property
    def writer_counts(self) -> WriterCounts | None:
        """How long the writer's commits take; None if this was opened for reading only."""
        return self._writer.counts if self._writer is not None else None

    async def info(self) -> Info:
        """The first and the last index; ``bytes`` is what it takes on the disk."""
        if self._writer is None:
            return await self._in_thread(self._require)
        first, last, control, chain, trimmed_chain = self._standing
        size = await self._in_thread(self.directory.bytes_on_disk)
        return Info(self._log_id, first, last, control, size, chain, trimmed_chain)

    async def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        """Batches of records; see the protocol."""
        async for chunks, low, high in self._read(first, last):
            if sum(len(chunk.data) for chunk in chunks) <= INLINE_BYTES_MAX:
                records, damage = _decode(chunks, low, high)
            else:
                records, damage = await self._in_thread(_decode, chunks, low, high)
            if records:
                yield records
            if damage is not None:
                raise damage

    async def read_frames(self, first: int, last: int | None = None) -> AsyncIterator[bytes]:
        """The same as encoded ``ReadReply`` messages, checked but not decoded: what the log server sends."""
        async for chunks, low, high in self._read(first, last):
            if sum(len(chunk.data) for chunk in chunks) <= INLINE_BYTES_MAX:
                frames, damage = _cut(chunks, low, high)
            else:
                frames, damage = await self._in_thread(_cut, chunks, low, high)
            if frames:
                yield frames
            if damage is not None:
                raise damage

    async def _read(self, first: int, last: int | None) -> AsyncIterator[tuple[list[FrameChunk], int, int]]:
        """(chunks, low, high): the chunks that hold ``[low, high]``, as far as they are there."""
        check_range(first, last)
        reader = SegmentReader(self.directory)
        at, end = first, FOREVER if last is None else last
        busy: asyncio.Future[list[FrameChunk]] | None = None
        try:
            if self._writer is None:
                begin = (await self._in_thread(reader.info)).first
                if at < begin:
                    raise trimmed(at, begin)
            while at <= end:
                if self._closed:
                    raise LogUnavailable(f"the log at {self.directory.path} is closed")
                chunks = self._from_memory(at)
                if chunks is None:
                    busy = self._loop.run_in_executor(self._threads, reader.chunks, at, BATCH_BYTES)
                    chunks = await asyncio.shield(busy)
                if chunks:
                    high = min(end, chunks[-1].last)
                    yield [chunk for chunk in chunks if chunk.first <= high], at, high
                    at = high + 1
                elif self._writer is None:
                    await asyncio.sleep(POLL_SECONDS)
                else:
                    await self._news.wait()
        finally:
            if busy is not None and not busy.done():
                busy.add_done_callback(lambda _: reader.close())  # A thread still uses it.
            else:
                reader.close()

    def _from_memory(self, at: int) -> list[FrameChunk] | None:
        """What a tailing reader wants next; empty if it is not there yet, None if only the disk has it."""
        if self._writer is None:
            return None
        if at < self._standing.first:
            raise trimmed(at, self._standing.first)
        if at > self._standing.last:
            return []
        if not self._recent or at < self._recent[0].first:
            return None
        found: list[FrameChunk] = []
        for chunk in reversed(self._recent):
            if chunk.last < at:
                break
            found.append(chunk)
        found.reverse()
        room = BATCH_BYTES
        for nth, chunk in enumerate(found):
            room -= len(chunk.data)
            if room <= 0:
                return found[: nth + 1]
        return found

    async def close(self) -> None:
        """Commit what waits, end the readers, free the lock. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._wake()
        if self._writer is not None:
            await self._in_thread(self._writer.close)
        await asyncio.sleep(0)  # The last answers are on their way to the loop.
        for answer in self._waiting:
            if not answer.done():
                answer.set_exception(LogUnavailable(f"the log at {self.directory.path} is closed"))
        self._threads.shutdown(wait=False)


def _are_transactions(groups: Sequence[Sequence[NewEntry]]) -> bool:
    """Whether each group is one transaction that the log may take, as nearly all are."""
    try:
        for group in groups:
            if len(group) != 1 or group[0][3]:  # CONTROL
                return False
            check_group(group)
    except LogError:
        return False
    return True


class _Each:
    """Takes the outcomes of a request whose entries are groups of their own."""

    __slots__ = ("_count", "answer")

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self.answer: asyncio.Future[list[GroupOutcome]] = loop.create_future()
        self._count = count

    def done(self) -> bool:
        return self.answer.done()

    def set_result(self, outcomes: list[GroupOutcome], /) -> None:
        self.answer.set_result(outcomes)

    def set_exception(self, error: Exception, /) -> None:
        """All of them failed together."""
        failed = error if isinstance(error, LogError) else LogError(str(error))
        self.answer.set_result([failed] * self._count)


class _Together:
    """The outcomes of several groups; ``answer`` has them once the last one is known."""

    __slots__ = ("_missing", "_outcomes", "answer")

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self.answer: asyncio.Future[list[GroupOutcome]] = loop.create_future()
        self._outcomes: list[GroupOutcome] = [[]] * count
        self._missing = count

    def put(self, nth: int, outcome: GroupOutcome) -> None:
        self._outcomes[nth] = outcome
        self._missing -= 1
        if not self._missing and not self.answer.done():
            self.answer.set_result(self._outcomes)


class _Nth:
    """What takes the outcome of one of several groups: a ``GroupAnswer``."""

    __slots__ = ("_nth", "_together")

    def __init__(self, together: _Together, nth: int) -> None:
        self._together = together
        self._nth = nth

    def done(self) -> bool:
        return False  # It gets its result once.

    def set_result(self, indexes: list[int], /) -> None:
        self._together.put(self._nth, indexes)

    def set_exception(self, error: Exception, /) -> None:
        self._together.put(self._nth, error if isinstance(error, LogError) else LogError(str(error)))


def _decode(chunks: list[FrameChunk], low: int, high: int) -> tuple[list[Record], CorruptEntry | None]:
    """The records before the first damage, and the damage."""
    records: list[Record] = []
    try:
        for chunk in chunks:
            count = len(records)
            records.extend(decode_frames(chunk.data, chunk.first, low, high))
            expected = min(high, chunk.last) - max(low, chunk.first) + 1
            if len(records) - count != expected:
                raise corrupt(max(low, chunk.first) + len(records) - count, "it is missing from its chunk")
    except CorruptEntry as damage:
        return records, damage
    return records, None


def _cut(chunks: list[FrameChunk], low: int, high: int) -> tuple[bytes, CorruptEntry | None]:
    """The frames of ``[low, high]`` before the first damage, and the damage."""
    parts: list[bytes] = []
    for chunk in chunks:
        begin, end, wanted = -1, 0, max(low, chunk.first)
        damage: CorruptEntry | None = None
        try:
            for index, frame, _, stop in spans(chunk.data, chunk.first, low, high):
                begin, end, wanted = frame if begin < 0 else begin, stop, index + 1
            if wanted != min(high, chunk.last) + 1:
                raise corrupt(wanted, "it is missing from its chunk")
        except CorruptEntry as found:
            damage = found
        parts.append(chunk.data if (begin, end) == (0, len(chunk.data)) else chunk.data[max(begin, 0) : end])
        if damage is not None:
            return b"".join(parts), damage
    return b"".join(parts), None

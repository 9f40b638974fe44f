"""Catch-up readers: they share what they read, take small steps, and every request gets exactly one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio
from player_support import transaction, until

from logplayer.core import event
from logplayer.core.effect import ReadCatchUp
from logplayer.core.entry import Entry, Session
from logplayer.errors import LogUnavailable
from logplayer.log.file import FileLog
from logplayer.log.protocol import Kind, NewEntry, Record
from logplayer.player.catchup import STEP_ENTRIES_MAX, CatchUp, Chunk

SESSION = Session(1, 1)


class CountingLog:
    """A file log that counts how often somebody reads it, and fails on demand."""

    def __init__(self, log: FileLog) -> None:
        self._log = log
        self.reads: list[int] = []
        self.fails = False

    async def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        self.reads.append(first)
        if self.fails:
            raise LogUnavailable("not now")
        async for records in self._log.read(first, last):
            yield records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class Readers:
    """Readers on a log of 3000 entries."""

    def __init__(self, log: CountingLog, readers: int = 2) -> None:
        self.log = log
        self.told: list[event.Event] = []
        self.unroutable: list[int] = []
        self.catch_up = CatchUp(
            log, readers, 4 << 20, self.told.append, lambda index, why: self.unroutable.append(index)
        )

    def ask(self, target: str, first: int, last: int) -> None:
        self.catch_up.read(ReadCatchUp(target, SESSION, first, last, 1, 1))

    async def answers(self, count: int) -> list[event.Event]:
        await until(lambda: len(self.told) >= count, f"{count} answers")
        return self.told


@pytest_asyncio.fixture
async def log(tmp_path: Path) -> AsyncIterator[CountingLog]:
    file = await FileLog.open(tmp_path / "log")
    for start in range(0, 3000, 500):
        await file.append([NewEntry("p", nth + 1, transaction("p", nth)) for nth in range(start, start + 500)])
    yield CountingLog(file)
    await file.close()


async def test_targets_that_lag_at_the_same_place_share_one_read(log: CountingLog) -> None:
    readers = Readers(log)
    for number in range(10):
        readers.ask(f"t{number}", 1 + number, 3000)
    answers = await readers.answers(10)
    assert len(log.reads) == 1
    for answer in answers:
        assert isinstance(answer, event.CaughtUp)
        first = 1 + int(answer.target[1:])
        assert (answer.after, answer.through) == (first - 1, first - 1 + STEP_ENTRIES_MAX)
        assert [entry.index for entry in answer.entries] == list(range(first, first + STEP_ENTRIES_MAX))


async def test_steps_follow_each_other_without_a_gap_to_the_end(log: CountingLog) -> None:
    readers = Readers(log)
    covered, seen = 0, []
    while covered < 2500:
        readers.told.clear()
        readers.ask("a", covered + 1, 2500)
        [answer] = await readers.answers(1)
        assert isinstance(answer, event.CaughtUp)
        seen += [entry.index for entry in answer.entries]
        covered = answer.through
    assert covered == 2500
    assert seen == list(range(1, 2501))
    assert len(log.reads) == 1


def test_a_part_of_a_chunk_with_gaps_covers_the_gaps() -> None:
    chunk = Chunk(10, 40, [Entry(12), Entry(20), Entry(31)])
    assert chunk.part(10, 40) == (40, [Entry(12), Entry(20), Entry(31)])
    assert chunk.part(13, 25) == (25, [Entry(20)])
    assert chunk.part(32, 100) == (40, [])


async def test_trouble_is_told_and_the_next_request_reads_again(log: CountingLog) -> None:
    readers = Readers(log)
    log.fails = True
    readers.ask("a", 1, 10)
    readers.ask("b", 1, 10)
    failed = await readers.answers(2)
    assert [type(answer) for answer in failed] == [event.CatchUpFailed] * 2
    log.fails = False
    readers.told.clear()
    readers.ask("a", 1, 10)
    [answer] = await readers.answers(1)
    assert isinstance(answer, event.CaughtUp)
    assert answer.through == 10


async def test_a_trimmed_place_is_told_with_the_first_index_that_is_left(log: CountingLog) -> None:
    await log.append([NewEntry("p", 3001, bytes(1 << 20))])
    await log.trim(2000)
    readers = Readers(log)
    readers.ask("a", 5, 3000)
    [answer] = await readers.answers(1)
    assert answer == event.CatchUpTrimmed("a", SESSION, 2001)


async def test_a_control_record_that_nobody_can_read_is_told_to_whom_it_stops(log: CountingLog) -> None:
    [index] = await log.append([NewEntry("c", 1, b"\xff\xff", Kind.CONTROL)])
    readers = Readers(log)
    readers.ask("a", index - 1, index)
    [answer] = await readers.answers(1)
    assert isinstance(answer, event.CatchUpFailed)

"""Catch-up readers: they share what they read, take small steps, and every request gets exactly one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from logplayer.core import events
from logplayer.core.effects import ReadCatchUp
from logplayer.core.entry import Entry, Session
from logplayer.errors import LogUnavailable
from logplayer.log import control_chain as chain
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import Kind, NewEntry, Record
from logplayer.player.catch_up_reader import STEP_ENTRIES_MAX, CatchUp, CatchUpChunk
from tests.player.player_support import transaction, until

SESSION = Session(1, 1)


class CountingLog:
    """A file log that counts how often somebody reads it, and fails on demand."""

    def __init__(self, log: FileLog) -> None:
        self._log = log
        self.reads: list[int] = []
        self.fails = False
        self.piece = 0  # How many records come at once; 0: as the log gives them.

    async def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        self.reads.append(first)
        if self.fails:
            raise LogUnavailable("not now")
        async for records in self._log.read(first, last):
            for start in range(0, len(records), self.piece or len(records)):
                yield records[start : start + (self.piece or len(records))]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class Readers:
    """Readers on a log of 3000 entries."""

    def __init__(
        self,
        log: CountingLog,
        readers: int = 2,
        chunk_bytes: int = 4 << 20,
        values: dict[int, bytes] | None = None,
    ) -> None:
        self.log = log
        self.values = values or {}  # The chain values that the targets have.
        self.told: list[events.Event] = []
        self.catch_up = CatchUp(log, readers, chunk_bytes, self.told.append)

    def ask(self, target: str, first: int, last: int) -> None:
        self.catch_up.read(ReadCatchUp(target, SESSION, first, last, 1, 1, self.values.get(first - 1, b"")))

    async def answers(self, count: int) -> list[events.Event]:
        await until(lambda: len(self.told) >= count, f"{count} answers")
        return self.told


@pytest_asyncio.fixture
async def log(tmp_path: Path) -> AsyncIterator[CountingLog]:
    file = await FileLog.open(tmp_path / "log")
    for start in range(0, 3000, 500):
        await file.append([NewEntry("p", nth + 1, transaction("p", nth)) for nth in range(start, start + 500)])
    yield CountingLog(file)
    await file.close()


async def chain_of(log: CountingLog) -> dict[int, bytes]:
    """The log's own chain values."""
    last = (await log.info()).last
    return {record.index: record.chain async for records in log.read(1, last) for record in records}


async def test_targets_that_lag_at_the_same_place_share_one_read(log: CountingLog) -> None:
    readers = Readers(log, values=await chain_of(log))
    log.reads.clear()
    for number in range(10):
        readers.ask(f"t{number}", 1 + number, 3000)
    answers = await readers.answers(10)
    assert len(log.reads) == 1
    for answer in answers:
        assert isinstance(answer, events.CaughtUp)
        first = 1 + int(answer.target[1:])
        assert (answer.after, answer.through) == (first - 1, first - 1 + STEP_ENTRIES_MAX)
        assert [entry.index for entry in answer.entries] == list(range(first, first + STEP_ENTRIES_MAX))


async def test_steps_follow_each_other_without_a_gap_to_the_end(log: CountingLog) -> None:
    readers = Readers(log, values=await chain_of(log))
    log.reads.clear()
    covered, seen = 0, []
    while covered < 2500:
        readers.told.clear()
        readers.ask("a", covered + 1, 2500)
        [answer] = await readers.answers(1)
        assert isinstance(answer, events.CaughtUp)
        seen += [entry.index for entry in answer.entries]
        covered = answer.through
    assert covered == 2500
    assert seen == list(range(1, 2501))
    assert len(log.reads) == 1


async def test_a_chunk_cut_by_bytes_claims_only_what_was_read(log: CountingLog) -> None:
    """Else the target would be moved past entries that nobody has read for it."""
    values = await chain_of(log)
    log.piece = 20
    log.reads.clear()
    readers = Readers(log, chunk_bytes=1, values=values)
    covered, seen = 0, []
    while covered < 50:
        readers.told.clear()
        readers.ask("a", covered + 1, 50)
        [answer] = await readers.answers(1)
        assert isinstance(answer, events.CaughtUp)
        assert answer.entries[-1].index == answer.through
        seen += [entry.index for entry in answer.entries]
        covered = answer.through
    assert seen == list(range(1, 51))
    assert log.reads == [1, 21, 41]


def test_a_part_of_a_chunk_with_gaps_covers_the_gaps() -> None:
    entries = [Entry(index, chain=b"value %d" % index) for index in (12, 20, 31)]
    chunk = CatchUpChunk(10, 40, entries, b"before")
    assert chunk.part(10, 40) == (40, entries, b"before", b"value 31")
    assert chunk.part(13, 25) == (25, entries[1:2], b"value 12", b"value 20")
    assert chunk.part(32, 100) == (40, [], b"value 31", b"value 31")


async def test_a_log_that_does_not_continue_what_the_target_has_is_told(log: CountingLog) -> None:
    """Whether the entries are read for it, or kept from a read for another target."""
    values = await chain_of(log)
    readers = Readers(log, values={**values, 4: b"another!"})
    readers.ask("a", 5, 3000)
    [answer] = await readers.answers(1)
    assert isinstance(answer, events.CatchUpDiverged)
    readers.told.clear()
    readers.ask("b", 3, 3000)
    await readers.answers(1)
    readers.ask("a", 5, 3000)
    [_, answer] = await readers.answers(2)
    assert isinstance(answer, events.CatchUpDiverged)


async def test_trouble_is_told_and_the_next_request_reads_again(log: CountingLog) -> None:
    readers = Readers(log)
    log.fails = True
    readers.ask("a", 1, 10)
    readers.ask("b", 1, 10)
    failed = await readers.answers(2)
    assert [type(answer) for answer in failed] == [events.CatchUpFailed] * 2
    log.fails = False
    readers.told.clear()
    readers.ask("a", 1, 10)
    [answer] = await readers.answers(1)
    assert isinstance(answer, events.CaughtUp)
    assert answer.through == 10


async def test_a_trimmed_place_is_told_with_the_first_index_that_is_left(log: CountingLog) -> None:
    await log.append([NewEntry("p", 3001, bytes(1 << 20))])
    await log.trim(2000)
    readers = Readers(log)
    readers.ask("a", 5, 3000)
    [answer] = await readers.answers(1)
    assert answer == events.CatchUpTrimmed("a", SESSION, 2001)


async def test_decisions_are_left_to_the_main_stream(log: CountingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that nobody can read, from before the log was repaired, stops no target that catches up."""
    monkeypatch.setattr("logplayer.log.control_rules.Guard.admit", lambda *_: None)
    [index] = await log.append([NewEntry(chain.PRODUCER, 1, b"\xff\xff", Kind.CONTROL)])
    readers = Readers(log, values=await chain_of(log))
    readers.ask("a", index - 1, index)
    [answer] = await readers.answers(1)
    assert isinstance(answer, events.CaughtUp)
    assert answer.through == index

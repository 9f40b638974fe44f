"""The conformance kit for logs: what every ``Log`` must do, as checks that take a harness.

A harness makes and damages the log under test. To check your own implementation, subclass ``Harness`` and run each
check on a fresh one::

    @pytest.mark.parametrize("check", logs.CHECKS, ids=logs.name)
    async def test_my_log(check, tmp_path):
        async with MyHarness(tmp_path) as harness:
            await check(harness)

A log that is reached through a log server has ``SERVED_CHECKS`` too. A check raises AssertionError when a promise is
broken and ``NotApplicable`` when the harness cannot do what it needs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import logplayer.errors as e
from logplayer.log.protocol import ENTRY_BYTES_MAX, BadRequest, Kind, NewEntry
from logplayer.testing.conformance.log_check import AckedAppend, LogChecker, entry, payload
from logplayer.testing.conformance.logs_base import (
    CHECKS,
    SERVED_CHECKS,
    Harness,
    LogCheck,
    NotApplicable,
    check,
    collect,
    fill,
    in_time,
    name,
    opened,
    raises,
)
from logplayer.testing.conformance.logs_chain import check_chain, check_chain_after_trim
from logplayer.testing.conformance.logs_control import check_control_entries
from logplayer.testing.conformance.logs_faults import check_flipped_bit, check_full_disk, check_kill_9
from logplayer.testing.conformance.logs_producers import check_another_payload_is_refused, check_newest
from logplayer.testing.conformance.logs_versions import check_versions

__all__ = [
    "CHECKS",
    "SERVED_CHECKS",
    "Harness",
    "LogCheck",
    "NotApplicable",
    "check_another_payload_is_refused",
    "check_chain",
    "check_chain_after_trim",
    "check_control_entries",
    "check_flipped_bit",
    "check_full_disk",
    "check_kill_9",
    "check_newest",
    "check_versions",
    "collect",
    "fill",
    "in_time",
    "name",
]


@check
async def check_starts_empty(harness: Harness) -> None:
    async with opened(harness) as log:
        info = await log.info()
        assert (info.first, info.last, info.control) == (1, 0, 0)
        assert info.log_id


@check
async def check_append_and_read_back(harness: Harness) -> None:
    async with opened(harness) as log:
        indexes = await fill(log, 20)
        assert indexes == sorted(set(indexes))
        assert indexes[0] >= 1
        records = await collect(log, indexes[0], indexes[-1])
        assert [r.index for r in records] == indexes
        assert [(r.producer, r.sequence) for r in records] == [("p", s) for s in range(1, 21)]
        assert [r.payload for r in records] == [payload("p", s) for s in range(1, 21)]
        assert all(r.kind == Kind.DATA and r.committed_at_us > 0 for r in records)
        middle = await collect(log, indexes[5], indexes[9])
        assert [r.index for r in middle] == indexes[5:10]
        info = await log.info()
        assert (info.first, info.last) == (1, indexes[-1])


@check
async def check_payload_sizes(harness: Harness) -> None:
    """Empty, one byte, text that looks like frames, and the largest allowed."""
    bodies = [b"", b"x", b"\x0a\x05" * 1000, b"\x00" * 70_000, bytes(ENTRY_BYTES_MAX)]
    async with opened(harness) as log:
        indexes = [(await in_time(log.append([NewEntry("p", i + 1, b)])))[0] for i, b in enumerate(bodies)]
        assert [r.payload for r in await collect(log, indexes[0], indexes[-1])] == bodies


@check
async def check_tail_is_pushed(harness: Harness) -> None:
    """An endless reader gets what is there and then what comes, in order and once."""
    async with opened(harness) as log:
        [first, *_] = await fill(log, 5)
        seen: list[int] = []

        async def tail() -> None:
            async for records in log.read(first):
                seen.extend(r.sequence for r in records)
                if seen[-1] >= 25:
                    return

        reader = asyncio.create_task(tail())
        for sequence in range(6, 26):
            await log.append([entry("p", sequence)])
            await asyncio.sleep(0.002)
        await in_time(reader)
        assert seen == list(range(1, 26))


@check
async def check_read_waits_for_the_future(harness: Harness) -> None:
    """A bounded read whose end is not there yet waits for it and then ends."""
    async with opened(harness) as log:
        [first, second] = await fill(log, 2)
        reader = asyncio.create_task(collect(log, first, second + 2))
        await asyncio.sleep(0.05)
        assert not reader.done()
        await fill(log, 6, since=3)
        assert [r.index for r in await in_time(reader)][:2] == [first, second]


@check
async def check_retry_returns_the_first_index(harness: Harness) -> None:
    async with opened(harness) as log:
        indexes = await fill(log, 50)
        for sequence in (50, 49, 1, 25):
            assert await log.append([entry("p", sequence)]) == [indexes[sequence - 1]]
        assert (await log.info()).last == indexes[-1]
    async with opened(harness) as log:
        for sequence in (1, 50, 30):
            assert await log.append([entry("p", sequence)]) == [indexes[sequence - 1]]
        assert await fill(log, 1, since=51) == [(await log.info()).last]


@check
async def check_retry_after_trim(harness: Harness) -> None:
    """For as long as the log lives, not for a window: also what was trimmed keeps its answer."""
    async with opened(harness) as log:
        indexes: dict[tuple[str, int], int] = {}
        for sequence in range(1, 31):
            group = [entry(p, sequence) for p in ("a", "b", "c")]
            for made, index in zip(group, await log.append(group), strict=True):
                indexes[made.producer, made.sequence] = index
        await log.trim(indexes["c", 20])
        await log.trim(indexes["c", 30])
        [later] = await log.append([entry("a", 31)])
        for key in (("a", 1), ("b", 17), ("c", 20), ("c", 30)):
            assert await log.append([entry(*key)]) == [indexes[key]]
    async with opened(harness) as log:
        for key in (("a", 1), ("b", 17), ("c", 20), ("c", 30)):
            assert await log.append([entry(*key)]) == [indexes[key]]
        assert (await log.info()).last == later
        assert await log.append([entry("b", 31)]) > [later]


@check
async def check_sequence_gap_is_refused(harness: Harness) -> None:
    async with opened(harness) as log:
        await fill(log, 3)
        for sequence in (5, 1000):
            with raises(e.SequenceGap) as caught:
                await log.append([entry("p", sequence)])
            assert "'p'" in str(caught[0])
            assert "send 4 next" in str(caught[0])
        with raises(e.SequenceGap):
            await log.append([entry("newcomer", 2)])
        assert (await log.info()).last == 3 or (await collect(log, 1, (await log.info()).last))[-1].sequence == 3
        await fill(log, 1, since=4)


@check
async def check_group_is_atomic(harness: Harness) -> None:
    """A group gets rising indexes and is appended as a whole; a gap anywhere in it appends nothing."""
    async with opened(harness) as log:
        group = [entry("a", 1), entry("b", 1), entry("a", 2), entry("a", 3)]
        indexes = await in_time(log.append(group))
        assert indexes == sorted(set(indexes))
        assert await in_time(log.append(group)) == indexes
        before = await log.info()
        with raises(e.SequenceGap):
            await log.append([entry("a", 4), entry("b", 3)])
        with raises(e.SequenceGap) as caught:
            await log.append([entry("a", 4), entry("a", 5), entry("a", 7)])
        assert "send 4 next" in str(caught[0])
        assert isinstance(caught[0], e.SequenceGap)
        assert caught[0].newest == 3
        assert (await log.info()).last == before.last
        again = await in_time(log.append([entry("a", 3), entry("a", 4)]))
        assert again[0] == indexes[3]
        records = await collect(log, indexes[0], again[1])
        assert [(r.producer, r.sequence) for r in records] == [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("a", 4)]
        many = [entry("m", s, 50) for s in range(1, 501)]
        indexes = await in_time(log.append(many))
        assert [r.sequence for r in await collect(log, indexes[0], indexes[-1])] == list(range(1, 501))


@check
async def check_bad_appends_are_refused(harness: Harness) -> None:
    async with opened(harness) as log:
        with raises(e.EntryTooLarge) as caught:
            await log.append([NewEntry("p", 1, bytes(ENTRY_BYTES_MAX + 1))])
        assert str(ENTRY_BYTES_MAX) in str(caught[0])
        for bad in ([], [NewEntry("", 1, b"")], [NewEntry("p", 0, b"")], [NewEntry("x" * 300, 1, b"")]):
            with raises(BadRequest):
                await log.append(bad)
        for name in ("\ud800", "p\udfff", "two\nlines", b"p", 7, None, ["p"]):
            nobody: Any = name  # Not text, or text that UTF-8 cannot write.
            for entries in ([NewEntry(nobody, 1, b"")], [NewEntry("p", 1, b""), NewEntry(nobody, 1, b"")]):
                with raises(BadRequest):
                    await log.append(entries)
            with raises(BadRequest):
                await log.newest(nobody)
        with raises(BadRequest):
            await collect(log, 0, 5)
        assert (await log.info()).last == 0
        await fill(log, 1)


@check
async def check_trim(harness: Harness) -> None:
    async with opened(harness) as log:
        indexes = await fill(log, 30)
        await log.trim(indexes[9])
        assert (await log.info()).first == indexes[9] + 1
        with raises(e.Trimmed) as caught:
            await collect(log, indexes[0], indexes[-1])
        assert isinstance(caught[0], e.Trimmed)
        assert caught[0].first == indexes[9] + 1
        assert [r.index for r in await collect(log, indexes[10], indexes[-1])] == indexes[10:]
    async with opened(harness) as log:
        assert (await log.info()).first == indexes[9] + 1
        with raises(e.Trimmed):
            await collect(log, indexes[9], indexes[-1])
        await log.trim(indexes[4])
        assert (await log.info()).first == indexes[9] + 1
        with raises(BadRequest):
            await log.trim(indexes[-1] + 1)
        await log.trim(indexes[-1])
        info = await log.info()
        assert (info.first, info.last) == (indexes[-1] + 1, indexes[-1])
    async with opened(harness) as log:
        info = await log.info()
        assert (info.first, info.last) == (indexes[-1] + 1, indexes[-1])
        [next_] = await fill(log, 1, since=31)
        assert next_ > indexes[-1]
        assert [r.sequence for r in await collect(log, info.first, next_)] == [31]


@check
async def check_reopen(harness: Harness) -> None:
    watcher = LogChecker()
    ids = set()
    for round_ in range(3):
        async with opened(harness) as log:
            ids.add((await log.info()).log_id)
            indexes = await fill(log, 10, since=1 + 10 * round_)
            watcher.acknowledge(AckedAppend("p", 10 * round_ + 1 + i, index) for i, index in enumerate(indexes))
            await watcher.catch_up(log)
    assert watcher.count == 30
    assert len(ids) == 1, "the log's id changed when it was opened again"


@check
async def check_concurrent_producers_and_readers(harness: Harness) -> None:
    async with opened(harness) as log:
        watchers = [LogChecker() for _ in range(4)]
        [first] = await fill(log, 1, "warm")

        async def produce(producer: str) -> list[AckedAppend]:
            return [AckedAppend(producer, s, (await log.append([entry(producer, s)]))[0]) for s in range(1, 41)]

        async def follow(watcher: LogChecker) -> None:
            async for records in log.read(first):
                watcher.see(records)
                if watcher.count == 401:
                    return

        readers = [asyncio.create_task(follow(watcher)) for watcher in watchers]
        acked = await in_time(asyncio.gather(*(produce(f"p{i}") for i in range(10))))
        await in_time(asyncio.gather(*readers))
        for watcher in watchers:
            for acks in acked:
                watcher.acknowledge(acks)
            await watcher.catch_up(log)


@check
async def check_concurrent_appends_keep_their_order(harness: Harness) -> None:
    """Callers that share a producer and do not wait for each other: their calls are applied in the order made."""
    async with opened(harness) as log:
        calls: list[list[NewEntry]] = []
        for turn in range(60):
            calls += [[entry("a", 2 * turn + 1)], [entry("b", turn + 1), entry("c", turn + 1)]]
            calls += [[entry("a", 2 * turn + 2, 20_000)], [entry("c", turn + 1)]]
        answers = await in_time(asyncio.gather(*(log.append(group) for group in calls)))
        indexes: dict[tuple[str, int], int] = {}
        for group, answer in zip(calls, answers, strict=True):
            for made, index in zip(group, answer, strict=True):
                assert indexes.setdefault((made.producer, made.sequence), index) == index
        for producer, count in (("a", 120), ("b", 60), ("c", 60)):
            of_one = [indexes[producer, sequence] for sequence in range(1, count + 1)]
            assert of_one == sorted(set(of_one))
        records = await collect(log, 1, max(indexes.values()))
        assert {(r.producer, r.sequence): r.index for r in records} == indexes

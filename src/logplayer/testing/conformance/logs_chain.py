"""The log kit's checks of the chain: every entry carries the value over all before it, and ``info`` has both ends."""

from __future__ import annotations

import asyncio

import logplayer.errors as e
from logplayer.core.entry import Takeover
from logplayer.log.chain import chain_at
from logplayer.log.protocol import History, Info, Locked, Log, NewEntry
from logplayer.testing.conformance.log_check import LogChecker, chain_value, entry
from logplayer.testing.conformance.logs_base import Harness, check, collect, fill, in_time, opened, raises
from logplayer.testing.conformance.logs_control import decide

OTHER = b"another!"  # Eight bytes, as a chain value has.


async def values_of(log: Log, before: bytes = b"") -> tuple[Info, dict[int, bytes]]:
    """What the log must have: its chain values as they are computed here, from the first entry that it still has on."""
    info = await in_time(log.info())
    values = {info.first - 1: before}
    for record in await collect(log, info.first, info.last) if info.last >= info.first else []:
        before = values[record.index] = chain_value(before, record)
        assert record.chain == before, f"entry {record.index} has chain value {record.chain.hex()}, not {before.hex()}"
    return info, values


async def prove(log: Log, trimmed: bytes = b"") -> dict[int, bytes]:
    """The log's chain holds from end to end, and ``info`` says so."""
    info, values = await values_of(log, trimmed)
    assert info.trimmed_chain == trimmed, f"the chain value before {info.first} is {info.trimmed_chain.hex() or 'none'}"
    assert info.chain == values[max(values)], f"the chain value at {info.last} is {info.chain.hex() or 'none'}"
    return values


@check
async def check_chain(harness: Harness) -> None:
    """Single entries, groups, several producers, the kinds, odd payloads; and the same after it was opened again."""
    async with opened(harness) as log:
        assert await prove(log) == {0: b""}
        await fill(log, 3)
        await prove(log)
        group = [
            entry("a", 1),
            entry("bücher", 1),
            entry("a", 2),
            NewEntry("a", 3, b""),
            NewEntry("a", 4, bytes(70_000)),
        ]
        await in_time(log.append(group))
        await in_time(asyncio.gather(*(log.append([entry(f"p{n % 5}", 1 + n // 5)]) for n in range(50))))
        before = await prove(log)
    async with opened(harness) as log:
        assert await prove(log) == before
        await decide(log, Takeover("", "one"))
        [last] = await fill(log, 1, since=4)
        values = await prove(log)
        assert {index: values[index] for index in before} == before
        for index in (0, 1, last - 1, last):  # An index without an entry has the value of the last one before it.
            expected = values[max(known for known in values if known <= index)]
            assert await in_time(chain_at(log, index)) == expected
        assert await in_time(chain_at(log, last + 1)) is None


@check
async def check_chain_of_retries(harness: Harness) -> None:
    """What is not appended leaves the chain as it is: a retry, a refused group."""
    async with opened(harness) as log:
        await fill(log, 10)
        values = await prove(log)
        for sequence in (10, 1, 5):
            await in_time(log.append([entry("p", sequence)]))
        await in_time(log.append([entry("p", sequence) for sequence in range(1, 11)]))
        with raises(e.SequenceGap):
            await log.append([entry("p", 11), entry("p", 13)])
        with raises(e.ProducerConflict):
            await log.append([entry("p", 11), NewEntry("p", 3, b"other")])
        assert await prove(log) == values
        await in_time(log.append([entry("p", 9), entry("p", 10), entry("p", 11)]))
        assert len(await prove(log)) == len(values) + 1


@check
async def check_chain_after_trim(harness: Harness) -> None:
    """The value at the trim point outlives its entry: after a restart, and if nothing is left to read."""
    async with opened(harness) as log:
        indexes = await fill(log, 10)
        indexes += await in_time(log.append([entry("q", sequence) for sequence in range(1, 21)]))
        values = await prove(log)
        for up_to in (indexes[4], indexes[14], indexes[20]):  # Among single entries, and within a group.
            await in_time(log.trim(up_to))
            await prove(log, values[up_to])
    async with opened(harness) as log:
        await prove(log, values[indexes[20]])
        indexes += await fill(log, 1, since=11)
        values |= await prove(log, values[indexes[20]])
        await in_time(log.trim(indexes[-1]))
        assert await prove(log, values[indexes[-1]]) == {(await log.info()).last: values[indexes[-1]]}
    async with opened(harness) as log:
        await prove(log, values[indexes[-1]])
        indexes += await fill(log, 1, since=12)
        after = await prove(log, values[indexes[-2]])
        assert len(after) == 2
    async with opened(harness) as log:
        assert await prove(log, values[indexes[-2]]) == after


@check
async def check_chain_over_segments(harness: Harness) -> None:
    """Enough for several segments or blocks: the chain goes on from one to the next, also where they are trimmed."""
    async with opened(harness) as log:
        indexes: list[int] = []
        for turn in range(6):
            indexes += await in_time(log.append([entry("p", turn * 500 + nth, 100) for nth in range(1, 501)]))
        values = await prove(log)
    async with opened(harness) as log:
        assert await prove(log) == values
        for up_to in (indexes[700], indexes[2300]):
            await in_time(log.trim(up_to))
            await prove(log, values[up_to])
            await in_time(log.append([entry("q", 1 + (up_to == indexes[2300]))]))
        values |= await prove(log, values[indexes[2300]])
    async with opened(harness) as log:
        assert await in_time(chain_at(log, indexes[2300])) == values[indexes[2300]]
        assert await in_time(chain_at(log, indexes[2299])) is None
        await prove(log, values[indexes[2300]])


@check
async def check_trim_of_another_history(harness: Harness) -> None:
    """Whoever trims says which history is meant; if the log has another one, nothing is forgotten."""
    async with opened(harness) as log:
        indexes = await fill(log, 20)
        values = await prove(log)
        last = indexes[-1]
        wrong = (History(last, OTHER), History(indexes[5], OTHER), History(indexes[5], values[indexes[6]]))
        for history in (*wrong, History(last, b""), History(last + 5, values[last]), History(indexes[5], values[last])):
            for up_to in (indexes[3], last):
                with raises(e.LogDiverged) as caught:
                    await in_time(log.trim(up_to, history))
                assert isinstance(caught[0], e.LogDiverged)
                assert caught[0].index == history.index
        assert await prove(log) == values
        assert await in_time(log.trim(indexes[3], History(last, values[last]))) == indexes[3]
        await prove(log, values[indexes[3]])
        assert await in_time(log.trim(indexes[8], History(indexes[8], values[indexes[8]]))) == indexes[8]
        assert await in_time(log.trim(indexes[9], History(indexes[8], values[indexes[8]]))) == indexes[9]
        overtaken = History(indexes[4], values[indexes[4]])
        assert await in_time(log.trim(indexes[4], overtaken)) == indexes[9]
    async with opened(harness) as log:
        for history in (History(indexes[9], OTHER), History(last, OTHER)):
            with raises(e.LogDiverged):
                await in_time(log.trim(last, history))
        await prove(log, values[indexes[9]])
        assert await in_time(log.trim(last, History(last, values[last]))) == last
        with raises(e.LogDiverged):
            await in_time(log.trim(last, History(last, OTHER)))
        assert await in_time(log.trim(last, History(last, values[last]))) == last
        await prove(log, values[last])


@check
async def check_chain_of_two_writers(harness: Harness) -> None:
    """Two that write at once keep one chain; or one is refused; or the log says that it cannot tell them apart."""
    async with opened(harness) as log:
        if (await log.info()).unfenced:
            return
        try:
            other = await in_time(harness.open())
        except Locked:
            return
        try:
            await in_time(asyncio.gather(_append(log, "a", 60), _append(other, "b", 60)))
            values = await prove(log)
            assert len(values) == 121
            assert await prove(other) == values
            watcher = LogChecker()
            await watcher.catch_up(other)
            assert watcher.newest == {"a": 60, "b": 60}
        finally:
            await other.close()


async def _append(log: Log, producer: str, count: int) -> None:
    """Single entries and small groups, in turns."""
    sequence = 1
    while sequence <= count:
        size = 1 + sequence % 3
        group = [entry(producer, s) for s in range(sequence, min(count, sequence + size - 1) + 1)]
        await log.append(group)
        sequence += size

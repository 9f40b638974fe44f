"""The log kit's checks of what a log knows about producers: where each goes on, and who took another one's name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import logplayer.errors as e
from logplayer.log.protocol import BadRequest, Log, NewEntry
from logplayer.testing.conformance.log_check import entry
from logplayer.testing.conformance.logs_base import Harness, check, fill, in_time, opened, raises


@check
async def check_newest(harness: Harness) -> None:
    """A producer that starts again learns where it goes on, also from a log that forgot its entries."""
    async with opened(harness) as log:
        assert await in_time(log.newest("p")) == (0, 0)
        p = await fill(log, 20)
        [q] = await fill(log, 1, "q")
        assert await in_time(log.newest("p")) == (20, p[-1])
        assert await in_time(log.newest("q")) == (1, q)
        assert await in_time(log.newest("nobody")) == (0, 0)
        for bad in ("", "x" * 300):
            with raises(BadRequest):
                await log.newest(bad)
    async with opened(harness) as log:
        assert await in_time(log.newest("p")) == (20, p[-1])
        await log.trim(q)
        p += await fill(log, 1, since=21)
        assert await in_time(log.newest("p")) == (21, p[-1])
        assert await in_time(log.newest("q")) == (1, q)
    async with opened(harness) as log:
        assert await in_time(log.newest("p")) == (21, p[-1])
        assert await in_time(log.newest("q")) == (1, q)
        waiting = [asyncio.ensure_future(log.append([entry("p", sequence)])) for sequence in range(22, 32)]
        await in_time(asyncio.gather(*waiting))
        assert await in_time(log.newest("p")) == (31, (await waiting[-1])[0])


@check
async def check_another_payload_is_refused(harness: Harness) -> None:
    """Two that use one producer's name: whoever comes second is refused, for as long as the log lives."""
    indexes: dict[tuple[str, int], int] = {}
    keys = [(producer, sequence) for sequence in (1, 2, 17, 29, 30) for producer in ("a", "b")]
    async with opened(harness) as log:
        for sequence in range(1, 31):
            group = [entry(producer, sequence) for producer in ("a", "b")]
            for made, index in zip(group, await in_time(log.append(group)), strict=True):
                indexes[made.producer, made.sequence] = index
        await _refuses(log, indexes, keys)
    async with opened(harness) as log:
        await _refuses(log, indexes, keys)
        await log.trim(indexes["b", 20])
        await _refuses(log, indexes, keys)
        await log.trim(indexes["b", 30])
        await fill(log, 1, "c")
        await _refuses(log, indexes, keys)
    async with opened(harness) as log:
        await _refuses(log, indexes, keys)
        await _race(log, indexes)


async def _refuses(log: Log, indexes: dict[tuple[str, int], int], keys: Iterable[tuple[str, int]]) -> None:
    """Another payload is refused, alone or in a group; the same one gets its index."""
    last = (await log.info()).last
    for producer, sequence in keys:
        other, new = NewEntry(producer, sequence, b"other"), entry("new", 1)
        for group in ([other], [new, other], [entry(producer, sequence), other]):
            with raises(e.ProducerConflict) as caught:
                await in_time(log.append(group))
            newest, newest_index = await log.newest(producer)
            found = {"index": indexes[producer, sequence], "producer": producer, "sequence": sequence}
            found |= {"newest": newest, "newest_index": newest_index}
            assert vars(caught[0]) == found, f"{vars(caught[0])} instead of {found}"
        assert await in_time(log.append([entry(producer, sequence)])) == [indexes[producer, sequence]]
    assert (await log.info()).last == last, "a refused group left something in the log"


async def _race(log: Log, indexes: dict[tuple[str, int], int]) -> None:
    """Neither waits for the other: for each sequence one is appended and the other refused."""
    with raises(e.ProducerConflict):
        await in_time(log.append([NewEntry("a", 31, b"one"), NewEntry("a", 31, b"two")]))
    assert (await log.newest("a")).sequence == 30
    calls = [log.append([NewEntry("a", 31 + n, payload)]) for n in range(20) for payload in (b"one", b"two")]
    answers = await in_time(asyncio.gather(*calls, return_exceptions=True))
    for first, second in zip(answers[::2], answers[1::2], strict=True):
        assert isinstance(first, list), first
        assert isinstance(second, e.ProducerConflict), second
        assert [second.index] == first

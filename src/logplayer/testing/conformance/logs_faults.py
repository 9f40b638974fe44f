"""The log kit's checks that hurt the log: kills, a flipped bit, a full disk."""

from __future__ import annotations

import logplayer.errors as e
from logplayer.log.protocol import Log, Record
from logplayer.testing.conformance.log_check import AckedAppend, LogChecker, entry, payload
from logplayer.testing.conformance.logs_base import Harness, check, collect, fill, in_time, opened


@check
async def check_kill_9(harness: Harness) -> None:
    """No acknowledged entry is lost, none is there twice, none is out of order."""
    watcher = LogChecker()
    for _ in range(2):
        watcher.acknowledge(await harness.crash_under_load(dict(watcher.newest)))
        async with opened(harness) as log:
            await in_time(watcher.catch_up(log))
    assert watcher.acked, "nothing was acknowledged before the kill: the check saw nothing"


@check
async def check_flipped_bit(harness: Harness) -> None:
    """A damaged entry is named by its index, or read from another copy; the damaged bytes are never served."""
    async with opened(harness) as log:
        indexes = await fill(log, 20, size=2000)
    healed = await harness.flip_bit(indexes[11])
    async with opened(harness) as log:
        served: list[Record] = []
        damage = await _collect_into(log, indexes[0], indexes[-1], served)
        assert all(r.payload == payload("p", r.sequence, 2000) for r in served), "damaged bytes were served"
        if healed:
            assert damage is None, f"another copy was there: {damage}"
            assert [r.index for r in served] == indexes
            return
        assert damage is not None, "the flipped bit went unseen"
        assert damage.index == indexes[11]
        assert [r.index for r in served] == indexes[:11]
        assert [r.index for r in await collect(log, indexes[12], indexes[-1])] == indexes[12:]


async def _collect_into(log: Log, first: int, last: int, out: list[Record]) -> e.CorruptEntry | None:
    async def run() -> None:
        async for records in log.read(first, last):
            out.extend(records)

    try:
        await in_time(run())
    except e.CorruptEntry as damage:
        return damage
    return None


@check
async def check_full_disk(harness: Harness) -> None:
    """A clear error, nothing lost, and appends go on once there is room."""
    async with opened(harness) as log:
        watcher = LogChecker(20_000)
        sequence = 1
        for sequence in range(1, 11):
            [index] = await in_time(log.append([entry("p", sequence, 20_000)]))
            watcher.acknowledge([AckedAppend("p", sequence, index)])
        await harness.fill_disk()
        full: list[Exception] = []
        for sequence in range(11, 4000):
            try:
                [index] = await in_time(log.append([entry("p", sequence, 20_000)]))
            except e.LogFull as error:
                full.append(error)
                break
            watcher.acknowledge([AckedAppend("p", sequence, index)])
        assert full, "the disk was filled and no append failed"
        await watcher.catch_up(log)
        await harness.free_disk()
        for retried in range(sequence, sequence + 10):
            [index] = await in_time(log.append([entry("p", retried, 20_000)]))
            watcher.acknowledge([AckedAppend("p", retried, index)])
        await watcher.catch_up(log)
    async with opened(harness) as log:
        await watcher.prove_all(log)

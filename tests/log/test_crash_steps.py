"""``kill -9`` at each numbered step of docs/log.md, in a process of its own: nothing lost, twice or out of order."""

from __future__ import annotations

from pathlib import Path

import pytest

from logplayer.log.file.directory import Directory
from logplayer.log.file.log import FileLog
from logplayer.testing.conformance.log_check import LogChecker
from logplayer.testing.conformance.log_harness import LogChild

APPEND_STEPS = ["before-begin", "rows-written", "committed", "answered"]
SEGMENT_STEPS = ["segment-written", "segment-renamed"]
TRIM_STEPS = ["trim-marked", "history-written", "segment-unlinked"]
SEGMENT_BYTES = "20000"


@pytest.mark.parametrize("step", APPEND_STEPS + SEGMENT_STEPS)
@pytest.mark.parametrize("nth", [1, 7])
async def test_crash_at_step(step: str, nth: int, tmp_path: Path) -> None:
    """The first time and a later time the step is taken; then again from the state that the crash left."""
    watcher = LogChecker()
    for _ in range(2):
        options = ("--segment-bytes", SEGMENT_BYTES, "--crash-at", f"{step}:{nth}")
        child = await LogChild.start(f"file://{tmp_path}/log", *options, newest=watcher.newest)
        watcher.acknowledge(await child.wait())
        assert child.process.returncode == -9, "the step was never taken"
        log = await FileLog.open(tmp_path / "log")
        await watcher.catch_up(log)
        await log.close()


@pytest.mark.parametrize("step", TRIM_STEPS)
async def test_crash_while_trimming(step: str, tmp_path: Path) -> None:
    """A trim is whole after recovery: what is left is readable, and what was trimmed still answers."""
    options = ("--segment-bytes", SEGMENT_BYTES, "--crash-at", step, "--trim-every", "200")
    child = await LogChild.start(f"file://{tmp_path}/log", *options)
    acked = await child.wait()
    assert child.process.returncode == -9, "the step was never taken"
    log = await FileLog.open(tmp_path / "log")
    info = await log.info()
    assert info.first > 1
    firsts = Directory(tmp_path / "log").segments()
    assert len(firsts) == 1 or firsts[1] > info.first, "a trimmed segment was left behind"
    read = [r async for records in log.read(info.first, info.last) for r in records]
    assert [r.index for r in read] == list(range(info.first, info.last + 1))
    for producer, sequence, index in acked[:: max(1, len(acked) // 50)]:
        from logplayer.testing.conformance.log_check import entry

        assert await log.append([entry(producer, sequence)]) == [index]
    await log.close()


async def test_crash_with_groups(tmp_path: Path) -> None:
    """A group is there as a whole or not at all, wherever the kill comes."""
    for step in ("rows-written:5", "committed:5"):
        path = tmp_path / step
        options = ("--group", "10", "--crash-at", step)
        child = await LogChild.start(f"file://{path}", *options)
        watcher = LogChecker()
        watcher.acknowledge(await child.wait())
        log = await FileLog.open(path)
        await watcher.catch_up(log)
        assert all(newest % 10 == 0 for newest in watcher.newest.values()), watcher.newest
        await log.close()


async def test_fifteen_kills_at_any_moment(tmp_path: Path) -> None:
    """The short form of the campaign in tools/soak."""
    watcher = LogChecker()
    for round_ in range(15):
        options = ("--segment-bytes", "60000", "--producers", "8")
        child = await LogChild.start(f"file://{tmp_path}/log", *options, newest=watcher.newest)
        await child.read_acks(20 + 37 * round_ % 200)
        watcher.acknowledge(await child.kill())
        log = await FileLog.open(tmp_path / "log")
        await watcher.catch_up(log)
        await log.close()
    assert len(watcher.acked) > 15 * 20

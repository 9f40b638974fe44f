"""Shared by the tests of backups: the commands as processes, producers at work, logs in small segments."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from logplayer.log.file.log import FileLog
from logplayer.log.protocol import Log, Record
from logplayer.testing.conformance.log_check import AckedAppend, entry
from logplayer.testing.conformance.log_harness import produce

SEGMENT = 20_000
PATIENCE = 120.0


async def run(*arguments: str, code: int = 0) -> tuple[str, str]:
    """A ``log`` verb in a process of its own: what it printed and what it complained about."""
    command = (sys.executable, "-m", "logplayer.cli", "log", *arguments)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, errors = (text.decode() for text in await asyncio.wait_for(process.communicate(), PATIENCE))
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    return out, errors


async def everything(log: Log) -> list[Record]:
    info = await log.info()
    found: list[Record] = []
    if info.first <= info.last:
        async for records in log.read(info.first, info.last):
            found += records
    return found


@asynccontextmanager
async def opened(path: Path, **how: int) -> AsyncIterator[FileLog]:
    log = await FileLog.open(path, segment_bytes=how.get("segment_bytes", SEGMENT))
    try:
        yield log
    finally:
        await log.close()


async def fill(log: Log, producer: str, first: int, last: int) -> None:
    for sequence in range(first, last + 1):
        await log.append([entry(producer, sequence)])


@asynccontextmanager
async def producing(log: Log, count: int = 3) -> AsyncIterator[list[AckedAppend]]:
    """Producers append while the body runs; gives what was acknowledged."""
    acked: list[AckedAppend] = []
    tasks = [asyncio.create_task(produce(log, f"p{i}", 0, acked)) for i in range(count)]
    try:
        await grown(acked, 50)
        yield acked
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def grown(acked: list[AckedAppend], count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(acked) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def filled(path: Path, count: int = 200) -> None:
    async with opened(path) as log:
        await fill(log, "p", 1, count)

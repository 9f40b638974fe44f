"""A full etcd is full only until somebody makes room, whoever that is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from logplayer.errors import LogFull
from logplayer.log import control_chain as chain
from logplayer.log.etcd.log import EtcdLog
from logplayer.testing.conformance.log_check import entry
from logplayer.testing.conformance.logs import in_time
from tests.log.etcd_servers import one_etcd

ENTRY_BYTES = 100_000
PAUSE_SECONDS = 0.2
STEADY = 10  # Refusals in a row: what the server has not shown yet is counted with a margin, which goes.
TRIES = 200


@pytest.fixture
def where(tmp_path: Path) -> Iterator[str]:
    with one_etcd(tmp_path, quota_backend_bytes=str(32 * 1024**2)) as port:
        yield f"127.0.0.1:{port}"


async def opened(where: str) -> EtcdLog:
    return await in_time(EtcdLog.open([where], "full"))


async def fill_up(log: EtcdLog) -> int:
    """Append until it is refused for good; the last index."""
    last = refused = 0
    while refused < STEADY:
        try:
            [last] = await in_time(log.append([entry("p", last + 1, ENTRY_BYTES)]))
            refused = 0
        except LogFull:
            refused += 1
            await asyncio.sleep(PAUSE_SECONDS)
    assert last > 50
    assert not await log.engine.keeper.is_alarmed()
    return last


async def append_soon(log: EtcdLog, last: int) -> int:
    """As a client does that waits for room; how often it was refused."""
    for refused in range(TRIES):
        try:
            assert await in_time(log.append([entry("p", last + 1, ENTRY_BYTES)])) == [last + 1]
            return refused
        except LogFull:
            await asyncio.sleep(PAUSE_SECONDS)
    raise AssertionError(f"still full after {TRIES} tries")


async def nothing() -> None:
    """In place of what a trim does after its entries are deleted."""


@pytest.mark.parametrize(
    ("tidy", "again"),
    [(True, False), (False, False), (False, True)],
    ids=["closed", "killed", "killed-and-opened-again"],
)
async def test_another_process_trims(where: str, tidy: bool, again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``logplayer log trim`` does; also if it dies before it has compacted, and if the writer was opened again."""
    writer = await opened(where)
    last = await fill_up(writer)
    other = await opened(where)
    if not tidy:  # It is gone before it compacts anything.
        monkeypatch.setattr(other.engine.keeper, "trimmed", nothing)
    assert (await in_time(chain.trim(other, last - 10)))[0] == last - 10
    await other.close()
    if again:
        await writer.close()
        writer = await opened(where)
    await append_soon(writer, last)
    for more in range(last + 2, last + 30):
        await in_time(writer.append([entry("p", more, ENTRY_BYTES)]))
    assert not await writer.engine.keeper.is_alarmed()
    await writer.close()


async def test_a_compaction_takes_little_room(where: str) -> None:
    """The store is more than half full, and etcd writes again what it compacts: all at once would raise the alarm."""
    log = await opened(where)
    keeper = log.engine.keeper
    for sequence in range(1, 181):
        await in_time(log.append([entry("p", sequence, ENTRY_BYTES)]))
    while keeper._since:  # noqa: ASYNC110
        await asyncio.sleep(PAUSE_SECONDS)
    await in_time(log.trim(10))
    while keeper._due:  # noqa: ASYNC110
        await asyncio.sleep(PAUSE_SECONDS)
    room = await in_time(keeper.settle())
    assert room.file < room.limit
    assert not await keeper.is_alarmed()
    assert not keeper.counts.defragmentations.count
    assert await in_time(log.append([entry("p", 181)])) == [181]
    await log.close()

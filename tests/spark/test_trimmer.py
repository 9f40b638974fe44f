"""The driver of several groups trims what every member has, and no unroutable entry."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from logplayer.core.entry import Checkpoint, HashMap, Takeover, TargetAdded, TargetRemoved
from logplayer.errors import LogDiverged
from logplayer.log import control_chain as chain
from logplayer.log.chain import chain_at
from logplayer.log.file.log import FileLog
from logplayer.log.protocol import History, NewEntry
from logplayer.spark.resident import trimmer
from logplayer.spark.resident.trimmer import Trimmer
from logplayer.wire.entries import encode_mutation

pytestmark = pytest.mark.asyncio
SEATS = (("a", "tcp://127.0.0.1:1"), ("b", "tcp://127.0.0.1:2"))


@pytest_asyncio.fixture
async def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FileLog]:
    monkeypatch.setattr(trimmer, "TRIM_ENTRIES_MIN", 10)
    opened = await FileLog.open(tmp_path / "wal")
    await chain.append(opened, Takeover("", "p"), HashMap(("a", "b")), SEATS)
    yield opened
    await opened.close()


async def append(log: FileLog, producer: str, count: int, target: str = "") -> int:
    entries = [NewEntry(producer, n, encode_mutation(b"%d" % n, b"v", target).encoded) for n in range(1, count + 1)]
    return (await log.append(entries))[-1]


async def first(log: FileLog) -> int:
    return (await log.info()).first


async def test_it_trims_what_every_member_has(log: FileLog) -> None:
    last = await append(log, "p", 40)
    await chain.append(log, Checkpoint(), None)
    assert await Trimmer(log, None).trim({"a": last, "b": 25}, {"a", "b"}) == 25
    assert await first(log) == 26


async def test_it_trims_only_the_history_that_the_groups_have_read(log: FileLog) -> None:
    """The log may have been restored from an older backup under groups that have not noticed yet."""
    last = await append(log, "p", 40)
    await chain.append(log, Checkpoint(), None)
    have = {"a": last, "b": last}
    right = [History(index, await chain_at(log, index) or b"") for index in (last, 30)]
    driver = Trimmer(log, None)
    with pytest.raises(LogDiverged):
        await driver.trim(have, {"a", "b"}, [right[0], History(30, b"another!")])
    assert await first(log) == 1
    assert await driver.trim(have, {"a", "b"}, right) == 30  # One group has read no further.


async def test_a_member_that_was_not_heard_of_holds_everything(log: FileLog) -> None:
    last = await append(log, "p", 40)
    await chain.append(log, Checkpoint(), None)
    driver = Trimmer(log, None)
    assert await driver.trim({"a": last}, {"a", "b"}) == 0
    assert await driver.trim({}, set()) == 0
    assert await first(log) == 1


async def test_a_little_is_not_worth_it(log: FileLog) -> None:
    await append(log, "p", 40)
    assert await Trimmer(log, None).trim({"a": 9, "b": 9}, {"a", "b"}) == 0


async def test_the_newest_control_record_stays_and_is_repeated_further_on(
    log: FileLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = await append(log, "p", 40)
    assert (await log.info()).control == 1
    driver = Trimmer(log, None)
    assert await driver.trim({"a": last, "b": last}, {"a", "b"}) == 0  # In the way, and too near to be repeated.
    assert (await chain.load(log)).index == 1
    monkeypatch.setattr(chain, "CHECKPOINT_ENTRIES", 20)
    assert await driver.trim({"a": last, "b": last}, {"a", "b"}) == last
    head = await chain.load(log)
    assert (head.index, set(head.control(None).members)) == (last + 1, {"a", "b"})


async def test_an_entry_that_reached_nobody_stays_also_after_a_restart(log: FileLog) -> None:
    await append(log, "p", 20)
    lost = await append(log, "typo", 1, "ghost")
    last = await append(log, "q", 40)
    await chain.append(log, Checkpoint(), None)
    have = {"a": last, "b": last}
    driver = Trimmer(log, None)
    assert await driver.trim(have, {"a", "b"}) == lost - 1
    for again in (driver, Trimmer(log, None)):
        assert await again.trim(have, {"a", "b"}) == 0
        assert await first(log) == lost
    index, _ = await chain.append(log, TargetAdded("ghost", lost - 1, "tcp://127.0.0.1:3"), None)
    assert await driver.trim({**have, "ghost": lost - 1}, {"a", "b", "ghost"}) == 0
    await chain.append(log, Checkpoint(), None)
    assert await driver.trim({"a": index, "b": index, "ghost": index}, {"a", "b", "ghost"}) == index


async def test_a_member_that_was_removed_does_not_hold_what_was_for_it(log: FileLog) -> None:
    await append(log, "p", 20, "b")
    await chain.append(log, TargetRemoved("b"), None)
    last = await append(log, "q", 20, "a")
    await chain.append(log, Checkpoint(), None)
    assert await Trimmer(log, None).trim({"a": last}, {"a"}) == last


async def test_an_operator_may_let_them_go(log: FileLog) -> None:
    await append(log, "typo", 20, "ghost")
    last = await append(log, "q", 20)
    await chain.append(log, Checkpoint(), None)
    assert await Trimmer(log, None, trims_unroutable=True).trim({"a": last, "b": last}, {"a", "b"}) == last

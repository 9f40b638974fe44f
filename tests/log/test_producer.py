"""A producer over logs that fail: numbers, order, retries, and the end."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from logplayer.errors import EntryTooLarge, LogError, LogFull, LogUnavailable, ProducerConflict, SequenceGap
from logplayer.log.file.log import FileLog
from logplayer.log.mutations import delete, json_value, put, transaction
from logplayer.log.producer import GROUPS_MAX, Producer, Receipt
from logplayer.log.protocol import ENTRY_BYTES_MAX, BadRequest, Log, NewEntry, Newest
from logplayer.testing.conformance.logs import collect, in_time
from logplayer.wire.entries import decode_transaction


class Flaky:
    """A log in memory that answers late and loses calls: before they got in, or afterwards."""

    def __init__(self, seed: int = 0, loses: float = 0.0) -> None:
        self.kept: list[NewEntry] = []
        self.asked = self.most = 0
        self.away = False
        self._under_way = 0
        self._random = random.Random(seed)
        self._loses = loses
        self._turn = asyncio.Lock()

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        self.asked += 1
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        try:
            async with self._turn:
                await asyncio.sleep(self._random.uniform(0, 0.002))
                if self.away or self._random.random() < self._loses / 2:
                    raise self._random.choice([LogUnavailable, LogFull])("away")
                indexes = [self._keep(entry) for entry in entries]
            await asyncio.sleep(self._random.uniform(0, 0.002))
            if self._random.random() < self._loses / 2:
                raise LogUnavailable("the answer got lost")
            return indexes
        finally:
            self._under_way -= 1

    def _keep(self, entry: NewEntry) -> int:
        """Groups are not atomic here: a producer must not mind."""
        newest = len(self.kept)
        if entry.sequence > newest + 1:
            raise SequenceGap("a gap", newest, entry.producer, entry.sequence)
        if entry.sequence == newest + 1:
            self.kept.append(entry)
        elif self.kept[entry.sequence - 1] != entry:
            raise ProducerConflict("taken", entry.sequence, entry.producer, entry.sequence)
        return entry.sequence

    async def newest(self, producer: str) -> Newest:
        return Newest(len(self.kept), len(self.kept))


async def producer_of(log: object, name: str = "p") -> Producer:
    assert isinstance(log, Flaky | Log)
    return await Producer.open(log, name)  # type: ignore[arg-type]


def keys(log: Flaky) -> list[bytes]:
    return [decode_transaction(entry.payload)[0][0] for entry in log.kept]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logplayer.log.producer.RETRY_SECONDS", (0.001,))


@pytest.mark.parametrize("seed", range(20))
async def test_order_and_once_whatever_gets_lost(seed: int) -> None:
    log = Flaky(seed, loses=0.5)
    producer = await producer_of(log)
    receipts: list[asyncio.Future[Receipt]] = []
    for number in range(200):
        receipts.append(producer.append(put(f"{number}", "x")))
        if number % 7 == seed % 7:
            await asyncio.sleep(0.001)
    done = await in_time(asyncio.gather(*receipts))
    assert keys(log) == [b"%d" % number for number in range(200)]
    assert [receipt.index for receipt in done] == [receipt.sequence for receipt in done] == list(range(1, 201))
    assert log.most <= GROUPS_MAX


async def test_coroutines_share_a_producer(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    producer = await producer_of(log)

    async def work(worker: int) -> list[int]:
        return [(await producer.append(put(f"{worker}/{turn}", "x"))).index for turn in range(50)]

    indexes = await in_time(asyncio.gather(*(work(worker) for worker in range(8))))
    assert sorted(index for of_one in indexes for index in of_one) == list(range(1, 401))
    assert all(of_one == sorted(of_one) for of_one in indexes)
    assert [record.sequence for record in await collect(log, 1, 400)] == list(range(1, 401))
    await log.close()


async def test_the_order_of_calls_is_the_order_in_the_log(tmp_path: Path) -> None:
    """Also if they are awaited in another order, or not at all."""
    log = await FileLog.open(tmp_path / "log")
    producer = await producer_of(log)
    first, second, third = (producer.append(put(key, "x")) for key in "abc")
    assert ((await third).index, (await first).index) == (3, 1)
    assert second.done()
    await log.close()


async def test_it_goes_on_where_the_log_says(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    producer = await producer_of(log, "web-1")
    for number in range(3):
        await producer.append(put(f"{number}", "x"))
    await log.trim(3)
    again = await producer_of(log, "web-1")
    assert again.sequence == 3
    receipt = await again.append(put("3", "x"))
    assert (receipt.sequence, receipt.index, receipt.producer) == (4, 4, "web-1")
    await log.close()


async def test_names_of_its_own(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    one, two = await producer_of(log, ""), await producer_of(log, "")
    assert one.name != two.name
    assert [(await producer.append(put("k", "v"))).index for producer in (one, two)] == [1, 2]
    with pytest.raises(BadRequest, match="is not a name"):
        await producer_of(log, "x" * 300)
    await log.close()


async def test_a_twin_is_found_out_and_ends_the_producer(tmp_path: Path) -> None:
    log = await FileLog.open(tmp_path / "log")
    one, two = await producer_of(log, "web-1"), await producer_of(log, "web-1")
    await one.append(put("a", "1"))
    losing = [two.append(put(key, "2")) for key in "bcd"]
    for future in losing:
        with pytest.raises(ProducerConflict):
            await future
    with pytest.raises(ProducerConflict):
        two.append(put("e", "2"))
    assert (await one.append(put("b", "1"))).index == 2
    assert (await log.info()).last == 2
    await log.close()


async def test_a_timeout_ends_the_wait_and_not_the_append() -> None:
    log = Flaky()
    log.away = True
    producer = await producer_of(log)
    slow = producer.append(put("a", "x"), timeout=0.05)
    with pytest.raises(LogUnavailable, match="no answer to transaction 1 in"):
        await slow
    waiting = asyncio.ensure_future(producer.append(put("b", "x")))
    await asyncio.sleep(0.02)
    waiting.cancel()
    log.away = False
    receipt = await in_time(producer.append(put("c", "x")))
    assert receipt.sequence == 3
    assert keys(log) == [b"a", b"b", b"c"]


async def test_close_leaves_nobody_waiting() -> None:
    log = Flaky()
    log.away = True
    producer = await producer_of(log)
    waiting = [producer.append(put(key, "x")) for key in "ab"]
    await asyncio.sleep(0.02)
    producer.close()
    for future in waiting:
        with pytest.raises(LogUnavailable, match="may be in the log"):
            await future
    with pytest.raises(LogUnavailable, match="is closed"):
        producer.append(put("c", "x"))


async def test_a_log_that_lost_what_it_acknowledged_is_an_error() -> None:
    log = Flaky()
    producer = await producer_of(log)
    await producer.append(put("a", "x"))
    await producer.append(put("b", "x"))
    log.kept.clear()
    with pytest.raises(LogError, match="restored from a backup"):
        await in_time(producer.append(put("c", "x")))
    assert log.kept == []


async def test_flush() -> None:
    log = Flaky(3, loses=0.3)
    producer = await producer_of(log)
    await producer.flush()
    for number in range(20):
        producer.append(put(f"{number}", "x"))
    await in_time(producer.flush())
    assert len(log.kept) == 20


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
async def test_flush_waits_for_what_nobody_waits_for_any_more(how: str) -> None:
    """Such a transaction is still sent, so to close after a flush must not lose it."""
    log = Flaky()
    log.away = True
    producer = await producer_of(log)
    left = producer.append(put("a", "x"), timeout=0.01 if how == "timeout" else None)
    await asyncio.sleep(0.02)
    if how == "timeout":
        with pytest.raises(LogUnavailable, match="no answer to transaction 1 in"):
            await left
    else:
        left.cancel()
    flushing = asyncio.ensure_future(producer.flush())
    await asyncio.sleep(0.02)
    assert not flushing.done()
    log.away = False
    await in_time(flushing)
    producer.close()
    assert keys(log) == [b"a"]


async def test_flush_ends_with_the_error_that_ends_the_producer() -> None:
    log = Flaky()
    log.away = True
    producer = await producer_of(log)
    producer.append(put("a", "x")).add_done_callback(lambda future: future.exception())
    flushing = asyncio.ensure_future(producer.flush())
    await asyncio.sleep(0.02)
    producer.close()
    with pytest.raises(LogUnavailable, match="is closed"):
        await in_time(flushing)


class Answering(Flaky):
    """A log that answers each call with an error of its own, when it is let."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self._errors = errors
        self.may_answer = [asyncio.Event() for _ in errors]

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        call = self.asked
        self.asked += 1
        await self.may_answer[call].wait()
        raise self._errors[call]


@pytest.mark.parametrize("away", [LogUnavailable, LogFull])
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
async def test_the_end_answers_all_in_whatever_order_the_groups_end(
    order: tuple[int, ...], away: type[LogError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first may be in the log, the second ends the producer, and what follows them skips ahead."""
    monkeypatch.setattr("logplayer.log.producer.GROUP_BYTES", 1)
    log = Answering(away("away"), ProducerConflict("taken"), SequenceGap("a gap"), SequenceGap("a gap"))
    producer = await producer_of(log)
    answers = [producer.append(put(f"{number}", "x")) for number in range(4)]
    flushing = asyncio.ensure_future(producer.flush())
    await asyncio.sleep(0)
    for call in order:
        log.may_answer[call].set()
        for _ in range(5):
            await asyncio.sleep(0)
    errors = await in_time(asyncio.gather(*answers, return_exceptions=True))
    assert [type(error) for error in errors[:2]] == [away, ProducerConflict]
    assert {type(error) for error in errors[2:]} <= {away, ProducerConflict}
    with pytest.raises(ProducerConflict):
        await in_time(flushing)
    assert log.asked == 4


async def test_an_unexpected_error_of_the_log_ends_the_producer() -> None:
    broken = RuntimeError("Event loop is closed")
    log = Answering(broken)
    producer = await producer_of(log)
    answer = producer.append(put("a", "x"))
    flushing = asyncio.ensure_future(producer.flush())
    log.may_answer[0].set()
    for waiting in (answer, flushing):
        with pytest.raises(LogError, match=r"closed.*transactions 1 to 1 may be in the log or not") as error:
            await in_time(waiting)
        assert error.value.__cause__ is broken
    with pytest.raises(LogError, match="Event loop is closed"):
        producer.append(put("b", "x"))


async def test_what_can_never_work_is_refused_at_once_and_costs_no_number() -> None:
    log = Flaky()
    producer = await producer_of(log)
    with pytest.raises(EntryTooLarge):
        producer.append(put("k", bytes(ENTRY_BYTES_MAX)))
    with pytest.raises(BadRequest, match="at least one mutation"):
        producer.append()
    with pytest.raises(BadRequest, match="is not a mutation"):
        producer.append(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="text or bytes, not int"):
        put("k", 7)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="JSON has no form"):
        json_value({1, 2})
    assert (await producer.append(put("k", "v"))).sequence == 1


def test_text_bytes_and_json() -> None:
    payload = transaction(
        [put("Zoë", "ä"), put(b"\xff", b"\x00", "a"), put("j", json_value({"b": 1, "a": [None]})), delete("k")]
    )
    assert decode_transaction(payload) == [
        ("Zoë".encode(), "ä".encode()),
        (b"\xff", b"\x00"),
        (b"j", b'{"a":[null],"b":1}'),
        (b"k", None),
    ]

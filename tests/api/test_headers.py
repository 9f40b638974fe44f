"""Headers of a transaction, as an application gives them: in both APIs, to every target that gets a part."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import logplayer as lp
from logplayer.log.mutations import transaction
from logplayer.wire.entries import decode_headers


class Heard(lp.MemoryTarget):
    """Keeps what it hears of headers."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[tuple[str, bytes], ...]] = []

    def apply(self, change: lp.Change) -> lp.Position:
        after = super().apply(change)
        self.heard += [change.headers(row.entry) for row in change.rows]
        return after


async def test_every_target_gets_them_with_its_part(tmp_path: Path) -> None:
    stores = {"a": Heard(), "b": Heard()}
    async with (
        lp.open_log(f"file://{tmp_path}/log") as log,
        lp.TargetServer(stores) as server,
        lp.Player(log, targets=dict.fromkeys(stores, server.address), shards=lp.ExplicitMap()),
    ):
        producer = await log.producer()
        both = lp.put("k", "v", "a"), lp.put("k", "v", "b")
        await producer.append(*both, headers={"trace": "4bf9", "raw": b"\x00\xff"})
        await producer.append(*both, headers=[("tag", "1"), ("tag", "2")])
        await (await producer.append(*both)).applied()
    expected = [(("trace", b"4bf9"), ("raw", b"\x00\xff")), (("tag", b"1"), ("tag", b"2")), ()]
    assert [store.heard for store in stores.values()] == [expected, expected]


def test_the_blocking_api_has_them_too(tmp_path: Path) -> None:
    with lp.sync.open_log(f"file://{tmp_path}/log") as log:
        receipt = log.producer().append(lp.put("k", "v"), headers={"trace": "4bf9"}, timeout=60)
        [[record]] = log.read(receipt.index, receipt.index)
    assert decode_headers(record.payload) == (("trace", b"4bf9"),)


@pytest.mark.parametrize("bad", [{"n": 7}, {7: "v"}, ["trace"], 7, [("one", "two", "three")], {"n": None}])
def test_what_is_not_a_header_is_refused(bad: Any, tmp_path: Path) -> None:
    async def run() -> None:
        async with lp.open_log(f"file://{tmp_path}/log") as log:
            producer = await log.producer("p")
            with pytest.raises(lp.BadRequest, match=r"header"):
                await producer.append(lp.put("k", "v"), headers=bad)
            assert (producer.sequence, (await log.info()).last) == (0, 0), "nothing was appended"

    asyncio.run(run())


def test_no_headers_cost_no_bytes() -> None:
    one = lp.put("k", "v")
    assert transaction([one]) == transaction([one], {}) == transaction([one], []) == one.encoded

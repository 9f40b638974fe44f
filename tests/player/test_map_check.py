"""``map check``: which transactions a map tears apart, and what would keep them together."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import logplayer as lp
from logplayer.core.entry import ExplicitMap, HashMap, RangeMap
from logplayer.core.routing import owner_of
from logplayer.player.map_check import KeysTogether, check_map
from tests.player.player_support import logplayer

AB = HashMap(("a", "b"))


def transaction(*keys: str, target: str = "") -> bytes:
    return b"".join(lp.put(key, "v", target).encoded for key in keys)


def orders(count: int, line: str = "{order}/line/{n}", order: str = "{order}/order") -> list[bytes]:
    """Each an order with two lines."""
    keys = [[order.format(order=n), *(line.format(order=n, n=i) for i in (1, 2))] for n in range(count)]
    return [transaction(*some) for some in keys]


def test_it_counts_what_goes_to_several_targets() -> None:
    owner = owner_of(AB)
    payloads = orders(50)
    expected = sum(
        len({owner(f"{n}/order".encode()), *(owner(f"{n}/line/{i}".encode()) for i in (1, 2))}) > 1 for n in range(50)
    )
    report = check_map([*payloads, transaction("alone")], AB)
    assert 0 < expected < 50
    assert (report.map, report.transactions, report.split, report.unroutable) == ("hash:a,b", 51, expected, 0)
    [one] = report.together
    assert (one.shapes, one.transactions, one.split) == ("#/line/# + #/order", 50, expected)
    assert sorted(target for _, target in one.example) == ["a", "b"]
    assert all(owner(key.encode()) == target for key, target in one.example)
    assert report.instead["hash[prefix /]:a,b"] == 0
    assert "hash[tag]:a,b" not in report.instead, "there are no tags, so it splits as many"


def test_a_map_that_keeps_them_together_splits_nothing() -> None:
    tagged = orders(50, "line/{{{order}}}/{n}", "order/{{{order}}}")
    for payloads, by in ((orders(50), "prefix /"), (tagged, "tag")):
        assert check_map(payloads, AB).split > 0
        report = check_map(payloads, HashMap(("a", "b"), by))
        assert (report.split, report.together, report.instead) == (0, [], {})


def test_targets_that_are_named_and_entries_that_nobody_gets() -> None:
    both = transaction("k", target="a") + transaction("k", target="b")
    report = check_map([both, transaction("k", "l", target="a"), transaction("k"), b"\xff"], ExplicitMap())
    assert (report.transactions, report.split, report.unroutable) == (4, 1, 2)
    assert report.together == [KeysTogether("k", 2, 1, [("k", "a"), ("k", "b")])]
    assert report.instead == {}, "nothing is known of other targets"


def test_ranges_and_long_transactions() -> None:
    report = check_map([transaction("a", "b", "c", "d", "x")], RangeMap((b"m",), ("low", "high")))
    assert [one.shapes for one in report.together] == ["a + b + c + 2 more"]
    assert report.together[0].example == [("a", "low"), ("x", "high")]


@pytest.mark.asyncio
async def test_the_command(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/log"
    async with lp.open_log(address) as log:
        producer = await log.producer("p")
        keys = [(f"{n}/order", f"{n}/line/1") for n in range(40)]
        await asyncio.gather(*(producer.append(*(lp.put(key, "v") for key in pair)) for pair in keys))
    said = await logplayer("map", "check", "--log", address, code=2)
    assert "this log has no map yet; give one with --map" in said
    facts = json.loads(await logplayer("map", "check", "--log", address, "--map", "hash:a,b", "--json"))
    expected = check_map([transaction(*pair) for pair in keys], AB)
    assert (facts["transactions"], facts["split"]) == (40, expected.split)
    assert facts["instead"] == {"hash[prefix /]:a,b": 0}
    few = json.loads(await logplayer("map", "check", "--log", address, "--map", "hash:a,b", "--last", "7", "--json"))
    assert few["transactions"] == 7
    text = await logplayer("map", "check", "--log", address, "--map", "hash:a,b")
    assert f"hash:a,b splits {expected.split} of 40 transactions; 0 not routable" in text
    assert f"{expected.split} of 40 with the keys #/line/# + #/order" in text
    assert "warning: a foreign key between such rows cannot be kept" in text
    assert "hash[prefix /]:a,b would split 0" in text
    text = await logplayer("map", "check", "--log", address, "--map", "hash[prefix /]:a,b")
    assert text == "hash[prefix /]:a,b splits 0 of 40 transactions; 0 not routable\n"


@pytest.mark.asyncio
async def test_the_map_in_force_is_judged(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/log"
    async with lp.open_log(address) as log, lp.TargetServer({"a": lp.MemoryTarget(), "b": lp.MemoryTarget()}) as server:
        targets = {"a": server.address, "b": server.address}
        async with lp.Player(log, targets=targets, shards=lp.HashShards("a", "b", by="prefix /")):
            receipt = await (await log.producer()).append(lp.put("7/order", "v"), lp.put("7/line/1", "v"))
            await receipt.applied()
    facts = json.loads(await logplayer("map", "check", "--log", address, "--json"))
    assert (facts["map"], facts["transactions"], facts["split"]) == ("hash[prefix /]:a,b", 1, 0)

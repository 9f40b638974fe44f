"""`map reappend` finds what a player calls unroutable, mutation by mutation, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logplayer.core.entry import Decision, Entry, ExplicitMap, HashMap, MapChanged, Takeover, TargetAdded, TargetRemoved
from logplayer.core.routing import NO_OWNER
from logplayer.errors import ConfigError
from logplayer.log import control_chain as chain
from logplayer.log.open import open_log
from logplayer.log.protocol import Log, NewEntry
from logplayer.player.reappend import LostEntries, find_lost
from logplayer.wire.entries import encode_mutation, route_transaction
from logplayer.wire.fastpath import varint
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

pytestmark = pytest.mark.asyncio
_BODY = pb.Mutation(key=b"odd", op=2).SerializeToString()  # type: ignore[arg-type]
UNKNOWN_OP = b"\x0a" + varint(len(_BODY)) + _BODY


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    opened = await open_log(f"file://{tmp_path}/wal")
    yield opened
    await opened.close()


async def append(log: Log, *payloads: bytes) -> list[int]:
    last = (await log.info()).last
    return [await _one(log, last + nth, payload) for nth, payload in enumerate(payloads)]


async def _one(log: Log, number: int, payload: bytes) -> int:
    return (await log.append([NewEntry(f"p{number}", 1, payload)]))[0]


async def decide(log: Log, *records: Decision) -> None:
    for record in records:
        await chain.append(log, record, ExplicitMap())


async def lost(log: Log) -> LostEntries:
    return await find_lost(log, (await chain.load(log)).control(None))


def put(key: bytes, value: bytes = b"v", target: str = "") -> bytes:
    return encode_mutation(key, value, target).encoded


async def test_an_unknown_operation_is_routed_as_a_player_routes_it_and_left_to_its_target(log: Log) -> None:
    await decide(log, TargetAdded("a", 0), Takeover("", "p"))
    [index] = await append(log, put(b"k") + UNKNOWN_OP + put(b"mine", target="a"))
    control = (await chain.load(log)).control(None)
    parts = control.router.split(Entry(index, put(b"k") + UNKNOWN_OP + put(b"mine", target="a")), route_transaction)
    assert parts == {"a": put(b"mine", target="a"), NO_OWNER: b""}
    with pytest.raises(ConfigError, match=f"entry {index} would be unroutable again.*map set"):
        await lost(log)
    await decide(log, MapChanged(HashMap(("a",))))
    assert await lost(log) == LostEntries([NewEntry(f"reappend/{index}", 1, put(b"k") + UNKNOWN_OP)], set())


async def test_a_payload_that_is_not_a_transaction_is_left_alone(log: Log) -> None:
    await decide(log, TargetAdded("a", 0), Takeover("", "p"), MapChanged(HashMap(("a",))))
    await append(log, b"\x12\x01x", b"\xff")
    assert await lost(log) == LostEntries([], set())


async def test_what_a_member_got_before_it_was_removed_is_not_lost(log: Log) -> None:
    """It was delivered; to append it again would put old values over those that its keys have now."""
    await decide(log, TargetAdded("a", 0), TargetAdded("b", 0), Takeover("", "p"), MapChanged(HashMap(("a",))))
    await append(log, put(b"k", b"old"))
    await decide(log, MapChanged(HashMap(("b",))), TargetRemoved("a"))
    assert await lost(log) == LostEntries([], set())


async def test_what_the_map_gave_to_a_removed_target_after_its_removal_is_lost(log: Log) -> None:
    await decide(log, TargetAdded("a", 0), TargetAdded("b", 0), Takeover("", "p"), MapChanged(HashMap(("a",))))
    await decide(log, TargetRemoved("a"))
    [index] = await append(log, put(b"k"))
    await decide(log, MapChanged(HashMap(("b",))))
    assert [entry.producer for entry in (await lost(log)).entries] == [f"reappend/{index}"]


async def test_a_newer_value_counts_only_if_it_was_delivered_after_the_lost_one(log: Log) -> None:
    await decide(log, TargetAdded("a", 0), Takeover("", "p"))
    await append(log, put(b"k", b"older", "a"), put(b"k"), put(b"l"), put(b"k", b"lost too"))
    await decide(log, MapChanged(HashMap(("a",))))
    assert (await lost(log)).overtaken == set()
    await append(log, put(b"k", b"newer"))
    assert (await lost(log)).overtaken == {b"k"}

"""A quarantined entry is applied later: also after the log has trimmed it, and at the target that missed it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logplayer.core.control_state import ControlState
from logplayer.core.entry import (
    Decision,
    Delivery,
    Entry,
    MapChanged,
    Quarantined,
    RangeMap,
    Session,
    TargetAdded,
)
from logplayer.errors import ConfigError
from logplayer.log import control_chain as chain
from logplayer.log.open import open_log
from logplayer.log.protocol import Log, NewEntry
from logplayer.player.decisions import Kept, redrive
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.wire.codec import decode_transaction
from logplayer.wire.entries import encode_headers, encode_mutation, for_target, route_transaction
from logplayer.wire.fastpath import varint
from logplayer.wire.logplayer.v1 import entry_pb2 as pb
from tests.player.player_support import logplayer
from tests.target.store_places import opening, playing

pytestmark = pytest.mark.asyncio
A_HAS_ALL_UP_TO_M = RangeMap((b"m",), ("a", "b"))
B_HAS_ALL_UP_TO_M = RangeMap((b"m",), ("b", "a"))
HEADERS = encode_headers([("trace", b"4711")])
ENTRY = encode_mutation(b"alice", b"1").encoded + encode_mutation(b"zoe", b"2").encoded + HEADERS
PART = encode_mutation(b"alice", b"1").encoded + HEADERS  # Of a.


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    opened = await open_log(f"file://{tmp_path}/wal")
    yield opened
    await opened.close()


async def decide(log: Log, *records: Decision) -> None:
    for record in records:
        await chain.append(log, record, A_HAS_ALL_UP_TO_M)


async def control_of(log: Log) -> ControlState:
    return (await chain.load(log)).control(A_HAS_ALL_UP_TO_M)


async def quarantined(log: Log) -> int:
    """An entry that a has quarantined, and more after it."""
    await decide(log, TargetAdded("a", 0), TargetAdded("b", 0))
    [index] = await log.append([NewEntry("p", 1, ENTRY)])
    await decide(log, Quarantined("a", index))
    await log.append([NewEntry("p", 2, ENTRY)])
    return index


async def routed(log: Log, index: int) -> dict[str, bytes]:
    """What each target gets of an entry by the map of today."""
    record = await chain.first_record(log, index, index)
    return (await control_of(log)).router.split(Entry(index, record.payload), route_transaction)


async def test_the_target_gets_its_part_although_the_map_has_changed(log: Log) -> None:
    bad = await quarantined(log)
    await decide(log, MapChanged(B_HAS_ALL_UP_TO_M))
    again = await redrive(log, await control_of(log), "a", bad)
    parts = await routed(log, again)
    assert set(parts) == {"a"}
    assert decode_transaction(parts["a"]) == [(b"alice", b"1")]
    assert parts["a"].endswith(HEADERS)


async def test_a_second_call_after_a_trim_says_where_the_first_one_was(log: Log) -> None:
    bad = await quarantined(log)
    again = await redrive(log, await control_of(log), "a", bad)
    await chain.trim(log, again, first_map=A_HAS_ALL_UP_TO_M)
    last = (await log.info()).last
    assert await redrive(log, await control_of(log), "a", bad) == again
    assert (await log.info()).last == last


async def test_what_was_trimmed_is_taken_from_the_quarantine_of_the_target(log: Log) -> None:
    bad = await quarantined(log)
    await chain.trim(log, bad + 1, first_map=A_HAS_ALL_UP_TO_M)
    control, info = await control_of(log), await log.info()
    assert info.first > bad
    with pytest.raises(
        ConfigError, match=f"the log has trimmed entry {bad}; a keeps it in its quarantine: give --store"
    ):
        await redrive(log, control, "a", bad)
    with pytest.raises(ConfigError, match="plays log another"):
        await redrive(log, control, "a", bad, Kept("another", PART))
    again = await redrive(log, control, "a", bad, Kept(info.log_id, PART))
    assert again == info.last + 1
    parts = await routed(log, again)
    assert decode_transaction(parts["a"]) == [(b"alice", b"1")]
    assert await redrive(log, control, "a", bad) == again


async def test_both_ways_append_the_same(log: Log) -> None:
    """So that the log takes only one of two calls that come at once."""
    bad = await quarantined(log)
    again = await redrive(log, await control_of(log), "a", bad)
    assert (await chain.first_record(log, again, again)).payload == for_target(PART, "a")


async def test_the_command_reads_the_store(log: Log, tmp_path: Path) -> None:
    bad = await quarantined(log)
    await chain.trim(log, bad + 1, first_map=A_HAS_ALL_UP_TO_M)
    info = await log.info()
    store = SqliteTarget(str(tmp_path / "a.db"), "a")
    store.apply(opening(Session(1, 1), info.log_id))
    store.apply(playing(Session(1, 1), 0, bad, Delivery(bad, PART, True)))
    store.close()
    await log.close()
    command = ("target", "redrive", "a", "--index", str(bad), "--log", f"file://{tmp_path}/wal", "--json")
    assert "give --store" in await logplayer(*command, code=2)
    place = ("--store", "sqlite", "--path", str(tmp_path / "a.db"))
    first, again = [json.loads(await logplayer(*command, *place)) for _ in range(2)]
    assert (first["repeated"], again["repeated"]) == (False, True)
    assert first["index"] == again["index"] > info.last
    said = await logplayer("target", "redrive", "a", "--index", "99", *command[5:], *place, code=2)
    assert f"the quarantine of a has no entry 99, only {bad}" in said


async def test_a_part_keeps_what_this_version_does_not_know() -> None:
    body = pb.Mutation(key=b"odd", op=9).SerializeToString() + b"\xf2\x07\x03new"  # type: ignore[arg-type]
    given = for_target(b"\x0a" + varint(len(body)) + body + HEADERS, "a")
    assert pb.Transaction.FromString(given).mutations[0].target == "a"
    assert b"\xf2\x07\x03new" in given
    assert given.endswith(HEADERS)

"""The main stream's entries come to the core split among the targets, and are split no other way than the core does."""

from __future__ import annotations

import pytest

from logplayer.core.entry import Entry, HashMap, MapChanged
from logplayer.core.route import Router
from logplayer.errors import ConfigError, LogError, Malformed
from logplayer.log.protocol import Kind, Record
from logplayer.player.entries import decode_entries, route_entries
from logplayer.wire.entries import encode_control, encode_mutation

ONE, TWO = HashMap(("a",)), HashMap(("a", "b"))


def data(index: int, payload: bytes | None = None) -> Record:
    if payload is None:
        payload = b"".join(encode_mutation(b"key %d %d" % (index, n), b"v" * 20).encoded for n in range(4))
    return Record(index, Kind.DATA, "p", index, 0, payload, 0)


def nobody(index: int, why: str) -> None:
    raise AssertionError(f"entry {index}: {why}")


def test_each_entry_is_split_by_the_map_at_its_index() -> None:
    records = [data(index) for index in range(1, 40)]
    router, reference = Router(ONE), Router(ONE)
    for some in (router, reference):
        some.change(20, TWO)
    routed = route_entries(records, router, nobody)
    assert [entry.parts for entry in routed] == [reference.split(entry) for entry in decode_entries(records, nobody)]
    assert {"a", "b"} == {name for entry in routed for name in entry.parts or ()}
    assert all("b" not in (entry.parts or {}) for entry in routed if entry.index <= 20)


def test_behind_a_record_that_may_change_the_map_the_core_splits() -> None:
    """The map that the record brings is not yet known when the entries behind it are read in the same batch."""
    change = Record(2, Kind.CONTROL, "", 0, 0, encode_control(MapChanged(TWO)), 0)
    records = [data(1), change, *(data(index) for index in range(3, 20))]
    router = Router(ONE)
    entries = route_entries(records, router, nobody)
    assert [entry.parts for entry in entries] == [None] * len(records)
    assert entries[1].record == MapChanged(TWO)
    router.change(2, TWO)
    assert any("b" in router.split(entry) for entry in entries[2:])


def test_what_nobody_owns_is_counted_once() -> None:
    router = Router(lambda key: "")
    change = Record(2, Kind.CONTROL, "", 0, 0, encode_control(MapChanged(TWO)), 0)
    entries = route_entries([data(1), change], router, nobody)
    assert router.ownerless == 0
    assert router.split(entries[0]) == {}
    assert router.ownerless == 4
    [entry] = route_entries([data(3)], router, nobody)
    assert entry.parts == {}
    assert router.split(entry) == {}
    assert router.ownerless == 8


def test_a_payload_that_is_no_transaction_is_reported_and_passed_over() -> None:
    told: list[int] = []
    entries = route_entries(
        [data(1), data(2, b"\x12\x01x"), data(3)], Router(ONE), lambda index, why: told.append(index)
    )
    assert told == [2]
    assert [list(entry.parts or ()) for entry in entries] == [["a"], [], ["a"]]
    assert isinstance(entries[1], Entry)


@pytest.mark.parametrize("error", [Malformed("x"), OSError("x"), LogError("x"), KeyError("x")])
def test_a_function_of_the_user_that_fails_is_no_damaged_entry_and_no_trouble_with_the_log(error: Exception) -> None:
    """Both have their own ways of going on, and the entry would be passed over or read for ever."""

    def fails(key: bytes) -> str:
        raise error

    told: list[int] = []
    with pytest.raises(ConfigError, match="the function that gives a key its target failed for b'key 1 0'"):
        route_entries([data(1)], Router(fails), lambda index, why: told.append(index))
    [entry] = decode_entries([data(1)], nobody)
    with pytest.raises(ConfigError, match="failed for"):
        Router(fails).split(entry)
    assert told == []


def test_a_function_of_the_user_that_gives_nothing_gives_no_owner() -> None:
    calls: list[bytes] = []
    router = Router(lambda key: calls.append(key))  # type: ignore[arg-type, func-returns-value]
    [entry] = route_entries([data(1)], router, nobody)
    assert (entry.parts, router.ownerless, len(calls)) == ({}, 4, 4)


def test_a_function_of_the_user_that_gives_no_name_is_told_what_it_gave() -> None:
    router = Router(lambda key: 7)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match="it returned 7; it must return a name"):
        route_entries([data(1)], router, nobody)

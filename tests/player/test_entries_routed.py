"""What a player reads from the log: payloads as they are, decisions decoded; and how its router cuts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.core.entry import Delivery, Entry, ExplicitMap, HashMap, MapChanged, ShardMap
from logplayer.core.routing import NO_OWNER, Router, join_parts, join_routed
from logplayer.errors import ConfigError, LogError, Malformed, Poison
from logplayer.log.protocol import Kind, Record
from logplayer.player.entries import read_entries, survey_entries
from logplayer.target.protocol import decode_rows
from logplayer.wire.entries import encode_control, encode_mutation, route_transaction, split_headers, split_transaction
from tests.wire.wire_damage import damage, damaged, transactions

ONE, TWO = HashMap(("a",)), HashMap(("a", "b"))


def data(index: int, payload: bytes | None = None) -> Record:
    if payload is None:
        payload = b"".join(encode_mutation(b"key %d %d" % (index, n), b"v" * 20).encoded for n in range(4))
    return Record(index, Kind.DATA, "p", index, 0, payload, b"", 0)


def split(router: Router, records: list[Record]) -> list[dict[str, bytes]]:
    return [router.split(entry, route_transaction) for entry in read_entries(records)]


def test_each_entry_is_split_by_the_map_at_its_index() -> None:
    records = [data(index) for index in range(1, 40)]
    router = Router(ONE)
    router.change(20, TWO)
    routed = split(router, records)
    assert {"a", "b"} == {name for parts in routed for name in parts}
    assert all("b" not in parts for record, parts in zip(records, routed, strict=True) if record.index <= 20)
    for record, parts in zip(records, routed, strict=True):
        assert (parts, 0) == join_parts(split_transaction(record.payload), router.owner_at(record.index))


def test_a_map_that_comes_in_the_same_batch_is_in_force_after_it() -> None:
    change = Record(2, Kind.CONTROL, "", 0, 0, encode_control(MapChanged(TWO)), b"", 0)
    records = [data(1), change, *(data(index) for index in range(3, 20))]
    router = Router(ONE)
    entries = read_entries(records, 0)
    assert [entry.parts for entry in entries] == [None] * len(records)
    assert entries[1].record == MapChanged(TWO)
    router.change(2, TWO)
    assert any("b" in router.split(entry, route_transaction) for entry in entries[2:])


def test_what_nobody_owns_stands_in_the_parts() -> None:
    assert split(Router(lambda key: ""), [data(1)]) == [{NO_OWNER: b""}]


def test_a_payload_that_is_no_transaction_is_for_nobody_and_the_rest_goes_on() -> None:
    entries = read_entries([data(1), data(2, b"\x12\x01x"), data(3)])
    router = Router(ONE)
    assert [list(router.split(entry, route_transaction)) for entry in entries] == [["a"], [NO_OWNER], ["a"]]
    assert [bool(entry.malformed) for entry in entries] == [False, True, False]


@pytest.mark.parametrize("error", [Malformed("x"), OSError("x"), LogError("x"), KeyError("x")])
def test_a_function_of_the_user_that_fails_is_no_damaged_entry_and_no_trouble_with_the_log(error: Exception) -> None:
    """Both have their own ways of going on, and the entry would be passed over or read for ever."""

    def fails(key: bytes) -> str:
        raise error

    with pytest.raises(ConfigError, match="the function that gives a key its target failed for b'key 1 0'"):
        split(Router(fails), [data(1)])


def test_a_function_of_the_user_that_gives_nothing_gives_no_owner() -> None:
    calls: list[bytes] = []
    router = Router(lambda key: calls.append(key))  # type: ignore[arg-type, return-value]
    assert (split(router, [data(1)]), len(calls)) == ([{NO_OWNER: b""}], 4)


def test_a_function_of_the_user_that_gives_no_name_is_told_what_it_gave() -> None:
    router = Router(lambda key: 7)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match="it returned 7; it must return a name"):
        split(router, [data(1)])


def test_decisions_that_are_known_are_not_read_again() -> None:
    """A player starts with all decisions up to its epoch; those before a repair may be unreadable."""
    garbage = Record(2, Kind.CONTROL, "", 0, 0, b"\xff\xff", b"", 0)
    later = Record(5, Kind.CONTROL, "", 0, 0, encode_control(MapChanged(TWO)), b"", 0)
    entries = read_entries([data(1), garbage, data(3), later], decided=4)
    assert [entry.index for entry in entries] == [1, 2, 3, 5]
    assert [entry.record for entry in entries] == [None, None, None, MapChanged(TWO)]
    assert Router(ONE).split(entries[1], route_transaction) == {}
    with pytest.raises(Malformed):
        read_entries([garbage], decided=1)
    assert survey_entries([garbage, later])[0].record is None
    assert survey_entries([garbage, later])[1].record == MapChanged(TWO)


# --- The router and the targets read the same bytes -------------------------------------------------------


@given(transactions | st.builds(damaged, transactions, damage), st.sampled_from((ONE, TWO, ExplicitMap())))
def test_each_mutation_is_routed_as_the_whole_entry_is(payload: bytes, shard_map: ShardMap) -> None:
    entry = Entry(7, payload)
    router = Router(shard_map)
    parts = router.split(entry, route_transaction)
    if entry.malformed:
        with pytest.raises(Malformed):
            router.route(7, payload, split_transaction)
        return
    routed = router.route(7, payload, split_transaction)
    headers = split_headers(payload)
    if payload.endswith(headers):  # As our own code writes them.
        assert b"".join((*(mutation.encoded for _, mutation in routed), headers)) == payload
    joined = join_routed(routed, headers)
    assert (NO_OWNER in joined) == (NO_OWNER in parts)
    assert {**joined, NO_OWNER: b""} == {**parts, NO_OWNER: b""}


def rows_of(payload: bytes) -> list[object] | None:
    """What a target makes of it; None if it refuses it for good."""
    try:
        return list(decode_rows(Delivery(7, payload)))
    except Poison:
        return None


@given(transactions | st.builds(damaged, transactions, damage), st.sampled_from((ONE, TWO)))
def test_what_the_router_passes_on_a_target_reads_as_the_whole(payload: bytes, shard_map: HashMap) -> None:
    """Each mutation reaches one target whole: the parts' rows are the rows of the transaction, key by key.

    If a target refuses its part, the transaction as a whole cannot be read either. Nothing is read two ways.
    """
    entry = Entry(7, payload)
    parts = Router(shard_map).split(entry, route_transaction)
    if entry.malformed:
        assert parts == {NO_OWNER: b""}
        return
    whole, shares = rows_of(payload), {name: rows_of(part) for name, part in parts.items() if name != NO_OWNER}
    assert (whole is None) == (None in shares.values())
    if whole is not None:
        assert sorted(map(repr, whole)) == sorted(repr(row) for rows in shares.values() for row in rows or ())

"""core/routing.py: every mutation goes to exactly one target, by the map in force at its index."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logplayer.core.entry import Entry, ExplicitMap, HashMap, Mutation, RangeMap, ShardMap
from logplayer.core.routing import NO_OWNER, HashOwner, Owner, Router, owner_of
from logplayer.errors import ConfigError, Malformed
from tests.core.core_rig import cut, payload

NAMES = ("a", "b", "c")


def test_hash() -> None:
    owner = owner_of(HashMap(NAMES))
    for key in (b"", b"x", b"key-17"):
        assert owner(key) == NAMES[crc32(key) % 3]


def test_range_bounds_belong_to_the_right() -> None:
    owner = owner_of(RangeMap((b"g", b"p"), NAMES))
    assert [owner(key) for key in (b"", b"f\xff", b"g", b"o", b"p", b"z")] == ["a", "a", "b", "b", "c", "c"]


def test_explicit_targets_win_over_any_map() -> None:
    router = Router(HashMap(("a",)))
    assert router.split(Entry(1, payload(Mutation(b"k", b"x", "z"), Mutation(b"k", b"y"))), cut) == {
        "z": b"x",
        "a": b"y",
    }


def test_a_key_without_an_owner_goes_nowhere() -> None:
    assert Router(ExplicitMap()).split(Entry(1, payload(Mutation(b"k", b"x"))), cut) == {NO_OWNER: b""}


def test_a_users_function() -> None:
    router = Router(lambda key: "a" if key < b"m" else "b")
    entry = Entry(1, payload(Mutation(b"z", b"1"), Mutation(b"c", b"2"), Mutation(b"y", b"3")))
    assert list(router.split(entry, cut).items()) == [("b", b"13"), ("a", b"2")]
    assert router.versions() == [(0, None)]


def test_a_users_function_in_place_of_the_first_map() -> None:
    router = Router(ExplicitMap())
    router.change(10, HashMap(("b",)))
    router.replace_first(lambda key: "a")
    assert router.split(Entry(10, payload(Mutation(b"k", b"x"))), cut) == {"a": b"x"}
    assert router.split(Entry(11, payload(Mutation(b"k", b"x"))), cut) == {"b": b"x"}


def test_an_entry_is_split_once_and_then_lets_its_payload_go() -> None:
    entry = Entry(1, payload(Mutation(b"k", b"x")))
    parts = Router(HashMap(("a",))).split(entry, cut)
    assert entry.payload == b""
    assert Router(HashMap(("b",))).split(entry, cut) is parts == {"a": b"x"}


def test_an_entry_that_cannot_be_split_is_for_nobody_and_says_why() -> None:
    def refuse(payload: bytes, owner: Owner) -> tuple[dict[str, bytes], int]:
        raise Malformed("no transaction")

    entry = Entry(1, b"?")
    assert Router(HashMap(("a",))).split(entry, refuse) == {NO_OWNER: b""}
    assert entry.malformed == "no transaction"


def test_a_map_is_in_force_behind_its_record() -> None:
    router = Router(HashMap(("a",)))
    router.change(10, HashMap(("b",)))
    router.change(20, HashMap(("c",)))
    owners = {
        index: next(iter(router.split(Entry(index, payload(Mutation(b"k", b"x"))), cut)))
        for index in (1, 10, 11, 20, 21, 99)
    }
    assert owners == {1: "a", 10: "a", 11: "b", 20: "b", 21: "c", 99: "c"}


def test_a_record_read_again_changes_nothing() -> None:
    router = Router(HashMap(("a",)))
    router.change(10, HashMap(("b",)))
    router.change(10, HashMap(("c",)))
    router.change(5, HashMap(("c",)))
    assert [after for after, _ in router.versions()] == [0, 10]
    assert router.split(Entry(11, payload(Mutation(b"k", b"x"))), cut) == {"b": b"x"}


@pytest.mark.parametrize(
    ("shard_map", "why"),
    [
        (HashMap(()), "at least one target"),
        (RangeMap((), ()), "at least one target"),
        (HashMap(("a",), "prefix"), "keys cannot be hashed by 'prefix'"),
        (HashMap(("a",), "prefix "), "keys cannot be hashed by"),
        (HashMap(("a",), "tags"), "keys cannot be hashed by 'tags'; write tag"),
        (RangeMap((b"b",), ("a",)), "needs 0 rising bounds, it has 1"),
        (RangeMap((b"m", b"m"), NAMES), "sort the bounds"),
        (RangeMap((b"z", b"a"), NAMES), "sort the bounds"),
    ],
)
def test_a_bad_map_says_what_to_change(shard_map: ShardMap, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Router(shard_map)


@pytest.mark.parametrize(
    ("by", "key", "part"),
    [
        ("", b"order/{7}", b"order/{7}"),
        ("tag", b"order/{7}", b"7"),
        ("tag", b"line/{7}/{1}", b"7"),
        ("tag", b"}x{7}", b"7"),
        ("tag", b"{}x{7}", b"{}x{7}"),
        ("tag", b"no tag", b"no tag"),
        ("tag", b"open {7", b"open {7"),
        ("prefix /", b"7/line/1", b"7"),
        ("prefix /", b"/7", b"/7"),
        ("prefix /", b"7", b"7"),
        ("prefix ::", b"7::line:1", b"7"),
        ("prefix  ", b"7 line", b"7"),
    ],
)
def test_what_is_hashed_of_a_key(by: str, key: bytes, part: bytes) -> None:
    owner = owner_of(HashMap(("a", "b", "c"), by))
    assert isinstance(owner, HashOwner)
    assert owner.part(key) == part
    assert owner(key) == owner_of(HashMap(("a", "b", "c")))(part)


# --- Properties -------------------------------------------------------------------------------------------

keys = st.binary(max_size=3)
maps: st.SearchStrategy[ShardMap] = st.one_of(
    st.just(ExplicitMap()),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(lambda names: HashMap(tuple(names))),
    st.sets(st.binary(min_size=1, max_size=2), max_size=3).map(
        lambda bounds: RangeMap(tuple(sorted(bounds)), tuple(f"r{i}" for i in range(len(bounds) + 1)))
    ),
)
mutations = st.lists(
    st.builds(Mutation, keys, st.binary(max_size=4), st.sampled_from(("", "", "a", "z"))), max_size=8
).map(tuple)


@given(maps, st.lists(st.tuples(st.integers(1, 50), maps), max_size=4), st.integers(1, 60), mutations)
def test_each_mutation_goes_to_exactly_one_target_in_order(
    first: ShardMap, changes: list[tuple[int, ShardMap]], index: int, changed: tuple[Mutation, ...]
) -> None:
    router = Router(first)
    in_force, newest = first, 0
    for after, shard_map in sorted(changes, key=lambda change: change[0]):
        if after > newest:
            newest = after
            in_force = shard_map if index > after else in_force
        router.change(after, shard_map)
    owner = owner_of(in_force)
    wanted: dict[str, bytes] = {}
    for mutation in changed:
        target = mutation.target or owner(mutation.key)
        if target:
            wanted[target] = wanted.get(target, b"") + mutation.encoded
    split = router.split(Entry(index, payload(*changed)), cut)
    nobodys = split.pop(NO_OWNER, None)
    assert (nobodys is not None) == any(not (mutation.target or owner(mutation.key)) for mutation in changed)
    assert list(split.items()) == list(wanted.items())

"""A transaction that is cut by hand is the one that the generated code reads, whatever its bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_damage import Changes, damage, damaged

from logplayer.errors import Malformed
from logplayer.wire import entries
from logplayer.wire.entries import (
    decode_transaction,
    encode_mutation,
    route_transaction,
    split_transaction,
    usual_shape,
)

# Around where a length takes a second and a third byte.
LENGTHS = st.integers(0, 8) | st.integers(110, 140) | st.integers(16_370, 16_390)
keys = st.builds(lambda length, fill: bytes((fill,)) * length, LENGTHS, st.integers(0, 255))
puts = st.builds(encode_mutation, keys, keys)
mutations = puts | st.builds(encode_mutation, keys, st.none() | keys, st.sampled_from(["", "t1"]))
transactions = st.lists(mutations, max_size=4).map(lambda some: b"".join(mutation.encoded for mutation in some))


def found(read: Callable[[bytes], object], payload: bytes) -> object:
    try:
        return read(payload)
    except Malformed:
        return Malformed


def by_the_generated_code(read: Callable[[bytes], object], payload: bytes) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "usual_shape", lambda _: None)
        return found(read, payload)


@given(transactions)
def test_a_whole_transaction(payload: bytes) -> None:
    for read in (decode_transaction, split_transaction):
        assert found(read, payload) == by_the_generated_code(read, payload)


@given(transactions, damage)
def test_a_damaged_transaction(payload: bytes, changes: Changes) -> None:
    data = damaged(payload, changes)
    for read in (decode_transaction, split_transaction):
        assert found(read, data) == by_the_generated_code(read, data)


def owner(key: bytes) -> str:
    return ("", "t0", "t1", "t2")[len(key) % 4]


def one_after_the_other(payload: bytes) -> dict[str, list[bytes]]:
    routed: dict[str, list[bytes]] = {}
    for key, encoded, explicit in split_transaction(payload):
        routed.setdefault(explicit or owner(key), []).append(encoded)
    return routed


@given(transactions)
def test_to_split_and_route_at_once_gives_the_same(payload: bytes) -> None:
    routed = route_transaction(payload, owner)
    assert list(routed.items()) == list(one_after_the_other(payload).items())


@given(transactions, damage)
def test_to_split_and_route_damaged_bytes_at_once_gives_the_same(payload: bytes, changes: Changes) -> None:
    data = damaged(payload, changes)
    assert found(lambda data: route_transaction(data, owner), data) == found(one_after_the_other, data)


@pytest.mark.parametrize("key", [1, 127])
@pytest.mark.parametrize("value", [1, 127, 128, 1000, 16_000])
def test_the_usual_mutation_has_a_shape(key: int, value: int) -> None:
    encoded = encode_mutation(b"k" * key, b"v" * value).encoded
    shape = usual_shape(encoded[:5])
    assert shape is not None
    assert shape.length == len(encoded)
    assert encoded[shape.key : shape.key_end] == b"k" * key
    assert encoded[shape.key_end : shape.value] == shape.between
    assert encoded[shape.value :] == b"v" * value


def test_a_cut_transaction_is_not_read_past_its_end() -> None:
    encoded = encode_mutation(b"key", b"v" * 1000).encoded
    for length in range(1, len(encoded)):
        assert found(decode_transaction, encoded[:length]) is Malformed
        assert found(split_transaction, encoded[:length]) is Malformed

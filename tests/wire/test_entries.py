"""A transaction that is cut by hand is the one that the generated code reads, whatever its bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from logplayer.errors import Malformed
from logplayer.wire import entries, fastpath
from logplayer.wire.entries import (
    decode_headers,
    decode_transaction,
    encode_headers,
    encode_mutation,
    read_rows,
    route_transaction,
    split_headers,
    split_transaction,
)
from tests.wire.plain_fastpath import plain
from tests.wire.wire_damage import Changes, damage, damaged, transactions


def found(read: Callable[[bytes], object], payload: bytes) -> object:
    try:
        return read(payload)
    except Malformed:
        return Malformed


def by_the_generated_code(read: Callable[[bytes], object], payload: bytes) -> object:
    with pytest.MonkeyPatch.context() as patch:
        for reader in ("read_mutations", "read_parts", "read_changes", "read_rows"):
            patch.setattr(fastpath, reader, lambda *_: None)
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


@given(transactions, damage)
def test_rows_are_the_changes_of_their_entry(payload: bytes, changes: Changes) -> None:
    for data in (payload, damaged(payload, changes)):
        expected = found(lambda data: [(7, *change) for change in decode_transaction(data)], data)
        assert found(lambda data: read_rows(7, data), data) == expected


def owner(key: bytes) -> str:
    return ("", "t0", "t1", "t2")[len(key) % 4]


def routed(payload: bytes) -> object:
    parts, ownerless = route_transaction(payload, owner)
    return list(parts.items()), ownerless


def one_after_the_other(payload: bytes) -> object:
    pieces: dict[str, bytes] = {}
    for key, encoded, explicit in split_transaction(payload):
        name = explicit or owner(key)
        pieces[name] = pieces.get(name, b"") + encoded
    ownerless = sum(not (m.target or owner(m.key)) for m in split_transaction(payload))
    return [(name, part + split_headers(payload)) for name, part in pieces.items() if name], ownerless


@given(transactions, damage)
def test_to_split_and_route_at_once_gives_the_same(payload: bytes, changes: Changes) -> None:
    for data in (payload, damaged(payload, changes)):
        assert found(routed, data) == found(one_after_the_other, data)
        assert found(routed, data) == by_the_generated_code(routed, data)


@given(transactions, damage)
def test_the_same_without_a_compiler(payload: bytes, changes: Changes) -> None:
    data = damaged(payload, changes)
    expected = [found(read, data) for read in (decode_transaction, split_transaction, routed)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "fastpath", plain)
        assert [found(read, data) for read in (decode_transaction, split_transaction, routed)] == expected


def test_every_target_gets_the_headers() -> None:
    headers = encode_headers({"trace": b"\x00\xff", "content-type": b"text/plain"})
    changes = [encode_mutation(b"k", b"v", "a"), encode_mutation(b"l", None, "b"), encode_mutation(b"m", b"w", "a")]
    parts, ownerless = route_transaction(b"".join((*(change.encoded for change in changes), headers)), owner)
    assert ownerless == 0
    for name, rows in (("a", [(b"k", b"v"), (b"m", b"w")]), ("b", [(b"l", None)])):
        assert decode_transaction(parts[name]) == rows
        assert decode_headers(parts[name]) == (("trace", b"\x00\xff"), ("content-type", b"text/plain"))


def test_headers_are_found_wherever_another_library_writes_them() -> None:
    change, headers = encode_mutation(b"k", b"v", "a").encoded, encode_headers([("n", b"1"), ("n", b"2")])
    parts, _ = route_transaction(headers + change, owner)
    assert parts == {"a": change + headers}
    assert decode_headers(headers + change) == (("n", b"1"), ("n", b"2"))
    assert found(split_transaction, change + b"\x12\x03\x0a\x01\xff") is Malformed  # A name that is not text.


def test_a_cut_transaction_is_not_read_past_its_end() -> None:
    encoded = encode_mutation(b"key", b"v" * 1000).encoded
    for length in range(1, len(encoded)):
        assert found(decode_transaction, encoded[:length]) is Malformed
        assert found(split_transaction, encoded[:length]) is Malformed

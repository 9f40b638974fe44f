"""The hot path's bytes: the compiled module does what its source says, whatever the bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logplayer.core.entry import Delivery, HashMap
from logplayer.core.routing import Owner, join_parts, owner_of
from logplayer.errors import ConfigError
from logplayer.wire import fastpath
from logplayer.wire.entries import encode_mutation, split_transaction
from tests.servers import missing
from tests.wire.plain_fastpath import BOTH, COMPILED, SOURCE, plain
from tests.wire.wire_damage import Changes, damage, damaged, transactions

u64 = st.integers(0, 2**64 - 1)
chains = st.just(b"") | st.binary(min_size=8, max_size=8)
messages = st.lists(st.builds(Delivery, u64, st.binary(max_size=300), st.booleans(), chains), max_size=4)


def owner(key: bytes) -> str:
    return ("", "t0", "t1", "t2")[len(key) % 4]


hashed = owner_of(HashMap(("t0", "t1", "t2")))
PARTS = [owner_of(HashMap(("t0", "t1", "t2"), by)) for by in ("tag", "prefix /", "prefix ::")]


READERS: list[Callable[[Any, bytes], object]] = [
    lambda module, data: module.read_mutations(data),
    lambda module, data: module.read_parts(data, owner),
    lambda module, data: module.read_parts(data, hashed),
    *(lambda module, data, part=part: module.read_parts(data, part) for part in PARTS),
    lambda module, data: module.read_changes(data),
    lambda module, data: module.read_rows(7, data),
    lambda module, data: module.read_batch(data),
]


def test_it_is_compiled_and_not_older_than_its_source() -> None:
    if not COMPILED:
        missing("wire/fastpath.py is not compiled: install a C compiler and Python's headers, then 'make setup'")
    assert Path(fastpath.__file__).stat().st_mtime >= SOURCE.stat().st_mtime, (
        "wire/fastpath.py has changed: 'make setup'"
    )


def test_the_plain_module_is_not_the_compiled_one() -> None:
    assert Path(plain.__file__) == SOURCE
    assert type(plain.read_batch).__name__ == "function"


@given(transactions, damage)
def test_both_read_a_damaged_transaction_alike(payload: bytes, changes: Changes) -> None:
    data = damaged(payload, changes)
    for read in READERS:
        assert read(fastpath, data) == read(plain, data)


@given(transactions)
def test_the_hash_is_the_one_of_the_map(payload: bytes) -> None:
    for module in BOTH:
        assert module.read_parts(payload, hashed) == module.read_parts(payload, lambda key: hashed(key))


def test_a_map_may_hold_its_targets_in_a_list() -> None:
    listed = owner_of(HashMap(["t0"]))  # type: ignore[arg-type]
    for module in BOTH:
        assert module.read_parts(b"\x0a\x03\x0a\x01k", listed) == ({"t0": b"\x0a\x03\x0a\x01k"}, 0)


@given(u64, u64, messages, chains, chains, damage)
def test_both_write_and_read_batches_alike(
    prev: int, to: int, some: list[Delivery], prev_chain: bytes, to_chain: bytes, changes: Changes
) -> None:
    whole = fastpath.encode_batch(prev, to, some, prev_chain, to_chain)
    assert whole == plain.encode_batch(prev, to, some, prev_chain, to_chain)
    for data in (whole, damaged(whole, changes)):
        assert fastpath.read_batch(data) == plain.read_batch(data)


@given(st.binary(max_size=40), st.integers(0, 3))
def test_both_read_bytes_from_anywhere_alike(data: bytes, at: int) -> None:
    for read in READERS:
        assert read(fastpath, data) == read(plain, data)
    assert fastpath.read_varint(data, at, len(data)) == plain.read_varint(data, at, len(data))


@pytest.mark.parametrize("module", BOTH)
class TestNumbers:
    @given(value=st.integers(0, 2**63 - 1))
    def test_they_round_trip(self, module: Any, value: int) -> None:
        written = module.varint(value)
        assert module.read_varint(b"x" + written + b"x", 1, len(written) + 2) == (value, len(written) + 1)

    def test_one_that_does_not_end_is_none(self, module: Any) -> None:
        assert module.read_varint(b"\x80\x80", 0, 2) == (0, -1)
        assert module.read_varint(b"\x80\x01", 0, 1) == (0, -1), "it ends, but not before the end"
        assert module.read_varint(b"", 0, 0) == (0, -1)

    def test_one_of_more_than_63_bits_is_left_to_the_generated_code(self, module: Any) -> None:
        assert module.read_varint(module.varint(2**63), 0, 10) == (0, -1)
        assert module.read_batch(module.encode_batch(1, 2**63)) is None


@pytest.mark.parametrize("module", BOTH)
class TestForms:
    """What protobuf's own libraries write is read here, and nothing else."""

    PUT = b"\x0a\x06\x0a\x01k\x12\x01v"
    DELETE = b"\x0a\x05\x0a\x01k\x18\x01"
    NAMED = b"\x0a\x0a\x0a\x01k\x12\x01v\x22\x02t9"

    def test_puts_deletes_and_named_targets(self, module: Any) -> None:
        payload = self.PUT + self.DELETE + self.NAMED
        assert module.read_changes(payload) == [(b"k", b"v"), (b"k", None), (b"k", b"v")]
        assert module.read_rows(5, payload) == [(5, b"k", b"v"), (5, b"k", None), (5, b"k", b"v")]
        assert module.read_mutations(payload) == [
            (b"k", self.PUT, ""),
            (b"k", self.DELETE, ""),
            (b"k", self.NAMED, "t9"),
        ]
        parts = {"t1": self.PUT + self.DELETE, "t9": self.NAMED}
        assert module.read_parts(payload, lambda key: "t1") == (parts, 0)
        assert module.read_parts(payload, lambda key: "") == ({"t9": self.NAMED}, 2)

    def test_nothing_at_all_is_empty_bytes(self, module: Any) -> None:
        assert module.read_changes(b"\x0a\x00") == [(b"", b"")]
        assert module.read_changes(b"") == []

    @pytest.mark.parametrize(
        "payload",
        [
            b"\x0a\x06\x12\x01v\x0a\x01k",  # The value first.
            b"\x0a\x06\x0a\x01j\x0a\x01k",  # A field twice.
            b"\x0a\x05\x0a\x01k\x18\x04",  # An operation of the future.
            b"\x0a\x06\x0a\x01k\x3a\x01x",  # A field of the future.
            b"\x0a\x06\x0a\x01k\x2a\x01\xff",  # A table's name that is no text.
            b"\x0a\x0b\x0a\x01k\x32\x06\x12\x04\x08\x01\x10\x02",  # A value of two kinds.
            b"\x0a\x06\x0a\x01k\x22\x01\xff",  # A name that is no text.
            b"\x0a\x83\x80\x80\x80\x80\x00\x0a\x01k",  # A length in six bytes, which protobuf does not take.
            b"\x0a\x08\x0a\x81\x80\x80\x80\x80\x00k",  # The same for the key.
            b"\x12\x01x",  # No mutation.
            b"\x0a\x07\x0a\x01k\x12\x01v",  # One that goes on behind the end.
            b"\x0a\x06\x0a\x01k\x12\x02v",  # A value that does.
            b"\x0a\x03\x0a\x02k",  # A key that does.
            b"\x0a\x06\x0a\x01k\x22\x02t",  # A name that does.
        ],
    )
    def test_other_forms_are_left_to_the_generated_code(self, module: Any, payload: bytes) -> None:
        assert module.read_changes(self.PUT + payload) is None
        assert module.read_rows(1, self.PUT + payload) is None
        assert module.read_mutations(self.PUT + payload) is None
        assert module.read_parts(self.PUT + payload, owner) is None

    def test_what_an_owner_raises_is_not_swallowed(self, module: Any) -> None:
        def fails(key: bytes) -> str:
            raise ConfigError(f"no owner for {key!r}")

        with pytest.raises(ConfigError, match="no owner for b'k'"):
            module.read_parts(self.PUT, fails)


@given(st.lists(st.text("ab{}/:", max_size=6).map(str.encode), min_size=1, max_size=4), st.sampled_from(PARTS))
@example([b"a{}", b"b{}", b"{}ab", b"ab{}/"], PARTS[0])  # An empty tag is none: the whole key counts.
def test_a_part_of_the_key_is_hashed_as_the_core_says(keys: list[bytes], part: Owner) -> None:
    payload = b"".join(encode_mutation(key, b"v").encoded for key in keys)
    mutations = split_transaction(payload)
    for module in BOTH:
        assert module.read_parts(payload, part) == join_parts(mutations, part)

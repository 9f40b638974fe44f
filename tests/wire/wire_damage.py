"""Transactions, and changes of encoded bytes near their beginning, where the tags and lengths are."""

from __future__ import annotations

from hypothesis import strategies as st

import logplayer as lp
from logplayer.wire.entries import encode_headers, encode_mutation

# Around where a length takes a second and a third byte.
LENGTHS = st.integers(0, 8) | st.integers(110, 140) | st.integers(16_370, 16_390)
keys = st.builds(lambda length, fill: bytes((fill,)) * length, LENGTHS, st.integers(0, 255))
puts = st.builds(encode_mutation, keys, keys)
mutations = puts | st.builds(encode_mutation, keys, st.none() | keys, st.sampled_from(["", "t1"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)
rows = st.builds(
    lambda op, number, value, target: getattr(lp.table("t", target=target), op)(id=number, value=value),
    st.sampled_from(["put", "patch"]),
    st.integers(-9, 9),
    scalars | st.lists(scalars, max_size=2),
    st.sampled_from(["", "t1"]),
)
mutations = mutations | rows
headers = st.lists(st.tuples(st.text(max_size=3), keys), max_size=2).map(encode_headers)
transactions = st.builds(
    lambda some, headers: b"".join((*(mutation.encoded for mutation in some), headers)),
    st.lists(mutations, max_size=4),
    st.just(b"") | headers,
)

Changes = list[tuple[int, int, int]]
damage = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(0, 255)), min_size=1, max_size=4)


def damaged(whole: bytes, changes: Changes) -> bytes:
    """``whole`` with bytes replaced, inserted and deleted."""
    data = bytearray(whole)
    for at, how, value in changes:
        where = at % len(data) if data else 0
        if how == 0 and data:
            data[where] = value
        elif how == 1:
            data.insert(where, value)
        elif data:
            del data[where]
    return bytes(data)

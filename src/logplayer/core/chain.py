"""The chain: index and chain value together name an entry, an index alone does not.

A log that is restored from an older backup, or that loses its tail, gives the same indexes to other entries. So each
entry carries a value over all that came before it and over its own content:

    value(i) = XXH3-64 of value(i - 1), and of the payload's mark, the sequence, the kind and the producer of entry i

Two histories that differ anywhere up to an index have different values at that index. The log keeps the value at its
trim point; a target stores the value at its index, in the same transaction. The time of the commit is not covered: the
same history appended again is the same history. Like the digest, this is a proof against faults and mix-ups, not
against a forger. An index without an entry (a log may have gaps) has the value of the last entry before it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import xxhash

VALUE_BYTES = 8
GENESIS = b""
"""The value at index 0, before any entry."""

mark_of = xxhash.xxh3_64_digest
"""The mark of a payload: what stands for it in the chain, and in the memory of a producer's sequences."""

_digest = xxhash.xxh3_64_digest
_pack = struct.Struct(">8s8sQB").pack  # In one call: this is done for every entry.
_PACKS = [struct.Struct(f">8s8sQB{length}s").pack for length in range(256)]  # The same with a producer's name.


def extend(before: bytes, kind: int, producer: str, sequence: int, mark: bytes) -> bytes:
    """The value at an entry, given the value before it. ``mark`` is the payload's."""
    if before:
        return _digest(_pack(before, mark, sequence, kind) + producer.encode())
    return _digest(mark + sequence.to_bytes(8, "big") + bytes((kind,)) + producer.encode())


def extend_all(before: bytes, entries: Iterable[tuple[str, int, bytes, int]], marks: Iterable[bytes]) -> list[bytes]:
    """The values at entries in a row, of which each is (producer, sequence, payload, kind).

    As ``extend`` of one after the other, in two thirds of the time: a log's writer does this for all that it appends.
    """
    values: list[bytes] = []
    known, name, pack = None, b"", _PACKS[0]
    for (producer, sequence, _, kind), mark in zip(entries, marks, strict=True):
        if producer is not known:
            known, name = producer, producer.encode()
            pack = _PACKS[len(name)]
        if before:
            before = _digest(pack(before, mark, sequence, kind, name))
        else:
            before = extend(before, kind, producer, sequence, mark)
        values.append(before)
    return values


def is_value(value: bytes) -> bool:
    """Whether this can be a chain value at all."""
    return len(value) in (0, VALUE_BYTES)

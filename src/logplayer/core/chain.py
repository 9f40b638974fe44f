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

import xxhash

VALUE_BYTES = 8
GENESIS = b""
"""The value at index 0, before any entry."""

mark_of = xxhash.xxh3_64_digest
"""The mark of a payload: what stands for it in the chain, and in the memory of a producer's sequences."""

_digest = xxhash.xxh3_64_digest


def extend(before: bytes, kind: int, producer: str, sequence: int, mark: bytes) -> bytes:
    """The value at an entry, given the value before it. ``mark`` is the payload's."""
    return _digest(before + mark + (sequence << 8 | kind).to_bytes(9, "big") + producer.encode())


def is_value(value: bytes) -> bool:
    """Whether this can be a chain value at all."""
    return len(value) in (0, VALUE_BYTES)

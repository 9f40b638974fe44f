"""A target's digest: a running sum over (index, payload) of everything that it was given.

The digest is the sum, modulo 2**128, of XXH3-128 over the entry's index (8 bytes, big-endian) and payload.
A sum and not a chain: ranges can be added up in parallel (audit, backfill) and in any order. It still tells an
entry left out, given twice, changed, or given under another index; the order is what the range rule guards.

It is a proof against faults, not against forgers: docs/decisions/xxh3-for-the-digest.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from xxhash import xxh3_128_intdigest

from logplayer.core.entry import Delivery

EMPTY = 0
_MODULUS_MASK = (1 << 128) - 1


def entry_digest(index: int, payload: bytes) -> int:
    """The digest of a single entry."""
    return xxh3_128_intdigest(index.to_bytes(8, "big") + payload)


def extend(digest: int, messages: Iterable[Delivery]) -> int:
    """The digest after ``messages`` too. A quarantined message counts: the target was given it."""
    for index, payload, _, _ in messages:
        digest += entry_digest(index, payload)
    return digest & _MODULUS_MASK


def to_bytes(digest: int) -> bytes:
    """The digest as it is on the wire and in the stores."""
    return digest.to_bytes(16, "big")


def from_bytes(encoded: bytes) -> int:
    """The inverse of :func:`to_bytes`; an empty string is the empty digest."""
    return int.from_bytes(encoded, "big")

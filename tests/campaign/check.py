"""What must a target contain? Computed from the log alone, and compared with what the store holds.

This shares nothing with the player but the wire contract: transactions are parsed as a whole by protobuf, routed by a
few lines of its own, and the digest is summed up here. A doubled, lost, reordered or misrouted entry shows: each entry
counts once in the digest, and of two writes of a key the newer value stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from zlib import crc32

from google.protobuf.message import DecodeError
from xxhash import xxh3_128

from logplayer.log.protocol import Kind, Log, Record
from logplayer.target.protocol import Store
from logplayer.wire.logplayer.v1 import entry_pb2 as pb

Owner = Callable[[bytes], str]


@dataclass(slots=True)
class Expected:
    """What one target must hold once it stands at the end of the log."""

    data: dict[bytes, bytes] = field(default_factory=dict)
    quarantine: dict[int, bytes] = field(default_factory=dict)
    digest: int = 0
    entries: int = 0
    last: int = 0  # The newest entry that is for it.


def hashed(targets: Iterable[str]) -> Owner:
    """The hash map's rule."""
    names = tuple(targets)
    return lambda key: names[crc32(key) % len(names)]


async def read_all(log: Log) -> list[Record]:
    """Every entry that the log holds now."""
    info = await log.info()
    records: list[Record] = []
    if info.last >= info.first:
        async with aclosing(log.read(info.first, info.last)) as batches:  # type: ignore[type-var]
            async for batch in batches:
                records += batch
    return records


def expect(
    records: Iterable[Record],
    targets: Iterable[str],
    owner: Owner,
    *,
    after: Mapping[str, int] | None = None,
    quarantined: Mapping[str, set[int]] | None = None,
) -> dict[str, Expected]:
    """What each target must hold. ``after`` gives the index behind which a target's own part begins."""
    expected = {name: Expected() for name in targets}
    for record in records:
        if record.kind != Kind.DATA:
            continue
        for name, (payload, mutations) in _split(record.payload, owner).items():
            if name not in expected or record.index <= (after or {}).get(name, 0):
                continue
            aside = record.index in (quarantined or {}).get(name, ())
            _apply(expected[name], record.index, payload, mutations, aside)
    return expected


def destinations(record: Record, owner: Owner) -> list[str]:
    """The targets of an entry."""
    return list(_split(record.payload, owner)) if record.kind == Kind.DATA else []


def _split(payload: bytes, owner: Owner) -> dict[str, tuple[bytes, list[pb.Mutation]]]:
    try:
        transaction = pb.Transaction.FromString(payload)
    except DecodeError:
        return {}  # Not a transaction: for nobody.
    parts: dict[str, pb.Transaction] = {}
    for mutation in transaction.mutations:
        name = mutation.target or owner(mutation.key)
        parts.setdefault(name, pb.Transaction()).mutations.append(mutation)
    return {name: (part.SerializeToString(), list(part.mutations)) for name, part in parts.items() if name}


def _apply(expected: Expected, index: int, payload: bytes, mutations: list[pb.Mutation], aside: bool) -> None:
    expected.entries += 1
    expected.last = index
    own = int(xxh3_128(index.to_bytes(8, "big") + payload).hexdigest(), 16)
    expected.digest = (expected.digest + own) % 2**128
    if aside:
        expected.quarantine[index] = payload
        return
    for mutation in mutations:
        if mutation.op == pb.PUT:
            expected.data[mutation.key] = mutation.value
        else:
            expected.data.pop(mutation.key, None)


def compare(name: str, expected: Expected, store: Store) -> list[str]:
    """Every way in which the store is not what the log says; nothing if it is."""
    problems: list[str] = []
    position = store.position()
    if position.index < expected.last:
        problems.append(f"{name}: stands at {position.index}, its newest entry is {expected.last}")
    if position.digest != expected.digest:
        problems.append(f"{name}: its digest is {position.digest:032x}, the log says {expected.digest:032x}")
    data = dict(store.scan())
    lost = expected.data.keys() - data.keys()
    extra = data.keys() - expected.data.keys()
    wrong = [key for key, value in expected.data.items() if key in data and data[key] != value]
    for what, keys in (("lacks", lost), ("should not have", extra), ("has another value at", wrong)):
        if keys:
            problems.append(f"{name}: {what} {len(keys)} keys, for example {sorted(keys)[0]!r}")
    if dict(store.quarantine()) != expected.quarantine:
        problems.append(
            f"{name}: its quarantine holds {sorted(dict(store.quarantine()))}, not {sorted(expected.quarantine)}"
        )
    return problems

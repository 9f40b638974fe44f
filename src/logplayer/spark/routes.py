"""Which target an entry's mutations are for, as plain data that a task can carry."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from logplayer.core.entry import ExplicitMap, HashMap, RangeMap, ShardMap
from logplayer.core.route import Owner, owner_of
from logplayer.errors import ConfigError, Malformed
from logplayer.log.protocol import Log
from logplayer.player import control as chain
from logplayer.wire.entries import split_transaction
from logplayer.wire.logplayer.v1 import entry_pb2 as pb


@dataclass(frozen=True)
class Routes:
    """The log's decisions: shard maps by position, members with their start, quarantined entries.

    A target's content up to its start (``at`` of its TargetAdded) is what the map in force behind the start gives it:
    that is what a backfill fills in. Behind the start each entry is routed by the map in force at its own index.
    """

    maps: tuple[tuple[int, ShardMap], ...] = ((0, ExplicitMap()),)  # (after, map): in force for indexes > after.
    starts: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    quarantined: dict[str, frozenset[int]] = field(default_factory=dict)

    def owner_at(self, index: int) -> Owner:
        """The owner function in force at ``index``."""
        nth = bisect_left([after for after, _ in self.maps], index, lo=1) - 1
        return owner_of(self.maps[nth][1])

    def split(self, index: int, payload: bytes, targets: Collection[str]) -> dict[str, bytes]:
        """What each of ``targets`` gets of one entry. For many entries make one :class:`Splitter`."""
        return {target: part for target, (part, _) in Splitter(self, targets).split(index, payload).items()}


Changes = list[tuple[bytes, bytes | None]]  # Keys and values, None for a delete, in order.
Share = tuple[bytes, Changes]  # What one target gets of an entry, encoded and decoded.


class Splitter:
    """Splits entries among some targets, many of them: what can be worked out once, is."""

    def __init__(self, routes: Routes, targets: Collection[str]) -> None:
        self._targets = frozenset(targets)
        self._after = [after for after, _ in routes.maps]
        self._owners = [owner_of(shard_map) for _, shard_map in routes.maps]
        starts = {target: routes.starts.get(target, 0) for target in targets}
        self._low, self._high = min(starts.values(), default=0), max(starts.values(), default=0)
        self._starts = starts

    def owner_at(self, index: int) -> Owner:
        """The owner function in force at ``index``."""
        return self._owners[bisect_left(self._after, index, lo=1) - 1]

    def split(self, index: int, payload: bytes) -> dict[str, Share]:
        """What each target gets of one entry. A payload that is no transaction is for nobody."""
        if index > self._high:
            return self._split(payload, self.owner_at(index), self._targets)
        if self._low == self._high:
            return self._split(payload, self.owner_at(self._low + 1), self._targets)
        shares: dict[str, Share] = {}
        for target, start in self._starts.items():
            shares.update(self._split(payload, self.owner_at(max(index, start + 1)), {target}))
        return shares

    def _split(self, payload: bytes, owner: Owner, targets: Collection[str]) -> dict[str, Share]:
        try:
            mutations = pb.Transaction.FromString(payload).mutations
        except DecodeError:
            return {}
        if len(mutations) == 1:
            [m] = mutations
            name = m.target or owner(m.key)
            return {name: (payload, [(m.key, m.value if m.op == pb.PUT else None)])} if name in targets else {}
        names = [mutation.target or owner(mutation.key) for mutation in mutations]
        if len(set(names)) == 1:
            # The whole entry is for one target, so it is what the target gets: no need to cut it.
            if names[0] not in targets:
                return {}
            return {names[0]: (payload, [(m.key, m.value if m.op == pb.PUT else None) for m in mutations])}
        return self._cut(payload, mutations, names, targets)

    @staticmethod
    def _cut(payload: bytes, mutations: Any, names: list[str], targets: Collection[str]) -> dict[str, Share]:
        try:
            pieces = split_transaction(payload)
        except Malformed:
            return {}
        cut: dict[str, tuple[list[bytes], list[tuple[bytes, bytes | None]]]] = {}
        for name, piece, m in zip(names, pieces, mutations, strict=True):
            if name in targets:
                encoded, changes = cut.setdefault(name, ([], []))
                encoded.append(piece.encoded)
                changes.append((m.key, m.value if m.op == pb.PUT else None))
        return {name: (b"".join(encoded), changes) for name, (encoded, changes) in cut.items()}


async def load_routes(log: Log, first_map: ShardMap | None = None) -> Routes:
    """The log's decisions so far; those of a log without any are ``first_map``."""
    control = (await chain.load(log)).control(first_map or ExplicitMap())
    maps = tuple((after, shard_map or ExplicitMap()) for after, shard_map in control.router.versions())
    return Routes(
        maps,
        {name: member.at or 0 for name, member in control.members.items()},
        {name: member.address for name, member in control.members.items()},
        {name: frozenset(indexes) for name, indexes in control.quarantined.items()},
    )


def parse_map(text: str) -> ShardMap:
    """``explicit``, ``hash:a,b,c``, or ``range:a<g<b<t<c`` (a owns the keys below g, b from g on, c from t on)."""
    kind, _, rest = text.partition(":")
    if kind == "explicit" and not rest:
        return ExplicitMap()
    shard_map: HashMap | RangeMap | None = None
    if kind == "hash" and rest:
        shard_map = HashMap(tuple(name.strip() for name in rest.split(",")))
    elif kind == "range" and rest:
        parts = [part.strip() for part in rest.split("<")]
        shard_map = RangeMap(tuple(bound.encode() for bound in parts[1::2]), tuple(parts[0::2]))
    if shard_map is None or not all(shard_map.targets):
        raise ConfigError(f"{text!r} is no shard map; write explicit, hash:a,b,c or range:a<g<b<t<c")
    owner_of(shard_map)  # It says what is wrong with the bounds.
    return shard_map

"""Which target an entry's mutations are for, as plain data that a task can carry."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field

from logplayer.core.entry import ExplicitMap, HashMap, RangeMap, ShardMap
from logplayer.core.route import Owner, owner_of
from logplayer.errors import ConfigError, Malformed
from logplayer.log.protocol import Log
from logplayer.player import control as chain
from logplayer.wire.entries import split_transaction


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
        """What each of ``targets`` gets of one entry. A payload that is no transaction is for nobody."""
        try:
            mutations = split_transaction(payload)
        except Malformed:
            return {}
        parts: dict[str, list[bytes]] = {}
        owners: dict[int, Owner] = {}
        for target in targets:
            position = max(index, self.starts.get(target, 0) + 1) if index <= self.starts.get(target, 0) else index
            owner = owners.get(position) or owners.setdefault(position, self.owner_at(position))
            pieces = [encoded for key, encoded, explicit in mutations if (explicit or owner(key)) == target]
            if pieces:
                parts[target] = pieces
        return {target: b"".join(pieces) for target, pieces in parts.items()}


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

"""Which target an entry's mutations are for, as plain data that a task can carry."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from logplayer.core.entry import Delivery, Entry, ExplicitMap, ShardMap
from logplayer.core.routing import Router
from logplayer.errors import Malformed, Poison
from logplayer.log import control_chain as chain
from logplayer.log.protocol import Log
from logplayer.player.maps import parse_map as parse_map
from logplayer.target.protocol import decode_rows
from logplayer.target.stores.tables.mapping import TableMapping
from logplayer.wire.entries import decode_transaction, route_transaction
from logplayer.wire.rows import decode_row_changes


@dataclass(frozen=True)
class Routes:
    """The log's decisions: shard maps by position, members with their start, quarantined entries.

    A target's content up to its start (``at`` of its TargetAdded) is what the map in force after the start gives it:
    that is what a backfill fills in. After the start each entry is routed by the map in force at its own index.
    """

    maps: tuple[tuple[int, ShardMap], ...] = ((0, ExplicitMap()),)  # (after, map): in force for indexes > after.
    starts: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    quarantined: dict[str, frozenset[int]] = field(default_factory=dict)

    def router(self) -> Router:
        """The router that a player has after the same decisions."""
        router = Router(self.maps[0][1])
        for after, shard_map in self.maps[1:]:
            router.change(after, shard_map)
        return router

    def split(self, index: int, payload: bytes, targets: Collection[str]) -> dict[str, bytes]:
        """What each of ``targets`` gets of one entry. For many entries make one :class:`Splitter`."""
        return {target: share.payload for target, share in Splitter(self, targets).split(index, payload).items()}


Changes = list[tuple[bytes, bytes | None]]  # Keys and values, None for a delete, in order.


class Share(NamedTuple):
    """What one target gets of an entry, encoded and decoded.

    ``refused`` says why the target refuses it for good, and is empty if it does not; then there are no changes.
    """

    payload: bytes
    changes: Changes
    refused: str = ""


def share_of(index: int, payload: bytes) -> Share:
    """The share as the target itself reads it: by the same decoder, and refused in the same words."""
    try:
        return Share(payload, decode_transaction(payload))
    except Malformed:
        pass
    try:
        decode_rows(Delivery(index, payload))
    except Poison as poison:
        return Share(payload, [], str(poison))
    raise AssertionError(f"entry {index} is read in two ways")


# What a target is that is not known to hold keys and values: one in tables, with its mapping, or one of any kind.
TargetKind = TableMapping | str
ANY = "any"
NO_KINDS: Mapping[str, TargetKind] = {}


def _share(index: int, payload: bytes, kind: TargetKind | None) -> Share:
    """The share of a target of this kind. Rows of tables are not changes: a RowFold reads the payload."""
    if isinstance(kind, TableMapping):
        return Share(payload, [])
    share = share_of(index, payload)
    if share.refused and kind == ANY:
        try:
            decode_row_changes(payload)
        except Malformed:
            return share
        return Share(payload, [])
    return share


class Splitter:
    """Splits entries among some targets, many of them: what can be worked out once, is."""

    def __init__(self, routes: Routes, targets: Collection[str], kinds: Mapping[str, TargetKind] = NO_KINDS) -> None:
        self._targets = frozenset(targets)
        self._kinds = kinds
        self._router = routes.router()
        starts = {target: routes.starts.get(target, 0) for target in targets}
        self._low, self._high = min(starts.values(), default=0), max(starts.values(), default=0)
        self._starts = starts

    def split(self, index: int, payload: bytes) -> dict[str, Share]:
        """What each target gets of one entry. A payload that is not a transaction is unroutable."""
        if index > self._high:
            return self._split(index, payload, index, self._targets)
        if self._low == self._high:
            return self._split(index, payload, self._low + 1, self._targets)
        shares: dict[str, Share] = {}
        for target, start in self._starts.items():
            shares.update(self._split(index, payload, max(index, start + 1), {target}))
        return shares

    def _split(self, index: int, payload: bytes, at: int, targets: Collection[str]) -> dict[str, Share]:
        """Routed as a player routes it, by the map in force at ``at``, and decoded as a target decodes it."""
        parts = self._router.split(Entry(at, payload), route_transaction)
        kinds = self._kinds
        return {name: _share(index, part, kinds.get(name)) for name, part in parts.items() if name in targets}


async def load_routes(log: Log, first_map: ShardMap | None = None) -> Routes:
    """The log's decisions so far; those of a log without any are ``first_map``.

    Up to the first map a mutation goes where it says itself, as with an explicit map. Nothing is recorded here.
    """
    control = (await chain.load(log)).control(first_map)
    maps = tuple((after, shard_map or ExplicitMap()) for after, shard_map in control.router.versions())
    return Routes(
        maps,
        {name: member.at or 0 for name, member in control.members.items()},
        {name: member.address for name, member in control.members.items()},
        {name: frozenset(indexes) for name, indexes in control.quarantined.items()},
    )

"""What a shard map tears apart: the transactions whose keys it gives to several targets, and the shapes of those keys.

A transaction that several targets get is delivered to each exactly once, so nothing is wrong with it. But a store can
check its constraints only by what it has: a row whose parent is on another shard is refused there, and a reader of one
shard sees a part. A log does not know which rows refer to each other; it knows which are written together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from logplayer.core.entry import HashMap, Mutation, ShardMap
from logplayer.core.routing import NO_OWNER, Owner, owner_of, target_of
from logplayer.errors import Malformed
from logplayer.player.maps import map_text
from logplayer.wire.entries import split_transaction

_NUMBER = re.compile(r"\d+")
_SHAPES_SHOWN = 3
# What a hash map could hash of the keys instead.
_PARTS = ("tag", "prefix /", "prefix :", "prefix .", "prefix -")


@dataclass(slots=True)
class KeysTogether:
    """Transactions whose keys have these shapes, with the keys of one that was split."""

    shapes: str  # A key with its numbers as #: "line/#/# + order/#".
    transactions: int = 0
    split: int = 0
    example: list[tuple[str, str]] = field(default_factory=list)  # A key of each target, and the target.


@dataclass(frozen=True, slots=True)
class MapReport:
    """What a map does with some transactions."""

    map: str
    transactions: int
    split: int  # How many go to several targets.
    unroutable: int  # How many have a mutation that no target gets, or are not transactions.
    together: list[KeysTogether]  # Those of which some are split, the most frequent first.
    instead: dict[str, int]  # Maps over the same targets that split fewer, and how many they split.


def check_map(payloads: Iterable[bytes], shard_map: ShardMap) -> MapReport:
    """Judge a map by transactions that it would route.

    Args:
        payloads: Encoded transactions.
        shard_map: The map.
    """
    transactions, unreadable = _take_apart(payloads)
    owner = owner_of(shard_map)
    split = unroutable = 0
    together: dict[str, KeysTogether] = {}
    for mutations in transactions:
        targets = [target_of(mutation, owner) for mutation in mutations]
        torn = _torn(targets)
        split += torn
        unroutable += NO_OWNER in targets
        _note(together, mutations, targets, torn)
    seen = sorted((one for one in together.values() if one.split), key=lambda one: (-one.split, one.shapes))
    total = len(transactions) + unreadable
    instead = _instead(transactions, shard_map, split)
    return MapReport(map_text(shard_map), total, split, unroutable + unreadable, seen, instead)


def _take_apart(payloads: Iterable[bytes]) -> tuple[list[tuple[Mutation, ...]], int]:
    transactions, unreadable = [], 0
    for payload in payloads:
        try:
            transactions.append(split_transaction(payload))
        except Malformed:
            unreadable += 1
    return transactions, unreadable


def _torn(targets: list[str]) -> bool:
    return len(set(targets) - {NO_OWNER}) > 1


def _note(together: dict[str, KeysTogether], mutations: tuple[Mutation, ...], targets: list[str], torn: bool) -> None:
    keys = [mutation.key.decode(errors="backslashreplace") for mutation in mutations]
    shapes = sorted({_NUMBER.sub("#", key) for key in keys})
    more = [f"{len(shapes) - _SHAPES_SHOWN} more"] if len(shapes) > _SHAPES_SHOWN else []
    name = " + ".join(shapes[:_SHAPES_SHOWN] + more)
    one = together.setdefault(name, KeysTogether(name))
    one.transactions += 1
    if torn:
        one.split += 1
        one.example = one.example or _example(keys, targets)


def _example(keys: list[str], targets: list[str]) -> list[tuple[str, str]]:
    """The first key of each target."""
    first: dict[str, str] = {}
    for key, target in zip(keys, targets, strict=True):
        first.setdefault(target, key)
    return [(key, target) for target, key in first.items() if target != NO_OWNER]


def _instead(transactions: list[tuple[Mutation, ...]], shard_map: ShardMap, split: int) -> dict[str, int]:
    if not isinstance(shard_map, HashMap) or not split:
        return {}
    found = {}
    for by in _PARTS:
        other = HashMap(shard_map.targets, by)
        count = _count_torn(transactions, owner_of(other))
        if by != shard_map.by and count < split:
            found[map_text(other)] = count
    return dict(sorted(found.items(), key=lambda pair: pair[1]))


def _count_torn(transactions: list[tuple[Mutation, ...]], owner: Owner) -> int:
    return sum(_torn([target_of(mutation, owner) for mutation in mutations]) for mutations in transactions)

"""The router: the mutations of an entry become one message per target, by the shard map in force at its index.

Routing is by position, not by time: a map record at index k is in force for indexes > k, so that a catch-up reader
that is far behind routes an old entry exactly as the main stream did.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from zlib import crc32

from logplayer.core.entry import Entry, ExplicitMap, HashMap, Mutation, RangeMap, ShardMap
from logplayer.errors import ConfigError

Owner = Callable[[bytes], str]  # key -> target; "" means that the key has no owner. It must be a pure function.


class HashOwner:
    """The owner of a key by the map that hashes, as an object: who routes much looks into it and saves the calls."""

    __slots__ = ("targets",)

    def __init__(self, targets: tuple[str, ...]) -> None:
        self.targets = targets

    def __call__(self, key: bytes) -> str:
        return self.targets[crc32(key) % len(self.targets)]


def owner_of(shard_map: ShardMap) -> Owner:
    """The function that a shard map stands for."""
    if isinstance(shard_map, ExplicitMap):
        return _nobody
    targets = shard_map.targets
    if not targets:
        raise ConfigError("a shard map needs at least one target")
    if isinstance(shard_map, HashMap):
        return HashOwner(tuple(targets))
    bounds = shard_map.bounds
    if len(bounds) != len(targets) - 1 or any(low >= high for low, high in pairwise(bounds)):
        raise ConfigError(
            f"a range map of {len(targets)} targets needs {len(targets) - 1} rising bounds, it has {len(bounds)}: "
            "sort the bounds and give one less than there are targets"
        )
    return lambda key: targets[bisect_right(bounds, key)]


def _nobody(key: bytes) -> str:
    return ""


def _guarded(owner: Owner) -> Owner:
    """A user's own function, whose failure is told as such: it ends the player, and no entry is passed over."""

    def guarded(key: bytes) -> str:
        try:
            name = owner(key) or ""
            if not isinstance(name, str):
                raise TypeError(f"it returned {name!r}")
            return name
        except Exception as error:
            what = f"the function that gives a key its target failed for {key!r}: {type(error).__name__}: {error}"
            raise ConfigError(f"{what}; it must return a name, or an empty one, for every key") from error

    return guarded


def join_parts(mutations: Iterable[Mutation], owner: Owner) -> tuple[dict[str, bytes], int]:
    """The payload for each target of these mutations, in the order in which they name them, and how many have none."""
    pieces: dict[str, list[bytes]] = {}
    for key, encoded, explicit in mutations:
        target = explicit or owner(key)
        if target in pieces:
            pieces[target].append(encoded)
        else:
            pieces[target] = [encoded]
    ownerless = len(pieces.pop("", ()))
    return {name: some[0] if len(some) == 1 else b"".join(some) for name, some in pieces.items()}, ownerless


class Router:
    """All shard maps that are still needed, each with the index behind which it is in force."""

    __slots__ = ("_after", "_maps", "_newest", "_owners", "ownerless")

    def __init__(self, first: ShardMap | Owner) -> None:
        self._maps: list[ShardMap | None] = []
        self._after: list[int] = []  # Invariant: rises strictly; the first is 0.
        self._owners: list[Owner] = []
        self._newest = 0
        self.ownerless = 0  # Mutations that name no target and whose key nobody owns: they go nowhere, and are counted.
        self._add(0, first)

    def change(self, after: int, shard_map: ShardMap) -> None:
        """Entries with indexes > ``after`` are routed by ``shard_map``. A repeated record changes nothing."""
        if after > self._newest:
            self._add(after, shard_map)

    def replace_first(self, owner: Owner) -> None:
        """Use a user's own function in place of the first map, which is the only one that no record carries."""
        self._maps[0], self._owners[0] = None, _guarded(owner)

    def versions(self) -> list[tuple[int, ShardMap | None]]:
        """(after, map) of each version; None stands for a user's function, which no record can carry."""
        return list(zip(self._after, self._maps, strict=True))

    def split(self, entry: Entry) -> dict[str, bytes]:
        """The payload for each target of the entry, in the order in which the entry names them."""
        if entry.parts is not None:
            return entry.parts
        entry.parts, ownerless = join_parts(entry.mutations, self.owner_at(entry.index))
        self.ownerless += ownerless
        return entry.parts

    def part(self, entry: Entry, target: str) -> bytes | None:
        """The payload for one target, or None if the entry is not for it."""
        return self.split(entry).get(target)

    def owner_at(self, index: int) -> Owner:
        """The function in force at ``index``, as far as the maps are known by now."""
        if index > self._newest:
            return self._owners[-1]
        return self._owners[bisect_left(self._after, index, lo=1) - 1]

    def _add(self, after: int, first: ShardMap | Owner) -> None:
        if isinstance(first, (HashMap, RangeMap, ExplicitMap)):
            self._maps.append(first)
            self._owners.append(owner_of(first))
        else:
            self._maps.append(None)
            self._owners.append(_guarded(first))
        self._after.append(after)
        self._newest = after

"""The router: the payload of an entry becomes one message per target, by the shard map in force at its index.

Routing is by position, not by time: a map record at index k is in force for indexes > k, so that a catch-up reader
that lags far routes an old entry exactly as the main stream did.

The question "what does each target get of this entry?" has one answer, :class:`Router`: for main stream, catch-up,
survey, the simulator, and the jobs that recompute from the log what a target must hold. Callers that ask it of each
mutation (the log as a Spark table, ``map reappend``) get the same answer from :meth:`Router.route`. It knows the maps,
and which target a mutation is for. It does not know the bytes: its callers bring a ``Cut``, which takes a payload
apart. The product has one, :func:`logplayer.wire.entries.route_transaction`, with the compiled fast path inside, and
beside it :func:`logplayer.wire.entries.split_transaction`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from zlib import crc32

from logplayer.core.entry import Entry, ExplicitMap, HashMap, Mutation, RangeMap, ShardMap
from logplayer.errors import ConfigError, Malformed

Owner = Callable[[bytes], str]  # key -> target; "" means that the key has no owner. It must be a pure function.

# (payload, owner) -> what each target gets, in the order in which the payload names them, and how many mutations have
# no owner. A mutation is for the target that it names, else for the owner of its key: see target_of(). Raises Malformed
# for a payload that cannot be taken apart. The result belongs to the caller.
Cut = Callable[[bytes, Owner], tuple[dict[str, bytes], int]]

# The same without the joining, for callers that want to know it of each mutation: payload -> its mutations.
TakeApart = Callable[[bytes], Iterable[Mutation]]
Routed = tuple[str, Mutation]  # The target that the mutation is for, or NO_OWNER.

NO_OWNER = ""  # In an entry's parts: what names no target and has no owner, or cannot be read.


class HashOwner:
    """The owner of a key by the map that hashes.

    It is an object, so that the compiled fast path can look into it and hash by itself: a call for each mutation would
    cost more than all the rest of it. tests/wire/test_fastpath.py holds the two to the same answer.
    """

    __slots__ = ("separator", "tag", "targets")

    def __init__(self, targets: tuple[str, ...], by: str = "") -> None:
        self.targets = targets
        self.tag = by == "tag"
        word, _, separator = by.partition(" ")
        self.separator = separator.encode() if word == "prefix" else b""
        if by and not self.tag and not self.separator:
            raise ConfigError(f"keys cannot be hashed by {by!r}; write tag, or prefix and a separator: 'prefix /'")

    def __call__(self, key: bytes) -> str:
        return self.targets[crc32(self.part(key)) % len(self.targets)]

    def part(self, key: bytes) -> bytes:
        """What is hashed of a key."""
        if self.separator:
            end = key.find(self.separator)
            return key[:end] if end > 0 else key
        if self.tag:
            start = key.find(b"{") + 1
            end = key.find(b"}", start)
            return key[start:end] if 0 < start < end else key
        return key


def owner_of(shard_map: ShardMap) -> Owner:
    """The function of a shard map."""
    if isinstance(shard_map, ExplicitMap):
        return _nobody
    targets = shard_map.targets
    if not targets:
        raise ConfigError("a shard map needs at least one target")
    if isinstance(shard_map, HashMap):
        return HashOwner(tuple(targets), shard_map.by)
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
    """A user's own function, whose failure is reported as such: it ends the player, and no entry is passed over."""

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


def target_of(mutation: Mutation, owner: Owner) -> str:
    """The target that a mutation is for, or NO_OWNER."""
    return mutation.target or owner(mutation.key)


def join_parts(mutations: Iterable[Mutation], owner: Owner, headers: bytes = b"") -> tuple[dict[str, bytes], int]:
    """What a ``Cut`` returns, of mutations that somebody has taken apart; every target gets the encoded headers."""
    routed = [(target_of(mutation, owner), mutation) for mutation in mutations]
    parts = join_routed(routed, headers)
    parts.pop(NO_OWNER, None)
    return parts, sum(name == NO_OWNER for name, _ in routed)


def join_routed(routed: Iterable[Routed], headers: bytes = b"") -> dict[str, bytes]:
    """What each target gets of an entry; what has no owner is joined too, as NO_OWNER's."""
    pieces: dict[str, list[bytes]] = {}
    for name, mutation in routed:
        pieces.setdefault(name, []).append(mutation.encoded)
    return {name: b"".join((*some, headers)) for name, some in pieces.items()}


class Router:
    """All shard maps that are still needed, each with the index after which it is in force."""

    __slots__ = ("_after", "_maps", "_newest", "_owners")

    def __init__(self, first: ShardMap | Owner | None) -> None:
        """``first`` is None while no map is decided on: then only mutations that name their target are routed."""
        self._maps: list[ShardMap | None] = []
        self._after: list[int] = []  # Invariant: rises strictly; the first is 0.
        self._owners: list[Owner] = []
        self._newest = 0
        self._add(0, first)

    def change(self, after: int, shard_map: ShardMap) -> None:
        """Entries with indexes > ``after`` are routed by ``shard_map``. A repeated record changes nothing."""
        if after > self._newest:
            self._add(after, shard_map)

    def replace_first(self, owner: Owner) -> None:
        """Use a user's own function in place of the first map, which is the only one that no record carries."""
        self._maps[0], self._owners[0] = None, _guarded(owner)

    def begin_with(self, shard_map: ShardMap) -> None:
        """Decide on the first map, if nobody has decided on any."""
        if all(known is None for known in self._maps):
            self._maps[0], self._owners[0] = shard_map, owner_of(shard_map)

    def restart(self, maps: Iterable[tuple[int, ShardMap]]) -> None:
        """Forget all maps and take these; a user's own function in place of the first one stays."""
        own = self._owners[0] if self._maps[0] is None else _nobody
        self._maps, self._after, self._owners = [], [], []
        given = dict(maps)
        self._add(0, given.pop(0, None))
        for after, shard_map in given.items():
            self._add(after, shard_map)
        if own is not _nobody:
            self._maps[0], self._owners[0] = None, own

    def versions(self) -> list[tuple[int, ShardMap | None]]:
        """(after, map) of each version; None means no map yet, or a user's function: no record carries it."""
        return list(zip(self._after, self._maps, strict=True))

    def split(self, entry: Entry, cut: Cut) -> dict[str, bytes]:
        """What each target gets of the entry, in the order in which the entry names them.

        Its maps must be known: the caller has decided every control record before it. An entry that cannot be cut has
        no destination. That is noted in ``malformed`` and not raised: the log goes on after it.
        """
        parts = entry.parts
        if parts is None:
            try:
                parts, unowned = cut(entry.payload, self.owner_at(entry.index))
            except Malformed as error:
                parts, unowned, entry.malformed = {}, 1, str(error)
            if unowned:
                parts[NO_OWNER] = b""  # Part of it is unroutable; see core.unroutable.
            entry.parts = parts
            entry.payload = b""
        return parts

    def route(self, index: int, payload: bytes, take_apart: TakeApart) -> list[Routed]:
        """The mutations of an entry in their order, each with its target: joined, they are what ``split`` returns.

        Raises Malformed for a payload that ``split`` calls malformed.
        """
        owner = self.owner_at(index)
        return [(target_of(mutation, owner), mutation) for mutation in take_apart(payload)]

    def owner_at(self, index: int) -> Owner:
        """The function in force at ``index``, as far as the maps are known by now."""
        if index > self._newest:
            return self._owners[-1]
        return self._owners[bisect_left(self._after, index, lo=1) - 1]

    def _add(self, after: int, first: ShardMap | Owner | None) -> None:
        if first is None:
            self._maps.append(None)
            self._owners.append(_nobody)
        elif isinstance(first, (HashMap, RangeMap, ExplicitMap)):
            self._maps.append(first)
            self._owners.append(owner_of(first))
        else:
            self._maps.append(None)
            self._owners.append(_guarded(first))
        self._after.append(after)
        self._newest = after

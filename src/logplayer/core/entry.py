"""What flows: entries, their mutations, the delivery that one target gets of one entry, and the rows that it writes."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple


class Session(NamedTuple):
    """One stream of one player to one target. Sessions are ordered: first by epoch, then by term.

    ``epoch`` orders players: it is the log index of the player's takeover record. ``term`` orders the sessions
    of one player with one target; the first is 1.
    """

    epoch: int
    term: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.term}"


class Mutation(NamedTuple):
    """One change of one key. ``lp.put``, ``lp.delete`` and ``lp.table`` make it.

    Attributes:
        key: The key that the shard map looks at.
        encoded: The mutation as a protobuf field; a transaction is such fields joined.
        target: The target that gets it. Empty: the shard map decides by key.

    Example:
        >>> import logplayer as lp
        >>> lp.put("alice", "90", target="a").target
        'a'
    """

    key: bytes
    encoded: bytes
    target: str = ""


class Delivery(NamedTuple):
    """What one target gets of one entry. Its mutations are encoded once."""

    index: int  # type: ignore[assignment]  # A field that hides tuple.index, on purpose.
    payload: bytes
    quarantine: bool = False  # The target keeps it aside instead of applying it.
    chain: bytes = b""  # The log's chain value at the index. On the wire only where the batch goes on after it.


class Row(NamedTuple):
    """One key to write, or to delete.

    Attributes:
        entry: The index of its entry.
        key: The key.
        value: The value; None deletes the key, which need not exist.

    Example:
        >>> Row(7, b"alice", None).value is None  # Entry 7 deletes it.
        True
    """

    entry: int
    key: bytes
    value: bytes | None


# --- Control records: decisions that every player must see at the same position of the log. ---------------


@dataclass(frozen=True, slots=True)
class Takeover:
    """A player took over its group. The index of the record is its epoch."""

    group: str = ""
    player: str = ""
    application: int = 0  # The Spark application of the player: the index of its own record. 0: none.


@dataclass(frozen=True, slots=True)
class TargetAdded:
    """From this record on ``target`` is a member, and holds the trim point at ``at`` until it reports its own index.

    ``at`` is where its content begins to be the player's duty: everything up to there must be in it before it opens.
    None means the record's own index, which no trim can have passed. An explicit index may already be trimmed;
    then the target must be re-seeded. For a target that is a member already, only the address changes.
    """

    target: str
    at: int | None = None
    address: str = ""


@dataclass(frozen=True, slots=True)
class TargetRemoved:
    """From this record on ``target`` is not a member. What it has not applied by then it will not get."""

    target: str


@dataclass(frozen=True, slots=True)
class MapChanged:
    """Entries after this record are routed by ``map``."""

    map: ShardMap


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An operator decided that ``target`` moves past the poisoned entry ``index``."""

    target: str
    index: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class QuarantineRevoked:
    """An operator took the decision back: ``target`` gets the entry ``index`` as any other.

    It holds for what is queued from this record on. A target that has index ``index`` by then keeps what it has done.
    """

    target: str
    index: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Decides nothing: on the wire it repeats all decisions, so that older records can be trimmed."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """An operator decided what holds from here on, because the decisions before could not be read any more.

    It replaces all of them. Invariant: ``at`` of a member is never None; the maps' indexes rise.
    """

    members: tuple[TargetAdded, ...]
    maps: tuple[tuple[int, ShardMap], ...]
    quarantined: tuple[tuple[str, int], ...] = ()
    reason: str = ""


# What a control record holds, decoded.
Decision = Takeover | TargetAdded | TargetRemoved | MapChanged | Quarantined | QuarantineRevoked | Checkpoint | Repaired


@dataclass(slots=True)
class Entry:
    """One entry of the log: a transaction as its producer encoded it, or a control record.

    The router splits it once: from then on ``parts`` holds what each target gets, and the payload is let go. The map in
    force at an index never changes, so several readers of one entry share the work.
    """

    index: int
    payload: bytes = field(default=b"", compare=False, repr=False)
    record: Decision | None = None
    parts: dict[str, bytes] | None = field(default=None, compare=False, repr=False)
    malformed: str = field(default="", compare=False)  # Why the payload cannot be split; known once that was tried.
    chain: bytes = b""  # The log's chain value at the index.


# --- Shard maps: data, so that a log record can carry one. ------------------------------------------------


@dataclass(frozen=True, slots=True)
class HashMap:
    """``targets[crc32(part) mod len(targets)]`` owns the key, whose ``part`` is what ``by`` says of it.

    Keys with the same part live together. ``by`` is empty for the whole key; ``tag`` for what stands in the first pair
    of braces (``line/{7}/1``); ``prefix SEP`` for what stands before the first SEP (``prefix :`` for ``7:line:1``). A
    key that has no such part is hashed as a whole.

    Attributes:
        targets: Their names. The order matters.
        by: What is hashed: nothing (the whole key), ``tag`` or ``prefix SEP``.

    Example:
        >>> HashMap(("a", "b"), by="prefix /").targets
        ('a', 'b')
    """

    targets: tuple[str, ...]
    by: str = ""


@dataclass(frozen=True, slots=True)
class RangeMap:
    """``targets[i]`` owns the keys in ``[bounds[i-1], bounds[i])``; there is one bound less than there are targets.

    Attributes:
        bounds: Keys, in rising order.
        targets: The names of the targets, in the order of their ranges.

    Example:
        >>> RangeMap((b"m",), ("a", "b")).targets  # a owns the keys below m, b the others.
        ('a', 'b')
    """

    bounds: tuple[bytes, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExplicitMap:
    """Every mutation names its target itself.

    Example:
        >>> import logplayer as lp
        >>> lp.Config(log="file:///tmp/wal", map=lp.ExplicitMap()).map
        ExplicitMap()
    """


ShardMap = HashMap | RangeMap | ExplicitMap


class Refusal(enum.Enum):
    """Why a target refused a session or a batch; the values are those of ``Reason`` in target.proto."""

    FENCED = 1
    STALE_SESSION = 2
    OUT_OF_SYNC = 3
    BAD_BATCH = 4
    WRONG_TARGET = 5
    WRONG_LOG = 6
    POISON = 7
    DIVERGED = 8

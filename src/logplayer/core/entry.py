"""What flows: mutations, entries, the message that one target gets of one entry, and the rows that it writes."""

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
    """One change of one key. ``encoded`` is the mutation as a protobuf field, ready to be joined."""

    key: bytes
    encoded: bytes
    target: str = ""  # An explicit destination; empty: the shard map decides by key.


class Message(NamedTuple):
    """What one target gets of one entry: its mutations, encoded once. Made once per delivery."""

    index: int  # type: ignore[assignment]  # A field that hides tuple.index, on purpose.
    payload: bytes
    quarantine: bool = False  # The target keeps it aside instead of applying it.


class Row(NamedTuple):
    """One key to write; ``value`` None deletes it, and deleting what is not there is no error."""

    entry: int
    key: bytes
    value: bytes | None


# --- Control records: decisions that every player must see at the same position of the log. ---------------


@dataclass(frozen=True, slots=True)
class Takeover:
    """A player took over its group. The index of the record is its epoch."""

    group: str = ""
    player: str = ""


@dataclass(frozen=True, slots=True)
class TargetAdded:
    """From this record on ``target`` is a member, and holds the trim point at ``at`` until it reports its own index.

    ``at`` is where its content begins to be the player's duty: everything up to there must be in it before it opens.
    None stands for the record's own index, which no trim can have passed. An explicit index may already be trimmed;
    then the target is told to re-seed. For a target that is a member already, only the address changes.
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
    """Entries behind this record are routed by ``map``."""

    map: ShardMap


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An operator decided that ``target`` moves past the poisoned entry ``index``."""

    target: str
    index: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Decides nothing: on the wire it repeats all decisions, so that older records can be trimmed."""


Record = Takeover | TargetAdded | TargetRemoved | MapChanged | Quarantined | Checkpoint


@dataclass(slots=True)
class Entry:
    """One entry of the log: a transaction's mutations, or a control record.

    ``parts`` remembers how the router split it. The map in force at an index never changes, so several readers of one
    entry share the work.
    """

    index: int
    mutations: tuple[Mutation, ...] = ()
    record: Record | None = None
    parts: dict[str, bytes] | None = field(default=None, compare=False, repr=False)


# --- Shard maps: data, so that a log record can carry one. ------------------------------------------------


@dataclass(frozen=True, slots=True)
class HashMap:
    """``targets[crc32(key) mod len(targets)]`` owns the key."""

    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RangeMap:
    """``targets[i]`` owns the keys in ``[bounds[i-1], bounds[i])``; there is one bound less than there are targets."""

    bounds: tuple[bytes, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExplicitMap:
    """Every mutation names its target itself."""


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

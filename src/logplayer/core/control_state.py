"""What the log has decided so far: members, shard maps, quarantined entries. Control records change it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from logplayer.core.entry import (
    Entry,
    MapChanged,
    Quarantined,
    QuarantineRevoked,
    Repaired,
    ShardMap,
    TargetAdded,
    TargetRemoved,
)
from logplayer.core.routing import Owner, Router


@dataclass(slots=True)
class ControlState:
    """The decisions of all control records up to ``through``."""

    router: Router
    members: dict[str, TargetAdded] = field(default_factory=dict)  # Invariant: ``at`` is never None here.
    quarantined: dict[str, set[int]] = field(default_factory=dict)
    through: int = 0  # Records up to here are in; a record read again changes nothing.

    @classmethod
    def start(cls, first_map: ShardMap | Owner | None, targets: tuple[str, ...] = ()) -> ControlState:
        """The decisions of an empty log: a first map, and members from index 0 on."""
        return cls(Router(first_map), {name: TargetAdded(name, 0) for name in targets})

    def decide(self, entry: Entry) -> bool:
        """Take in the entry's record. Returns whether it was new."""
        if entry.index <= self.through:
            return False  # Already in the state that this player started with.
        self.through = entry.index
        record = entry.record
        if isinstance(record, TargetAdded):
            at = entry.index if record.at is None else record.at
            member = self.members.get(record.target)
            # Of a member only the address changes: a later start would tell it to re-seed what the log still has.
            self.members[record.target] = replace(record, at=at if member is None else member.at)
        elif isinstance(record, TargetRemoved):
            self.members.pop(record.target, None)
            self.quarantined.pop(record.target, None)
        elif isinstance(record, MapChanged):
            self.router.change(entry.index, record.map)
        elif isinstance(record, Quarantined):
            self.quarantined.setdefault(record.target, set()).add(record.index)
        elif isinstance(record, QuarantineRevoked):
            self._revoke(record)
        elif isinstance(record, Repaired):
            self.router.restart(record.maps)
            self.members = {member.target: member for member in record.members}
            self.quarantined = {}
            for target, index in record.quarantined:
                self.quarantined.setdefault(target, set()).add(index)
        return True

    def _revoke(self, record: QuarantineRevoked) -> None:
        indexes = self.quarantined.get(record.target, set())
        indexes.discard(record.index)
        if not indexes:
            self.quarantined.pop(record.target, None)

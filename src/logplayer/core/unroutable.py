"""Entries that reach nobody, as a whole or in part: how many, and the first of each kind, which the log must keep.

A part is unroutable if it is for a name that is not a member, if it names no target and nobody owns its key, or if the
entry cannot be read. A name stops being unroutable when it becomes a member: up to its start it was filled, and after
it the log feeds it. When a member is removed, what was for it up to then no longer matters: an operator decided so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from logplayer.core.control_state import ControlState
from logplayer.core.entry import Entry, Mutation, TargetRemoved
from logplayer.core.routing import NO_OWNER, Cut, Routed

NAMES_MAX = 100
MALFORMED_KEPT = 10_000  # Indexes that are remembered, so that each is reported once.


class Unroutable:
    """See the module."""

    __slots__ = ("_first", "_newest", "entries")

    def __init__(self) -> None:
        self.entries = 0  # Each is counted once, however many parts of it reach nobody.
        self._first: dict[str | None, int] = {}  # By name; None means all names beyond the first few.
        self._newest = 0

    def note(self, name: str, index: int) -> bool:
        """A part of entry ``index`` is for ``name``, which is not a member. Returns whether to report it."""
        if index != self._newest:
            self._newest = index
            self.entries += 1
        if name in self._first:
            return False
        if len(self._first) < NAMES_MAX:
            self._first[name] = index
            return True
        self._first.setdefault(None, index)
        return False

    def forgive(self, name: str) -> None:
        """What was noted for ``name`` so far need not be kept: it is a member now, or it was one and was removed."""
        self._first.pop(name, None)

    def first(self) -> int | None:
        """The first entry that must be kept, None if there is none."""
        return min(self._first.values(), default=None)

    def look_at(self, entry: Entry, control: ControlState, cut: Cut) -> Iterable[str]:
        """Note what is unroutable in an entry that is read for that alone; returns the names to report."""
        if isinstance(entry.record, TargetRemoved):
            self.forgive(entry.record.target)
            return ()
        members = control.members
        lost = [name for name in control.router.split(entry, cut) if name not in members]
        return [name for name in lost if self.note(name, entry.index)]


class LostMutations:
    """The mutations that leave the choice to the map and got a target from it that is not a member, in the log's order.

    Appended again, they reach the targets that the map in force then gives them. A mutation that names its target is
    left out: it arrives when that target is added. So is what a member got before it was removed, as for `Unroutable`.
    """

    __slots__ = ("_lost", "_newer")

    def __init__(self) -> None:
        self._lost: dict[int, list[Routed]] = {}
        self._newer: dict[bytes, int] = {}  # The last entry that wrote a lost key and was delivered.

    def look_at(self, index: int, routed: Sequence[Routed], members: Collection[str]) -> None:
        """Note what is lost of entry ``index``, and which lost keys it has written since."""
        lost = [(name, mutation) for name, mutation in routed if not mutation.target and name not in members]
        for name, mutation in routed:
            if mutation.key in self._newer and (name, mutation) not in lost:
                self._newer[mutation.key] = index
        if lost:
            self._lost[index] = lost
            for _, mutation in lost:
                self._newer.setdefault(mutation.key, 0)

    def __contains__(self, index: int) -> bool:
        return index in self._lost

    def forgive(self, name: str) -> None:
        """``name`` was removed: what it got, or would have got, until now is settled."""
        kept = {index: [pair for pair in pairs if pair[0] != name] for index, pairs in self._lost.items()}
        self._lost = {index: pairs for index, pairs in kept.items() if pairs}

    def entries(self) -> dict[int, list[Mutation]]:
        """What is lost of each entry."""
        return {index: [mutation for _, mutation in pairs] for index, pairs in self._lost.items()}

    def overtaken(self) -> set[bytes]:
        """The lost keys that a newer entry, which was delivered, has written: an older value would replace theirs."""
        lost = ((index, mutation.key) for index, pairs in self._lost.items() for _, mutation in pairs)
        return {key for index, key in lost if self._newer[key] > index}


class MalformedSeen:
    """The entries that could not be taken apart: the main stream and each catch-up reader come past them."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, None] = {}  # The last of them, in the order in which they were found.

    def note(self, index: int) -> bool:
        """Returns whether to report it."""
        if index in self._seen:
            return False
        self._seen[index] = None
        if len(self._seen) > MALFORMED_KEPT:
            del self._seen[next(iter(self._seen))]
        return True


def describe(name: str, index: int) -> str:
    """Why a part of an entry is unroutable, for an operator."""
    if name == NO_OWNER:
        return f"entry {index} is unroutable: a mutation names no target, and its key has no owner; correct the map"
    return f"unknown target: entry {index} is for it and is unroutable; add the target, or correct the producer"

"""Repairs a log whose decisions are jammed: nobody can read the newest one, so nobody can add another.

No log of this version lets it come to that; older ones took every control entry, transactions under the name of the
control producer, and trims of the newest control entry. The way out is a ``Repaired`` record. It carries the whole
state again and has the control producer's next sequence, so the chain goes on from it. What was before is not read any
more: players start after it, and their catch-up readers leave control entries alone.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from logplayer.core.control_state import ControlState
from logplayer.core.entry import Repaired
from logplayer.errors import ControlJammed, CorruptEntry, LogError, Malformed, ProducerConflict
from logplayer.log import control_chain as chain
from logplayer.log.control_rules import Guard, Head, head_of
from logplayer.log.protocol import CONTROL_PRODUCER, Info, Kind, Log, NewEntry, Record
from logplayer.log.refusals import trimmed


class JamWatch:
    """Sees the entries of a log in order, and keeps what tells whether its decisions are jammed."""

    def __init__(self) -> None:
        self.sequence = 0  # The newest one under the control producer's name.
        self.usable: Head | None = None  # The newest control entry that players could start from.
        self._newest: Record | None = None
        self._damaged: dict[int, CorruptEntry] = {}

    def see(self, record: Record) -> None:
        if record.producer == CONTROL_PRODUCER:
            self.sequence = record.sequence
        if record.kind == Kind.CONTROL:
            self._newest = record
            with contextlib.suppress(Malformed):
                self.usable = head_of(record)

    def see_damage(self, damage: CorruptEntry) -> None:
        self._damaged[damage.index] = damage

    def jam(self, info: Info) -> ControlJammed | None:
        """What is wrong with the newest decision of the log that ``info`` tells of, all of which was seen."""
        found: Record | LogError | None = self._newest
        if info.control and info.control < info.first:
            found = trimmed(info.control, info.first)
        elif info.control in self._damaged:
            found = self._damaged[info.control]
        sequence = self.sequence
        if not sequence and isinstance(found, Record):
            sequence = found.sequence
        return Guard.after(info.control, sequence, found).jam


class Diagnosis(NamedTuple):
    """What is wrong, the control producer's newest sequence, and the newest decision that can still be followed."""

    jam: ControlJammed | None
    sequence: int
    usable: Head | None


async def examine(log: Log) -> Diagnosis:
    """Read the whole log. Nothing is changed."""
    watch = JamWatch()
    info = await log.info()
    at = info.first
    while at <= info.last:
        try:
            async for records in log.read(at, info.last):
                for record in records:
                    watch.see(record)
                at = records[-1].index + 1
            break
        except CorruptEntry as damage:
            watch.see_damage(damage)
            at = damage.index + 1
    watch.sequence = await _newest_sequence(log)  # Some of them may be trimmed.
    return Diagnosis(watch.jam(info), watch.sequence, watch.usable)


async def _newest_sequence(log: Log) -> int:
    return (await log.newest(CONTROL_PRODUCER)).sequence


def again(control: ControlState, reason: str) -> Repaired:
    """The record that brings these decisions again."""
    return Repaired(
        tuple(control.members.values()),
        tuple((after, shard_map) for after, shard_map in control.router.versions() if shard_map is not None),
        tuple((target, index) for target, indexes in control.quarantined.items() for index in sorted(indexes)),
        reason,
    )


async def repair(log: Log, sequence: int, record: Repaired) -> int:
    """Append the record after the control producer's newest ``sequence``; returns its index."""
    payload = chain.encode(record, ControlState.start(None))
    try:
        [index] = await log.append([NewEntry(CONTROL_PRODUCER, sequence + 1, payload, Kind.CONTROL)])
    except ProducerConflict as conflict:
        raise _too_late(conflict.index) from None
    if (await chain.load(log)).index != index:
        raise _too_late(index)
    return index


def _too_late(index: int) -> LogError:
    return LogError(f"entry {index} has the place of the repair: somebody else repaired the log; look at it again")

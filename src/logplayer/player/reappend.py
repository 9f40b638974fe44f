"""Appends again what reached nobody under a wrong map, so that the corrected map routes it.

Every target has passed the old index already, so that nothing can be delivered there any more; only a new entry can. It
holds the mutations that reached nobody, and no others, byte by byte: one with an operation that this version does not
know is appended too, and its target judges it, as it would have at the old index. The new entry's producer is named
after the old index, with sequence 1: however often this runs, and wherever it was interrupted, the log takes each of
them once.
"""

from __future__ import annotations

from typing import NamedTuple

from logplayer.core.control_state import ControlState
from logplayer.core.entry import TargetRemoved
from logplayer.core.unroutable import LostMutations
from logplayer.errors import ConfigError, Malformed
from logplayer.log.protocol import Kind, Log, NewEntry, Record
from logplayer.player.entries import survey_entries
from logplayer.wire.entries import split_headers, split_transaction

PRODUCER = "reappend/"
GROUP_ENTRIES = 100


class LostEntries(NamedTuple):
    """What is to be appended again, and the keys among it that newer entries have written since."""

    entries: list[NewEntry]
    overtaken: set[bytes]


async def find_lost(log: Log, control: ControlState) -> LostEntries:
    """Look through the whole log for what :class:`LostMutations` calls lost."""
    info = await log.info()
    lost = LostMutations()
    headers: dict[int, bytes] = {}
    async for records in log.read(info.first, info.last):
        for record in records:
            if not record.producer.startswith(PRODUCER):
                _look_at(record, control, lost)
                if record.index in lost:
                    headers[record.index] = split_headers(record.payload)
    owner_now = control.router.owner_at(info.last + 1)
    entries: list[NewEntry] = []
    for index, mutations in lost.entries().items():
        if any(owner_now(mutation.key) not in control.members for mutation in mutations):
            raise ConfigError(
                f"entry {index} would be unroutable again: the map in force gives one of its keys to no target; "
                "correct the map first with 'logplayer map set'"
            )
        payload = b"".join((*(mutation.encoded for mutation in mutations), headers[index]))
        entries.append(NewEntry(f"{PRODUCER}{index}", 1, payload))
    return LostEntries(entries, lost.overtaken())


def _look_at(record: Record, control: ControlState, lost: LostMutations) -> None:
    if record.kind == Kind.CONTROL:
        [entry] = survey_entries([record])
        if isinstance(entry.record, TargetRemoved):
            lost.forgive(entry.record.target)
        return
    try:
        routed = control.router.route(record.index, record.payload, split_transaction)
    except Malformed:
        return  # The player has reported it. No map can route it.
    lost.look_at(record.index, routed, control.members)


async def reappend(log: Log, entries: list[NewEntry]) -> list[int]:
    """Append them in their old order; the indexes that they have now, also of those that were there already."""
    indexes: list[int] = []
    for start in range(0, len(entries), GROUP_ENTRIES):
        indexes += await log.append(entries[start : start + GROUP_ENTRIES])
    return indexes

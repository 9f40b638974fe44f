"""Trims the log behind all targets of all groups: what one player does by itself when it has them all."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from logplayer.core.entry import Checkpoint, ShardMap
from logplayer.log.protocol import Log
from logplayer.player import control as chain

TRIM_ENTRIES_MIN = 10_000
CHECKPOINT_ENTRIES = 1_000


async def trim_behind(log: Log, indexes: Mapping[str, int], members: Collection[str], first_map: ShardMap) -> int:
    """Trim up to what every member has durably, by its own word; returns how far, 0 if it is not worth it.

    A member that was not heard of holds everything. The newest control record is never trimmed: if it is in the way,
    it is repeated further on, for the next time.
    """
    if not members or any(name not in indexes for name in members):
        return 0
    point = min(indexes[name] for name in members)
    info = await log.info()
    if point - (info.first - 1) < TRIM_ENTRIES_MIN:
        return 0
    newest = info.control
    if newest <= point and info.last - newest > CHECKPOINT_ENTRIES:
        newest, _ = await chain.append(log, Checkpoint(), first_map)
    allowed = min(point, newest - 1)
    if allowed < info.first:
        return 0
    await log.trim(allowed)
    return allowed

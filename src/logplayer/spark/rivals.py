"""Which of two applications is the later one: the log says, as it says everything else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from logplayer.core.entry import Takeover
from logplayer.log.protocol import Log
from logplayer.player import control as chain
from logplayer.spark.groups import APPLICATION, worker_name
from logplayer.wire.entries import decode_control

if TYPE_CHECKING:
    from logplayer.spark.resident import ResidentConfig

_EPOCH = re.compile(r"epoch (\d+) has taken over|fenced by (\d+)\.")
_NUMBER = re.compile(rf"{APPLICATION}(\d+)")


async def register(log: Log, config: ResidentConfig) -> int:
    """Put the application itself into the log, as a takeover of a group that no player has; its index is its number."""
    record = Takeover(f"{config.name}/applications", worker_name())
    number, _ = await chain.append(log, record, config.map, tuple(config.targets.items()))
    return number


async def application_of(log: Log, why: str) -> int:
    """The application whose player made ours step down; 0 if it has none or it cannot be told.

    The reason names an epoch, the epoch is the index of a takeover record, and the record names the player.
    """
    found = _EPOCH.search(why)
    if found is None:
        return 0
    epoch = int(found.group(1) or found.group(2))
    async for records in log.read(epoch, epoch):
        record = decode_control(records[0].payload)
        number = _NUMBER.search(record.player) if isinstance(record, Takeover) else None
        return int(number.group(1)) if number else 0
    return 0

"""Which of two applications is the later one: the log says, as it says everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logplayer.core.entry import Takeover
from logplayer.log import control_chain as chain
from logplayer.log.protocol import Log
from logplayer.player.maps import check_start
from logplayer.player.start import ask_targets, leave_alone
from logplayer.spark.resident.groups import worker_name

if TYPE_CHECKING:
    from logplayer.config import Config


async def register(log: Log, config: Config) -> int:
    """Put the application itself into the log, as a takeover of a group that no player has; its index is its number.

    Raises ConfigError if nothing would arrive, or if another player plays now and is not to be replaced.
    """
    configured = tuple(config.targets.items())
    head = await chain.load(log)
    decided = chain.begin(head, config.map, configured)
    check_start(decided, config.map, config.targets, head.state is not None)
    if not config.take_over:
        members = decided.members.items()
        addresses = {name: config.targets.get(name) or member.address for name, member in members}
        await leave_alone(log, addresses, await ask_targets(addresses, config.security), config.security)
    record = Takeover(f"{config.group}/applications", worker_name())
    number, _ = await chain.append(log, record, config.map, configured)
    return number

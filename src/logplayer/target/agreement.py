"""Whether what a target has is what the log has: its index alone does not say that.

A log that was restored from an older backup has other entries at the indexes that it lost. A target that had those
keeps its index, and looks as if it had the new ones. The chain value that it keeps beside its index tells them apart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from logplayer.core.claims import judge, lacks
from logplayer.core.events import LookedUp
from logplayer.core.fence import Position
from logplayer.errors import TargetError
from logplayer.log.chain import chain_at
from logplayer.log.protocol import Log


async def agreed_position(log: Log, target: str, ask: Callable[[], Awaitable[Position]]) -> Position:
    """The position that ``ask`` brings, once the log has the same history up to there.

    Raises ``TargetError`` if it has another one, or if the log was trimmed past the target and can no longer tell.
    """
    before = None
    while True:
        found = await ask()
        info = await log.info()  # Afterwards: what a target of this history has was in the log before.
        if found.log_id and found.log_id != info.log_id:
            raise TargetError(
                f"{target} was filled from log {found.log_id!r}, not from {info.log_id!r}; name the log that feeds it, "
                "or another target"
            )
        chain = await chain_at(log, found.index, info)
        blocked = judge(LookedUp(target, found.index, info.first, info.last, chain=chain), found.chain)
        if blocked is not None:
            raise TargetError(f"{target} has diverged from the log: {blocked.detail}")
        if chain is not None:
            return found
        if found.index == before:  # It stays where the log was trimmed, so it will not get further by waiting.
            lacking = lacks(found.index, info.first - 1, info.first - 1)
            raise TargetError(f"{target} cannot be compared with the log: {lacking.detail}")
        before = found.index  # Trimmed meanwhile, which a player does only up to what its targets have: ask again.

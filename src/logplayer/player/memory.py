"""How much of the log a player may hold in memory: the formula of "Capacity" in docs/operations.md."""

from __future__ import annotations

from logplayer.config import Config
from logplayer.player.catch_up_reader import CHUNKS_KEPT


def held_bytes_max(config: Config, targets: int) -> int:
    """What is queued, unacked, or kept so that it need not be read again, when all targets lag.

    The process takes more: what it has without any entry, and up to as much again for the copies that are encoded,
    decoded and in the buffers of connections.
    """
    limits = config.limits
    queued = targets * (limits.queue_bytes_max + limits.flight_bytes_max)
    newest = limits.queue_bytes_max
    catching_up = (config.catch_up_readers_max + CHUNKS_KEPT) * config.catch_up_bytes
    return queued + newest + catching_up

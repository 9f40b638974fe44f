"""The core's limits. Each field says what a wrong value costs; relations between fields are checked."""

from __future__ import annotations

from dataclasses import dataclass, fields

from logplayer.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a player holds per target, and how long it waits. Milliseconds are the core's unit of time.

    Example:
        >>> Limits(queue_count_max=100).queue_count_max
        100
    """

    queue_count_max: int = 4096  # Too low: targets fall back to catch-up under bursts. Too high: memory per target.
    queue_bytes_max: int = 8 << 20  # The same, in bytes. A single larger message still passes, alone.
    batch_count_max: int = 1024  # Too low: one write per few entries. Too high: one slow commit holds many acks back.
    batch_bytes_max: int = 256 << 10  # 64 to 256 KB is where a gRPC write is cheapest per byte.
    flight_batches_max: int = 16  # Unacked batches. Too low: the stream idles for a round trip.
    flight_bytes_max: int = 4 << 20  # Unacked bytes; a frozen target costs us as much. Over 8 MiB: also its neighbours.
    idle_entries_max: int = 1000  # An idle target is moved on after this many indexes. Too high: long re-reads.
    idle_ms_max: int = 1000  # ... or after this time. Too low: needless empty batches. Too high: trim waits.
    heartbeat_ms: int = 1000  # A probe goes out when nothing was heard for this long.
    silence_ms_max: int = 4000  # A session that stays silent longer is given up. Too low: pauses look like deaths.
    progress_ms_max: int = 10000  # Unacked batches that stay unacked longer end the session. Above the slowest commit.
    open_ms_max: int = 5000  # How long an Open may stay unanswered.
    backoff_ms_min: int = 50  # The first reconnect waits about this long; each failure doubles it, with jitter.
    backoff_ms_max: int = 5000  # Too high: a target that is back waits this long for us.
    blocked_ms: int = 30000  # A refused target (wrong log, wrong id, poisoned) is looked at again after this long.
    tick_ms_max: int = 1000  # Longer gaps between ticks are our own pause and not held against the targets.
    trim_entries_min: int = 10000  # Trim in steps of at least this many indexes. Too low: needless work for the log.

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{field.name} = {value!r}: must be a whole number of at least 1")
        self._require(self.heartbeat_ms < self.silence_ms_max, "heartbeat_ms", "silence_ms_max")
        # One tick may age a session by tick_ms_max: above the silence limit, a pause of ours would end them all.
        self._require(self.tick_ms_max < self.silence_ms_max, "tick_ms_max", "silence_ms_max")
        self._require(self.backoff_ms_min <= self.backoff_ms_max, "backoff_ms_min", "backoff_ms_max")
        self._require(self.batch_bytes_max <= self.flight_bytes_max, "batch_bytes_max", "flight_bytes_max")

    def _require(self, holds: bool, small: str, large: str) -> None:
        if not holds:
            raise ConfigError(
                f"{small} = {getattr(self, small)} does not fit {large} = {getattr(self, large)}: "
                f"lower {small} or raise {large}"
            )

"""When to try a target again: back-off with jitter after a loss, and what blocks a target until somebody acts."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from logplayer.core.limits import Limits

_REFUSED_AT_OPEN = ("RESEED", "FENCED", "DIVERGED", "WRONG_LOG", "WRONG_TARGET")


@dataclass(frozen=True, slots=True)
class Blocked:
    """Retrying alone will not help.

    ``kind`` is one of POISON, RESEED, FENCED, DIVERGED, WRONG_LOG, WRONG_TARGET, BAD_BATCH; or HELD, by an operator.
    """

    kind: str
    detail: str
    index: int = 0

    @property
    def stays(self) -> bool:
        """Whether only an operator's retry ends it."""
        return self.kind == "HELD"


class Reconnect:
    """The reconnect plan of one target."""

    __slots__ = ("_limits", "_name", "attempts", "blocked", "last_error", "retry_at")

    def __init__(self, name: str, limits: Limits) -> None:
        self._name = name
        self._limits = limits
        self.attempts = 0  # Sessions lost since the last progress; an ack that is news sets it back.
        self.retry_at = 0
        self.blocked: Blocked | None = None
        self.last_error = ""

    def lost(self, now: int, error: str) -> None:
        """The session is gone: wait longer after each loss, up to a limit, and not all targets in step."""
        limits = self._limits
        wait = min(limits.backoff_ms_max, limits.backoff_ms_min << min(self.attempts, 20))
        self.attempts += 1
        self.retry_at = now + wait // 2 + self._jitter(wait - wait // 2)
        if error:
            self.last_error = error

    def block(self, now: int, blocked: Blocked) -> None:
        """Stop trying, but look again now and then: an operator may have repaired the target."""
        self.blocked = blocked
        self.last_error = f"{blocked.kind}: {blocked.detail}"
        self.retry_at = now + self._limits.blocked_ms

    def admitted(self) -> None:
        """The target opened a session: what an Open is refused for is over. A poisoned entry is still ahead."""
        if self.blocked is not None and self.blocked.kind in _REFUSED_AT_OPEN:
            self.blocked = None

    def unblock(self, now: int) -> None:
        """Somebody acted: try at once."""
        self.blocked = None
        self.retry_at = now

    def due(self, now: int) -> bool:
        """Whether a new session may be opened now."""
        return now >= self.retry_at and not (self.blocked is not None and self.blocked.stays)

    def _jitter(self, span: int) -> int:
        # The core has no random numbers: the name and the attempt spread the targets well enough.
        return crc32(f"{self._name}/{self.attempts}".encode()) % (span + 1)

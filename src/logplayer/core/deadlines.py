"""Deadlines of one session: is the peer silent, is it stuck, is a probe due? Time comes in as ``now``."""

from __future__ import annotations

from logplayer.core.limits import Limits


class Deadlines:
    """When the target was last heard, made progress, and was written to: acks and sends set these times."""

    __slots__ = ("_limits", "_opening", "heard_at", "probed_at", "progress_at", "sent_at")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._opening = False
        self.heard_at = 0
        self.progress_at = 0
        self.sent_at = 0
        self.probed_at = 0

    def opening(self, now: int) -> None:
        """The Open is on its way."""
        self._opening = True
        self.heard_at = now

    def opened(self, now: int) -> None:
        """The session is open."""
        self._opening = False
        self.heard_at = self.progress_at = self.sent_at = self.probed_at = now

    def overdue(self, now: int, in_flight: int) -> str:
        """Why the session must be given up, or an empty string."""
        limits = self._limits
        if self._opening:
            if now - self.heard_at > limits.open_ms_max:
                return f"no answer to Open for {now - self.heard_at} ms"
            return ""
        if now - self.heard_at > limits.silence_ms_max:
            return f"silent for {now - self.heard_at} ms"
        if in_flight and now - self.progress_at > limits.progress_ms_max:
            return f"no progress for {now - self.progress_at} ms with {in_flight} batches in flight"
        return ""

    def probe_due(self, now: int) -> bool:
        """Whether to ask for a sign of life; asking is remembered, so that a probe goes out once per interval."""
        wait = self._limits.heartbeat_ms
        if now - self.heard_at < wait or now - self.probed_at < wait:
            return False
        self.probed_at = now
        return True

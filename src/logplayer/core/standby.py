"""When a standby takes over: ``looked`` with what it saw, and the answer is whether it is time.

Theory of operation
===================

A standby needs no protocol of its own. A takeover is a record that any player may append at any time: the log orders
them, the targets refuse the older epoch, and the older player steps down. So a wrong guess of a standby never costs
exactly-once; it costs the pause of one needless takeover. All that is decided here is when a guess is good enough.

What is seen, and what it means
-------------------------------
Whether a target is fed, :mod:`logplayer.core.alive` says. If no target answers, nothing is known, and nothing is won by
a takeover either.

Nobody plays if some target answers and none is fed, for ``GONE_MS``: a moment without a session is not a death.

Two standbys
------------
Both see the same death. The first one's takeover is a control record: the other sees that the log's newest control
record has changed, and gives the new player ``GRACE_MS`` to connect. If both append before either looks, the later
record wins by the rules that hold for all players, and the other one is superseded and stands by again.

Why the wait grows
------------------
A player that can feed nobody (every store refuses an entry for good, say) looks like a dead one. Two standbys would
take over from each other for ever. So each takeover after which nobody was seen to be fed doubles the wait for the
next, up to ``GRACE_MS_MAX``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from logplayer.core.alive import TargetSeen

GONE_MS = 500  # Too low: a player that renews its sessions is replaced. Too high: added to every failover.
GRACE_MS = 2_000  # Too low: standbys take over from each other. Too high: a new player that dies at once is missed.
GRACE_MS_MAX = 60_000


@dataclass(slots=True)
class Standby:
    """What one standby remembers from look to look. Times are milliseconds of a clock that never goes back."""

    fed: str = ""  # A target that was fed at the last look: asking it alone is enough while it is.
    control: int = -1  # The log's newest control record at the last look.
    _gone_since: int | None = None
    _grace_until: int = 0
    _fruitless: int = field(default=0)  # Takeovers in a row after which nobody was seen to be fed.

    def ask(self, members: Collection[str]) -> frozenset[str]:
        """Which targets to ask in the next look."""
        return frozenset({self.fed} if self.fed in members else members)

    def looked(self, now: int, control: int, seen: Mapping[str, TargetSeen]) -> bool:
        """Whether to take over, by what was seen of those targets that were asked and answered."""
        if control != self.control:
            self._noticed_decision(now, control)
        self.fed = next((name for name, target in sorted(seen.items()) if target.fed), "")
        if self.fed:
            self._fruitless = 0
            self._gone_since = None
            return False
        if not seen:
            self._gone_since = None  # Nothing is known, and nobody could be fed.
            return False
        if self._gone_since is None:
            self._gone_since = now
        return now - self._gone_since >= GONE_MS and now >= self._grace_until

    def _noticed_decision(self, now: int, control: int) -> None:
        """A record that is new to us may be somebody's takeover: that player gets time to connect."""
        if self.control >= 0:
            self._grace_until = now + min(GRACE_MS << min(self._fruitless, 16), GRACE_MS_MAX)
            self._fruitless += 1
        self.control = control

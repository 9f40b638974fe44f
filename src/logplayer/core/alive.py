"""Whether a player lives, by what the targets say: one rule for a player that starts and for a standby.

Each target knows whether the stream of its current session is open, and how long it has waited for a word on it. A
player that lives sends each target that it has a session with a batch or a probe about once a second. So

- a target that is connected and not quiet is *fed*: somebody plays. One is enough, since a living player may have lost
  some of its targets, and the others would lose theirs by a takeover;
- a target that is not connected, or quiet for more than ``QUIET_MS``, is not fed: the kernel of a killed player has
  closed its sockets, and a player that hangs, is cut off or was on a machine that is gone says nothing;
- a target that does not answer says nothing about the player.

An open stream alone proves nothing: that of a machine that lost its power stays open at the target, because nothing
closes it. So a player that starts waits until each fed target has become quiet, or until one has had a word that was
sent while the newcomer watched: not longer than ``QUIET_MS`` and ``CLOSING_MS`` together. The last words of a player
that is just ending must not count, hence ``CLOSING_MS``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

QUIET_MS = 4_000  # The player's own limit for a silent target. Too low: a pause of the player looks like its death.
CLOSING_MS = 1_000  # A player that still feeds after so long is not just ending. Too high: each mistake takes longer.


@dataclass(frozen=True, slots=True)
class TargetSeen:
    """A target's answer: whether the stream of its session is open, and how long it has been quiet."""

    connected: bool
    quiet_ms: int = 0  # 0 also if the target cannot tell.

    @property
    def fed(self) -> bool:
        return self.connected and self.quiet_ms <= QUIET_MS


class Presence(enum.Enum):
    """What a player that starts knows about others."""

    NOBODY = "nobody plays"
    UNCLEAR = "a stream is open, and has carried no word since we watch"
    ALIVE = "somebody plays"


def presence(watched_ms: int, seen: Mapping[str, TargetSeen]) -> Presence:
    """Judge by answers to questions that were asked ``watched_ms`` after the first ones."""
    fed = [target for target in seen.values() if target.fed]
    if not fed:
        return Presence.NOBODY
    newest = min(target.quiet_ms for target in fed)
    return Presence.ALIVE if watched_ms - newest >= CLOSING_MS else Presence.UNCLEAR

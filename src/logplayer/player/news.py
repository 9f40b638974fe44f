"""Every change of a target's state becomes one line in the player's log, with the reason.

The shell looks at the queues after each tick and compares them with what it has said. Nothing of this reaches the core:
a player that says nothing decides the same. No loss is missed between two looks: sessions are opened on ticks, so a
target that lost its session is still without one at the next look, or its term tells.

A target that is away is tried again and again; that is one line, and one more whenever the reason is new. A target that
comes and goes is seen to do so, up to ``LINES_MAX`` lines a minute; what was left out is counted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping

from logplayer.core.control_state import ControlState
from logplayer.core.reconnect import Blocked
from logplayer.core.target_queue import State, TargetQueue
from logplayer.observe.timeline import DECISION, SESSION, STATE, Timeline

logger = logging.getLogger("logplayer.player")

BLOCKED = "BLOCKED"
LINES_MAX = 10  # Of one target within WINDOW_SECONDS.
WINDOW_SECONDS = 60.0
REASONS_KEPT = 20

Seen = tuple[State, int, Blocked | None, str, str]


def state_of(queue: TargetQueue) -> str:
    """The state that an operator should know. A poisoned target that is tried again stays blocked until it moves on."""
    return BLOCKED if queue.reconnect.blocked is not None else queue.state.value


class News:
    """What was said about each target."""

    def __init__(self, timeline: Timeline | None = None) -> None:
        self._timeline = timeline or Timeline(logger)
        self._told: dict[str, _Told] = {}
        self._begun = False
        self._decided: tuple[int, dict[str, frozenset[int]]] | None = None

    def look(self, queues: Mapping[str, TargetQueue], current: int, now: float) -> None:
        """Say what has changed; ``now`` is in seconds of any steady clock."""
        for name in [name for name in self._told if name not in queues]:
            self._timeline.say(logging.INFO, DECISION, "target %s: removed", name, target=name)
            del self._told[name]
        for name, queue in queues.items():
            told = self._told.get(name)
            if told is None:
                told = self._told[name] = _Told(name, now, self._timeline)
                if self._begun:
                    told.say(logging.INFO, "added", now, DECISION)
            told.look(queue, current, now)
        self._begun = True

    def look_at_decisions(self, control: ControlState) -> None:
        """Say which entries were quarantined, or are no longer, since the last look."""
        if self._decided is not None and self._decided[0] == control.through:
            return
        now = {name: frozenset(indexes) for name, indexes in control.quarantined.items()}
        before = self._decided[1] if self._decided is not None else now
        self._decided = control.through, now
        for name in now.keys() | before.keys():
            for what, indexes in (
                ("is quarantined", now.get(name, frozenset()) - before.get(name, frozenset())),
                ("is not quarantined any more", before.get(name, frozenset()) - now.get(name, frozenset())),
            ):
                for index in sorted(indexes):
                    text = "target %s: entry %d %s"
                    self._timeline.say(logging.INFO, DECISION, text, name, index, what, target=name, index=index)

    def state_seconds(self, name: str, now: float) -> float:
        """How long the target has been in its state."""
        told = self._told.get(name)
        return max(0.0, now - told.since) if told is not None else 0.0


class _Told:
    """What was said about one target."""

    def __init__(self, name: str, now: float, timeline: Timeline) -> None:
        self.name = name
        self._timeline = timeline
        self.state = State.SUSPENDED.value
        self.since = now
        self._seen: Seen | None = None
        self._term = 0
        self._reasons: list[str] = []  # Of the present outage, so that each is said once.
        self._read_error = ""
        self._lines: deque[float] = deque()  # When the last lines were logged.
        self._left_out = 0

    def look(self, queue: TargetQueue, current: int, now: float) -> None:
        health = queue.reconnect
        seen = (queue.state, queue.term, health.blocked, health.last_error, queue.read_error)
        if seen != self._seen:
            self._seen = seen
            self._changed(queue, current, now)
        elif self._left_out and self._may(now):
            self.say(logging.INFO, self.state, now)

    def _changed(self, queue: TargetQueue, current: int, now: float) -> None:
        before, self.state = self.state, state_of(queue)
        renewed = queue.term != self._term and before not in (State.SUSPENDED.value, BLOCKED)
        self._term = queue.term
        if self.state != before or renewed:
            self.since = now
        if self.state == BLOCKED:
            return  # The core has reported it, with the reason.
        if self.state == State.SUSPENDED.value:
            self._suspended(queue, before, now)
            return
        if renewed:
            self.say(logging.WARNING, f"SUSPENDED for a moment: {queue.reconnect.last_error}", now, SESSION)
        if self.state != before or renewed:
            self._reasons.clear()
            self._playing(queue, before, current, now)
        if queue.read_error and queue.read_error != self._read_error:
            self.say(logging.ERROR, f"cannot catch up: {queue.read_error}; trying again", now)
        self._read_error = queue.read_error

    def _suspended(self, queue: TargetQueue, before: str, now: float) -> None:
        if before == BLOCKED:
            self.say(logging.INFO, "no longer blocked; trying again", now)
            return
        reason = queue.reconnect.last_error
        if not queue.reconnect.attempts or reason in self._reasons:
            return  # Not tried yet, or known.
        still = "still " if self._reasons else ""
        self._reasons = [*self._reasons[-REASONS_KEPT:], reason]
        has = f"has index {queue.acked}; " if queue.known else ""
        self.say(logging.WARNING, f"{still}SUSPENDED: {reason or 'the session ended'}; {has}trying again", now)

    def _playing(self, queue: TargetQueue, before: str, current: int, now: float) -> None:
        if queue.state is State.LIVE:
            text = f"LIVE: follows the log from entry {current + 1} on, has index {queue.acked}"
        else:
            why = "its queue was full" if before == State.LIVE.value else "connected"
            lag = max(0, current - queue.acked)
            text = f"CATCHING_UP: {why}, has index {queue.acked}, lags by {lag} {'entry' if lag == 1 else 'entries'}"
        self.say(logging.INFO, text, now)

    def say(self, level: int, text: str, now: float, kind: str = STATE) -> None:
        """One line, unless there were too many of late."""
        if not self._may(now):
            self._left_out += 1
            return
        more = f" ({self._left_out} changes before this were not logged)" if self._left_out else ""
        self._left_out = 0
        self._lines.append(now)
        self._timeline.say(level, kind, "target %s: %s%s", self.name, text, more, target=self.name, state=self.state)

    def _may(self, now: float) -> bool:
        while self._lines and now - self._lines[0] >= WINDOW_SECONDS:
            self._lines.popleft()
        return len(self._lines) < LINES_MAX

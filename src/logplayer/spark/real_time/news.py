"""The time line of a query in real time: its starts and ends, the states of its targets, the log's decisions.

Each item is a line of the log, too. A time line belongs to one thread, so everything is said on the background loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from logplayer.observe.timeline import DECISION, EPOCH, FAULT, LOG, STATE, Timeline
from logplayer.player.news import News
from logplayer.spark import event_loop
from logplayer.spark.real_time.plan import Decided

LOOK_SECONDS = 0.5


class QueryNews:
    """Says what has changed. ``status`` is the query's."""

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        self.timeline = Timeline(logging.getLogger("logplayer.spark"))
        self._status = status
        self._decisions = News(self.timeline)
        self._members: frozenset[str] | None = None
        self._states: dict[str, str] = {}
        self._log_error = ""

    def follow(self) -> Future[None]:
        """Look again and again, until the result is cancelled."""
        return event_loop.submit(self._follow())

    def started(self, starts: int, epoch: int, group: str, decided: Decided) -> None:
        """The query runs. From any thread, like the others."""
        event_loop.background().call_soon_threadsafe(self._started, starts, epoch, group, decided)

    def waits(self, state: str, reason: str) -> None:
        """It has ended, and starts again later."""
        self._post(logging.WARNING, FAULT, "the query is %s: %s", state, reason)

    def ended(self, state: str, reason: str) -> None:
        """It has ended for good."""
        level, kind = (logging.ERROR, FAULT) if state == "failed" else (logging.INFO, EPOCH)
        self._post(level, kind, "the query has ended: %s%s", state, f", {reason}" if reason else "")

    def _post(self, level: int, kind: str, text: str, *args: object) -> None:
        event_loop.background().call_soon_threadsafe(self.timeline.say, level, kind, text, *args)

    def _started(self, starts: int, epoch: int, group: str, decided: Decided) -> None:
        self.timeline.facts = {"log_id": decided.log_id, "group": group, "epoch": epoch}
        members, before = frozenset(decided.addresses), self._members
        self._members = members
        for word, names in (("added", members - (before or members)), ("removed", (before or members) - members)):
            for name in sorted(names):
                self.timeline.say(logging.INFO, DECISION, "target %s: %s", name, word, target=name)
        self._decisions.look_at_decisions(decided.control)
        what = f"took over with epoch {epoch}" if starts == 1 else "started again"
        self.timeline.say(logging.INFO, EPOCH, "the query %s, with the decisions up to entry %d", what, decided.through)

    async def _follow(self) -> None:
        while True:
            self._look(self._status())
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self, status: Mapping[str, Any]) -> None:
        error = status["log_error"]
        if error and error != self._log_error:
            self.timeline.say(logging.ERROR, LOG, "stuck: %s; trying again", error)
        elif self._log_error and not error:
            self.timeline.say(logging.INFO, LOG, "the log can be read again")
        self._log_error = error
        for target in status["targets"]:
            self._look_at(target, status["state"] == "starting")

    def _look_at(self, target: Mapping[str, Any], starting: bool) -> None:
        name, state = target["target"], target["state"]
        moves = state in ("LIVE", "CATCHING_UP")
        if self._states.get(name) == state or (starting and not moves):
            return  # At first its tasks have not reported: that says nothing of a target.
        self._states[name] = state
        level = logging.INFO if moves else logging.WARNING
        told = f": {target['error']}" if target["error"] else f", has index {target['index']}"
        facts = {"target": name, "state": state, "index": target["index"]}
        self.timeline.say(level, STATE, "target %s: %s%s", name, state, told, **facts)

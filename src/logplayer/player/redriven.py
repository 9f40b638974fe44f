"""Which quarantined entries were redriven: appended again, so that their targets get them after all.

The decision to quarantine an entry stays in the log, since it says what the target has at that index. That the entry
was redriven follows from the log as well: the redriven one has a producer of its own, which the log knows however far
it was trimmed. So the log is asked once for each decision, and the main stream tells what comes later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping

from logplayer.core.control_state import ControlState
from logplayer.errors import LogPlayerError
from logplayer.log.protocol import Log, Record

LOOK_SECONDS = 1.0
ANSWER_SECONDS = 3.0
_PREFIX = "redrive/"


def redriver(target: str, index: int) -> str:
    """The producer of the entry that is what ``target`` was to get of the entry at ``index``."""
    return f"{_PREFIX}{target}/{index}"


class Redriven:
    """What was redriven, as far as it is known."""

    def __init__(self) -> None:
        self._producers: set[str] = set()
        self._asked: set[tuple[str, int]] = set()

    def waiting(self, target: str, quarantined: Mapping[str, Iterable[int]]) -> list[int]:
        """The entries that are quarantined at the target and were not redriven."""
        found = quarantined.get(target, ())
        return sorted(index for index in found if redriver(target, index) not in self._producers)

    def read(self, records: Iterable[Record]) -> None:
        """The main stream read these."""
        self._producers.update(record.producer for record in records if record.producer.startswith(_PREFIX))

    async def follow(self, log: Log, control: Callable[[], ControlState]) -> None:
        """Ask about each decision, for ever. What the log does not answer is asked again."""
        while True:
            with contextlib.suppress(LogPlayerError, OSError, TimeoutError):
                await self.look(log, control().quarantined)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self, log: Log, quarantined: Mapping[str, Iterable[int]], once: bool = True) -> None:
        """Ask about each decision. ``once``: whoever reads the main stream need not ask about one again."""
        decided = {(target, index) for target, indexes in quarantined.items() for index in indexes}
        self._asked &= decided
        if not once:
            self._asked.clear()
        for target, index in sorted(decided - self._asked):
            producer = redriver(target, index)
            if producer in self._producers:
                continue
            async with asyncio.timeout(ANSWER_SECONDS):
                newest = await log.newest(producer)
            if newest.sequence:
                self._producers.add(producer)
            self._asked.add((target, index))

"""The time line of a process: what happened to it and who decided what, newest last, in bounded memory.

Each item is a line of the log as well, with the same facts as fields: see :mod:`logplayer.observe.logs`.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Mapping
from typing import Any

ITEMS_MAX = 500

EPOCH, SESSION, STATE, FENCE, FAULT, DECISION, LOG, AUDIT, DEMO = (
    "epoch", "session", "state", "fence", "fault", "decision", "log", "audit", "demo",
)  # fmt: skip
"""What an item is about."""


class Timeline:
    """What was said, and where to go on reading: ``number`` rises by one for each item."""

    def __init__(self, logger: logging.Logger | None = None, items_max: int = ITEMS_MAX) -> None:
        self._logger = logger
        self._items: deque[dict[str, Any]] = deque(maxlen=items_max)
        self.name = uuid.uuid4().hex[:12]  # Two processes' time lines both begin at 1.
        self.number = 0
        self.facts: dict[str, Any] = {}  # Of every item: log id, group, epoch.

    def say(self, level: int, kind: str, text: str, *args: object, **facts: Any) -> None:
        """One item. ``facts``: target, index, state and so on, for readers that are programs."""
        self.number += 1
        known = {**self.facts, **facts}
        item = {"number": self.number, "at": round(time.time(), 3), "level": logging.getLevelName(level).lower()}
        self._items.append({**item, "kind": kind, "text": text % args if args else text, **known})
        if self._logger is not None:
            self._logger.log(level, text, *args, extra={"facts": {"kind": kind, **known}})

    def take(self, item: Mapping[str, Any]) -> None:
        """An item of another time line, as a new one of this; it is not logged again."""
        self.number += 1
        self._items.append({**item, "number": self.number})

    def since(self, number: int) -> list[dict[str, Any]]:
        """The items after ``number`` that are still kept."""
        fresh = self.number - number
        return list(self._items)[-fresh:] if fresh > 0 else []

"""A call that waits in the writer of a log on Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from logplayer.errors import LogError
from logplayer.log.protocol import History, NewEntry


@dataclass(eq=False)
class KafkaLogRequest:
    """One call that waits: a group, or a trim when ``entries`` is empty."""

    entries: Sequence[NewEntry]
    up_to: int
    future: asyncio.Future[list[int]]
    deadline: float
    history: History | None = None  # What a trim is meant for.
    indexes: list[int] = field(default_factory=list)
    open: int = 0  # Entries whose index is not known yet.
    bytes: int = 0
    began: float = 0.0  # When it was sent.

    def fill(self, place: int, index: int) -> None:
        self.indexes[place] = index
        self.open -= 1
        if not self.open and not self.future.done():
            self.future.set_result(self.indexes)

    def fail(self, error: LogError) -> None:
        if not self.future.done():
            self.future.set_exception(error)

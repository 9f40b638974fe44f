"""What waits in the writer of a replicated log, and what is on its way to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from logplayer.errors import LogError
from logplayer.log.protocol import History, NewEntry
from logplayer.log.sequences import Run


@dataclass(eq=False)
class WriteRequest:
    """One call that waits: a group; or, without entries, a question for ``producer``; or, without that, a trim."""

    entries: Sequence[NewEntry]
    up_to: int
    future: asyncio.Future[list[int]]
    deadline: float
    producer: str = ""
    history: History | None = None  # What the trim is meant for.

    def answer(self, numbers: list[int]) -> None:
        if not self.future.done():
            self.future.set_result(numbers)

    def fail(self, error: LogError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the writer starts over. ``raced``: another writer has taken the position that we wanted."""

    why: str
    raced: bool = False


@dataclass(eq=False)
class Flight:
    """A request whose answer is due when everything up to ``last`` is confirmed."""

    request: WriteRequest
    indexes: list[int]
    last: int
    runs: list[Run]
    control: int
    bytes: int

"""Acks that wait for others to join them: one timer for all streams of a server, however many have something to ack."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Owes(Protocol):
    """A stream that has applied something and not yet acked it."""

    def ack_if_owed(self) -> None:
        """Send the ack, unless it has gone out meanwhile."""


class AckRound:
    """Lets everybody who has joined ack when the round ends, ``seconds`` after the first of them joined."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._joined: set[Owes] = set()

    def join(self, stream: Owes) -> None:
        """Ack with the others; to join twice is to join once."""
        if not self._joined:
            # The timer is made behind what else has arrived: that is what others wait for.
            asyncio.get_running_loop().call_soon(self._begin)
        self._joined.add(stream)

    def _begin(self) -> None:
        asyncio.get_running_loop().call_later(self._seconds, self._end)

    def _end(self) -> None:
        joined, self._joined = self._joined, set()
        for stream in joined:
            stream.ack_if_owed()

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
        self._begun = False
        self._held = False

    def join(self, stream: Owes) -> None:
        """Ack with the others; to join twice is to join once."""
        self._joined.add(stream)
        if not self._begun and not self._held:
            self._begun = True
            # The timer is made behind what else has arrived: that is what others wait for.
            asyncio.get_running_loop().call_soon(self._begin)

    def hold(self) -> None:
        """More has arrived than is applied: no round begins before that is done."""
        self._held = True

    def release(self) -> None:
        """All that has arrived is applied, or on its way into a store."""
        self._held = False
        if self._joined and not self._begun:
            self._begun = True
            self._begin()

    def _begin(self) -> None:
        asyncio.get_running_loop().call_later(self._seconds, self._end)

    def _end(self) -> None:
        self._begun = False
        joined, self._joined = self._joined, set()
        for stream in joined:
            stream.ack_if_owed()

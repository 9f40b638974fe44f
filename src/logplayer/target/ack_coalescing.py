"""Acks that wait for others to join them: the other direction of ``wire.turn``, at a target.

An ack costs both sides as much as a batch, and nobody waits for it but the player's window. Twenty streams of one
connection that got the same entry apply it one after the other, or each in a thread of its own, and finish at twenty
moments. To ack each at once is twenty writes, and twenty wake-ups of a player that may share the processor with the
targets that have not yet finished. So a stream that has applied something *joins* a round; the round ends a millisecond
after it began, and everybody in it acks. There is one timer for all streams of a server, however many have something to
ack.

The two ways in which a round could begin too early, and what is done about them:

* While input is being read. A store that never waits has applied the first batches of a read before the last ones are
  looked at. ``reading()`` keeps a round from beginning until all of them are applied or handed to their stores.
* Before the input that has arrived is read. A commit that ends in a thread joins between two reads; the timer is made
  in the next iteration of the event loop, because the batches that are ready in this one are more urgent than acks.

A round that has begun is not prolonged: a target that always gets input acks all the same. A stream that has
much to ack does not wait for the round at all (``stream.ACK_BYTES``), since then a window may be waiting for it.

What the streams say leaves with one write: ``TcpPeer`` gathers it until the end of the loop's iteration. gRPC has one
writer for each stream.
"""

from __future__ import annotations

import asyncio
from typing import Protocol


class Owes(Protocol):
    """A stream that has applied something and not yet acked it."""

    def ack_if_owed(self) -> None:
        """Send the ack, unless it has gone out meanwhile."""


class AckRound:
    """Lets every stream that has joined ack when the round ends, ``seconds`` after the first of them joined."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._joined: set[Owes] = set()
        self._begun = False
        self._reading = False

    def join(self, stream: Owes) -> None:
        """Ack with the others; to join twice is to join once."""
        self._joined.add(stream)
        if not self._begun and not self._reading:
            self._begun = True
            asyncio.get_running_loop().call_soon(self._begin)

    def reading(self) -> AckRound:
        """Enter it around the reading of input: no round begins before all is applied, or on its way into a store."""
        return self

    def __enter__(self) -> None:
        self._reading = True

    def __exit__(self, *_: object) -> None:
        self._reading = False
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

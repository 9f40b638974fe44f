"""A bound on the bytes of requests that a server holds in memory at once.

A call takes room for the largest request before it reads its own, because gRPC does not say how long a request is, and
gives back what it did not need as soon as it is there. Until then the bytes stay with the sender: HTTP/2's flow
control holds them back. So a hundred producers that wait for a slow disk cost no more than a few do.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """Bytes to be taken and given back, first come first served. Belongs to one event loop.

    Invariant: ``free`` plus what was taken is the size that it was made with; nobody waits while enough is free.
    """

    def __init__(self, bytes_max: int) -> None:
        self.free = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def wanted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    async def take(self, count: int) -> None:
        """Wait until ``count`` bytes are free, and take them."""
        if not self._waiting and self.free >= count:
            self.free -= count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(count)  # It was ours already when the call was ended.
            else:
                self._hand_out()  # The next one may need less.
            raise

    def give(self, count: int) -> None:
        """Give back ``count`` bytes."""
        self.free += count
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting:
            count, turn = self._waiting[0]
            if not turn.done():
                if self.free < count:
                    return
                self.free -= count
                turn.set_result(None)
            self._waiting.popleft()

"""Rising pauses between tries of something that is away."""

from __future__ import annotations

import asyncio
import random


class Pause:
    """Rising pauses with jitter, until the patience is used up since the last success."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience = patience_seconds
        self.reset()

    def reset(self) -> None:
        self.since: float | None = None
        self._next = 0.05

    async def wait(self) -> bool:
        """Sleep; False when it is time to give up."""
        now = asyncio.get_running_loop().time()
        self.since = now if self.since is None else self.since
        if now - self.since >= self._patience:
            return False
        await self.sleep()
        return True

    async def sleep(self) -> None:
        """Longer each time."""
        await asyncio.sleep(self._next * random.uniform(0.5, 1.0))
        self._next = min(1.0, self._next * 2)

"""Where the log ends: asked once a second, so that a status needs no question of its own."""

from __future__ import annotations

import asyncio
import contextlib

from logplayer.errors import LogPlayerError
from logplayer.log.protocol import Log
from logplayer.spark import event_loop

EVERY_SECONDS = 1.0


class LogEnd:
    """The log's last index, as it was a moment ago; the last known one while the log is away."""

    def __init__(self, log: Log) -> None:
        self.last = 0
        self._asking = event_loop.submit(self._ask(log))

    def stop(self) -> None:
        self._asking.cancel()

    async def _ask(self, log: Log) -> None:
        while True:
            with contextlib.suppress(LogPlayerError):
                self.last = (await log.info()).last
            await asyncio.sleep(EVERY_SECONDS)

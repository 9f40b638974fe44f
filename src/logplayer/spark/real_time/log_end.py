"""Where the log begins and ends, and how old its entries are: asked once a second, so that a status asks nothing."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping

from logplayer.errors import LogPlayerError
from logplayer.log import control_chain as chain
from logplayer.log.protocol import Info, Log
from logplayer.player.progress import PlayerProgress, Sample
from logplayer.player.redriven import Redriven
from logplayer.spark import event_loop

EVERY_SECONDS = 1.0


class LogEnd:
    """The log as it was a moment ago; what was last known of it while it is away."""

    def __init__(self, log: Log, quarantined: Callable[[], Mapping[str, Iterable[int]]]) -> None:
        """``quarantined`` gives the decisions by target."""
        self.first = self.last = self.bytes = 0
        self.redriven = Redriven()
        self._quarantined = quarantined
        self._progress = PlayerProgress()
        self._asking = event_loop.submit(self._ask(log))

    def stop(self) -> None:
        self._asking.cancel()

    def seconds_behind(self, index: int) -> float:
        """The age of the oldest entry that a target with this index does not have; an estimate between two looks."""
        return self._progress.seconds_behind(index, time.time_ns() // 1000)

    def bytes_of(self, entries: int) -> int:
        """About how many bytes so many entries take."""
        held = self.last - self.first + 1
        return round(self.bytes / held * entries) if held > 0 else 0

    async def _ask(self, log: Log) -> None:
        while True:
            with contextlib.suppress(LogPlayerError, OSError):
                before, info = self.last, await log.info()
                self.first, self.last, self.bytes = info.first, info.last, info.bytes
                if info.last > before:
                    await self._note_times(log, before, info)
                    await self.redriven.look(log, self._quarantined(), once=False)
            await asyncio.sleep(EVERY_SECONDS)

    async def _note_times(self, log: Log, before: int, info: Info) -> None:
        """When the oldest and the newest entry since the last look were committed. It may be trimmed meanwhile."""
        oldest = await chain.first_record(log, max(before + 1, info.first), info.last)
        newest = await chain.first_record(log, info.last, info.last)
        if before:
            self._progress.fetched([oldest, newest])
        else:
            start = Sample(info.first - 1, oldest.committed_at_us, 0)
            self._progress.begin(start, Sample(info.last, newest.committed_at_us, 0))

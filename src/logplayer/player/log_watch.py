"""How the player gets on with its log: where it ends, and what keeps the main stream from reading it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from logplayer.errors import CorruptEntry, LogDiverged, LogPlayerError
from logplayer.log.protocol import History, Info, Log
from logplayer.observe.timeline import LOG, Timeline

logger = logging.getLogger("logplayer.player")

LOOK_SECONDS = 1.0  # How often an idle or stuck player asks where the log ends.
SHORTER_LOOKS = 3  # A server that is just losing its place in a cluster may answer with what it had.
FACTS_SECONDS = 5.0  # How often it asks while the main stream moves, for the log's first index and bytes.
ANSWER_SECONDS = 3.0  # How long the log may take to say it before it counts as unreadable.


class LogWatch:
    """The end of the log and the trouble with it. A trouble is logged once, and once more when it is over."""

    def __init__(self, timeline: Timeline | None = None) -> None:
        self._timeline = timeline or Timeline(logger)
        self.first = 0  # The oldest index of the log, and the bytes that it takes, when it was last asked.
        self.bytes = 0
        self.last = 0  # The newest index of the log that was heard of.
        self.error = ""  # Why the main stream cannot go on; empty while it can.
        self._since = 0.0
        self._moved = False
        self._shorter = 0  # Looks in a row that found the log shorter than what was read.

    def read(self, last: int) -> None:
        """The main stream read entries up to ``last``."""
        if last > self.last:
            self.last = last
        self._moved = True
        if self.error:
            self._over()

    def failed(self, index: int, error: Exception) -> None:
        """The log cannot be read at ``index``, where the main stream needs it."""
        named = isinstance(error, CorruptEntry) and error.index == index
        text = str(error) if named else f"the log cannot be read at entry {index}: {error}"
        if text == self.error:
            return
        if not self.error:
            self._since = time.monotonic()
        self.error = text
        self._timeline.say(logging.ERROR, LOG, "stuck: %s; trying again", text, index=index)

    def require_same_history(self, info: Info, epoch: int, current: History) -> None:
        """Raise ``LogDiverged`` if the log is shorter than what was read, or has another entry at its end than that."""
        last = info.last
        if last == current.index and info.chain != current.chain:
            raise LogDiverged(
                f"entry {last} of the log is not the one that was read: the log was restored from an older backup, or "
                "lost entries",
                last,
            )
        self._shorter = self._shorter + 1 if last < max(current.index, epoch) else 0
        if self._shorter >= SHORTER_LOOKS:
            raise LogDiverged(
                f"the log ends at {last}, and entry {max(current.index, epoch)} was read from it: it was restored from "
                "an older backup, or lost entries",
                last + 1,
            )

    def ends_at(self, last: int, current: int) -> None:
        """The log says that it ends at ``last``. A main stream that is there lacks nothing, whatever it met before."""
        self.last = max(self.last, last)
        if self.error and current >= last:
            self._over()

    def learn(self, info: Info) -> None:
        """What the log says of itself."""
        self.first, self.bytes = info.first, info.bytes

    def seconds(self) -> float:
        """How long the main stream has been stuck."""
        return time.monotonic() - self._since if self.error else 0.0

    async def follow(self, log: Log, epoch: int, current: Callable[[], History]) -> None:
        """Ask the log where it ends, for ever. While the main stream moves there is no need to."""
        asked = 0.0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            if self._moved and now - asked < FACTS_SECONDS:
                self._moved = False
                continue
            asked = now
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    info = await log.info()
            except TimeoutError:
                self._unheard(current().index, LogPlayerError(f"it does not answer within {ANSWER_SECONDS:.0f} s"))
            except (LogPlayerError, OSError) as error:
                self._unheard(current().index, error)
            else:
                self.learn(info)
                self.require_same_history(info, epoch, current())
                self.ends_at(info.last, current().index)

    def _unheard(self, current: int, error: Exception) -> None:
        if not self.error:  # What the main stream itself has met says more.
            self.failed(current + 1, error)

    def _over(self) -> None:
        self._timeline.say(logging.INFO, LOG, "the log can be read again, after %.0f s", self.seconds())
        self.error = ""

"""Looks through what a player did not route itself, the log up to its takeover, for entries that reach nobody.

An earlier player may have met them and is gone; nothing remembers them but the log. Until this is done, a player that
trims the log does not trim past what was looked at.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing

from logplayer.core.entry import Entry
from logplayer.errors import CorruptEntry, LogError, Trimmed
from logplayer.log.protocol import Log
from logplayer.observe.logs import about
from logplayer.player.catch_up_reader import STEP_ENTRIES_MAX
from logplayer.player.entries import survey_entries

logger = logging.getLogger("logplayer.player")
RETRY_SECONDS = 1.0


async def read_back(log: Log, first: int, last: int) -> AsyncIterator[list[Entry]]:
    """The entries of ``[first, last]`` that are still there, in small steps; a damaged one is passed over."""
    at = first
    while at <= last:
        try:
            async with aclosing(log.read(at, last)) as batches:  # type: ignore[type-var]
                async for records in batches:
                    for start in range(0, len(records), STEP_ENTRIES_MAX):
                        step = records[start : start + STEP_ENTRIES_MAX]
                        yield survey_entries(step)
                        at = step[-1].index + 1
                        await asyncio.sleep(0)
            return
        except Trimmed as error:
            at = error.first
        except CorruptEntry as error:
            at = error.index + 1
        except (LogError, OSError) as error:
            logger.warning("the log cannot be read at %d: %s; trying again", at, error, extra=about(index=at))
            await asyncio.sleep(RETRY_SECONDS)

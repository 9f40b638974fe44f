"""A look at the log itself, for a claim that a target makes about it."""

from __future__ import annotations

import asyncio

from logplayer.core.effects import LookUp
from logplayer.core.entry import Decision
from logplayer.core.events import LookedUp, LookUpFailed
from logplayer.errors import CorruptEntry, LogPlayerError, Malformed, Trimmed
from logplayer.log.chain import chain_at
from logplayer.log.protocol import Kind, Log
from logplayer.wire.entries import decode_control

ANSWER_SECONDS = 4.0  # Then the core hears that the log cannot be asked. Below the deadline of an Open.


async def look_up(log: Log, request: LookUp) -> LookedUp | LookUpFailed:
    """What the log has at the index, and where it begins and ends, as of now."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await _look(log, request)
    except TimeoutError:
        return LookUpFailed(request.target, request.index, f"no answer in {ANSWER_SECONDS:g} s")
    except (LogPlayerError, OSError) as error:
        return LookUpFailed(request.target, request.index, str(error) or type(error).__name__)


async def _look(log: Log, request: LookUp) -> LookedUp:
    index = request.index
    while True:
        info = await log.info()
        try:
            record = await _record_at(log, index) if info.first <= index <= info.last else None
            value = await chain_at(log, index, info)
        except Trimmed:
            continue  # Meanwhile; the log then begins after it.
        return LookedUp(request.target, index, info.first, info.last, record, value)


async def _record_at(log: Log, index: int) -> Decision | None:
    """The control record at ``index``, or None: an index may hold no entry, or one that cannot be read."""
    try:
        async for records in log.read(index, index):
            return decode_control(records[0].payload) if records[0].kind == Kind.CONTROL else None
    except (CorruptEntry, Malformed):
        pass  # No takeover that anybody could follow. The main stream says that it is damaged.
    return None

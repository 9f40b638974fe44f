"""Where a stream is in a log, and whether the log still has what was read up to there.

An index alone does not name an entry (``core.chain``): a log that is restored from an older backup gives the indexes of
what it lost to other entries, and another log has entries of its own at all of them. A stream that kept an index only
would go on after it and leave out, in silence, what the log has there now. So an offset has the log's id and the chain
value, too, and both are compared with the log's before a batch goes on from there.

An offset that an earlier version kept has only the index. Then a log that ends before it is all that can be noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from logplayer.errors import CorruptEntry
from logplayer.log.chain import chain_at
from logplayer.log.protocol import Info, Log

LOOK_AGAIN_SECONDS = 1.0  # A replica that lags may have answered: only a log that stays shorter so long is shorter.
LOOK_SECONDS = 0.005


class ReadUpTo(NamedTuple):
    """Everything up to and including ``index`` was read, of this log and of the history with this chain value."""

    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    log_id: str = ""  # Empty: an earlier version did not keep it.
    chain: str | None = None  # In hexadecimal digits; None: not known.
    ahead: bool = False  # Where a query begins, at an index that the log has not reached yet.

    @classmethod
    def of(cls, offset: Mapping[str, Any] | int) -> ReadUpTo:
        """The place that an offset of Spark's means; earlier versions had a number for each of several logs."""
        if isinstance(offset, int):
            return cls(offset)
        index = int(offset["log_index"])
        return cls(index, offset.get("log_id", ""), offset.get("chain"), offset.get("ahead", False))

    @property
    def offset(self) -> dict[str, Any]:
        """What Spark keeps in its checkpoint. Spark compares text, so the same place is always the same text."""
        found: dict[str, Any] = {"log_index": self.index}
        if self.log_id:
            found["log_id"] = self.log_id
        if self.chain is not None:
            found["chain"] = self.chain
        if self.ahead:
            found["ahead"] = True
        return found


async def place_at(log: Log, index: int) -> ReadUpTo:
    """The place at an index as the log has it now."""
    info = await log.info()
    value = await _value_at(log, index, info)
    return ReadUpTo(index, info.log_id, None if value is None else value.hex())


async def difference(log: Log, place: ReadUpTo) -> tuple[str, Info]:
    """Why the log does not have what was read up to the place; empty if it has, or if it cannot be known any more."""
    info = await _reaching(log, place)
    if place.log_id and info.log_id != place.log_id:
        return f"it is log {info.log_id}, and this query has read log {place.log_id} up to {place.index}", info
    if place.ahead and info.last < place.index:
        return "", info
    if info.last < place.index:
        return f"it ends at {info.last}, and this query has read up to {place.index}", info
    value = await _value_at(log, place.index, info) if place.chain is not None else None
    if value is not None and value.hex() != place.chain:
        return f"what it has up to {place.index} is not what this query has read up to there", info
    return "", info


async def _reaching(log: Log, place: ReadUpTo) -> Info:
    """The log's indexes: those that reach the place, if any do soon."""
    deadline = asyncio.get_running_loop().time() + LOOK_AGAIN_SECONDS
    while True:
        info = await log.info()
        other = bool(place.log_id) and info.log_id != place.log_id
        if info.last >= place.index or place.ahead or other or asyncio.get_running_loop().time() >= deadline:
            return info
        await asyncio.sleep(LOOK_SECONDS)


async def _value_at(log: Log, index: int, info: Info) -> bytes | None:
    """The chain value; None if it is not known. A log of an earlier version may have none."""
    try:
        value = await chain_at(log, index, info)
    except CorruptEntry:
        return None  # A task that reads the entry names it.
    return value if value or not index else None

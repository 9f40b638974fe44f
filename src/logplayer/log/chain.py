"""The log's chain as its readers check it: what is read continues what was read before. See ``core.chain``."""

from __future__ import annotations

from collections.abc import Sequence

from logplayer.core.chain import GENESIS, extend, mark_of
from logplayer.errors import LogDiverged, Trimmed
from logplayer.log.protocol import Info, Log, Record

LOOK_BACK = 64  # How far before an index without an entry the last one is looked for first.


def value_after(before: bytes, record: Record) -> bytes:
    """The chain value that the entry must have if ``before`` is the one before it."""
    return extend(before, record.kind, record.producer, record.sequence, mark_of(record.payload))


def continues(before: bytes, record: Record) -> bool:
    """Whether the entry comes right after what has the chain value ``before``."""
    return value_after(before, record) == record.chain


def breaks(before: bytes, records: Sequence[Record]) -> list[Record]:
    """Those of the entries that do not continue the one before them."""
    broken = []
    for record in records:
        if not continues(before, record):
            broken.append(record)
        before = record.chain
    return broken


def require_continued(after: int, before: bytes, record: Record) -> None:
    """Raise ``LogDiverged`` unless the entry continues what was read up to ``after``."""
    if not continues(before, record):
        raise LogDiverged(
            f"entry {record.index} of the log does not continue what was read before, up to {after}: the log was "
            "restored from an older backup, or lost entries that were read",
            record.index,
        )


async def chain_at(log: Log, index: int, info: Info | None = None) -> bytes | None:
    """The log's chain value at ``index``; None if it has none there, or no more.

    An index without an entry has the value of the last entry before it.
    """
    while True:
        info = info or await log.info()
        if index == 0:
            return GENESIS
        if index < info.first - 1 or index > info.last:
            return None
        if index == info.first - 1:
            return info.trimmed_chain
        if index == info.last:
            return info.chain
        try:
            return await _read_value(log, index, info)
        except Trimmed:
            info = None  # Meanwhile: ask again where it begins.


async def _read_value(log: Log, index: int, info: Info) -> bytes:
    low, back = index, 0
    while True:
        value = None
        async for records in log.read(low, index):
            value = records[-1].chain
        if value is not None:
            return value
        if low == info.first:
            return info.trimmed_chain
        back = back * 2 or LOOK_BACK
        low = max(info.first, index - back)

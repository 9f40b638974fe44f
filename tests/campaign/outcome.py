"""What became of the entries of a campaign, counted by reading the whole log once more.

``LogChecker`` stops at the first broken promise, so what it has let through says zero by itself. This one counts, and
by other means: the figures that a campaign prints are found, not written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from logplayer.log.protocol import Log
from logplayer.testing.conformance.log_check import payload

Acked = Mapping[tuple[str, int], int]
"""(producer, sequence) -> the index that was acknowledged."""


class Outcome(NamedTuple):
    """What a campaign prints of its entries."""

    entries: int
    acknowledged: int
    lost: int  # Acknowledged, and not at its index with its bytes.
    twice: int
    out_of_order: int  # After a later one of the same producer, or not after the entry before it.

    @property
    def holds(self) -> bool:
        return not (self.lost or self.twice or self.out_of_order)


async def count_outcome(log: Log, acked: Acked) -> Outcome:
    """Read all of ``log``, which was never trimmed."""
    info = await log.info()
    right: set[tuple[str, int]] = set()
    times: Counter[tuple[str, int]] = Counter()
    newest: dict[str, int] = {}
    out_of_order = at = 0
    if info.last:
        async for records in log.read(info.first, info.last):
            for record in records:
                key = record.producer, record.sequence
                out_of_order += record.index <= at or record.sequence < newest.get(record.producer, 0)
                at, newest[record.producer] = record.index, record.sequence
                times[key] += 1
                if acked.get(key) == record.index and record.payload == payload(*key, len(record.payload)):
                    right.add(key)
    twice = sum(count - 1 for count in times.values())
    return Outcome(times.total(), len(acked), len(acked) - len(right), twice, out_of_order)

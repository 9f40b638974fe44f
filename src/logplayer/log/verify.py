"""Checks a log from end to end: every entry's checksum, the chain, and that players can start from its decisions.

The chain begins with the value that the log keeps at its trim point and ends with the one that it says it has at its
last index. So an entry that is missing, doubled, exchanged or of another history is found wherever it is, also if its
own checksum is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from logplayer.errors import ControlJammed, CorruptEntry, Trimmed
from logplayer.log.chain import continues
from logplayer.log.protocol import Info, Log, Record, bytes_
from logplayer.log.repair import JamWatch


class LogFault(NamedTuple):
    """Something that is wrong at an index, in a sentence."""

    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    why: str


class VerifiedLog(NamedTuple):
    """What the log has as of ``info``, and all that is wrong with it."""

    info: Info
    checked: int  # Entries that could be read.
    bytes: int  # Of their payloads.
    damaged: list[LogFault]
    breaks: list[LogFault]  # Where the chain does not continue.
    jam: ControlJammed | None

    @property
    def faults(self) -> list[LogFault]:
        """All of them, in the order of the log; a jam is a fault of the newest decision."""
        jam = [LogFault(self.info.control, str(self.jam))] if self.jam else []
        return sorted([*self.damaged, *self.breaks, *jam])


class _Walk:
    """One pass over the log that ``info`` describes."""

    def __init__(self, info: Info) -> None:
        self.info = info
        self.at = info.first
        self.checked = self.bytes = 0
        self.damaged: list[LogFault] = []
        self.breaks: list[LogFault] = []
        self.watch = JamWatch()
        self._chain: bytes_ | None = info.trimmed_chain  # None after a damaged entry: its value is not known.

    def take(self, records: Sequence[Record]) -> int:
        """Check them, and return how far they go on in the log."""
        for record in records:
            if self._chain is not None and not continues(self._chain, record):
                self.breaks.append(LogFault(record.index, _why_broken(record.index, self.info)))
            self._chain = record.chain
            self.watch.see(record)
            self.bytes += len(record.payload)
        self.checked += len(records)
        return self._go_to(records[-1].index + 1)

    def skip(self, damage: CorruptEntry) -> int:
        self.damaged.append(LogFault(damage.index, str(damage)))
        self.watch.see_damage(damage)
        self._chain = None
        return self._go_to(damage.index + 1)

    def _go_to(self, index: int) -> int:
        count, self.at = index - self.at, index
        return count

    def result(self) -> VerifiedLog:
        if self._chain is not None and self._chain != self.info.chain:
            said, made = self.info.chain.hex() or "none", self._chain.hex() or "none"
            why = (
                f"the log says that it ends at {self.info.last} with chain value {said}, and its entries make {made}: "
                "entries are missing, or are of another history of the log; restore it from a backup"
            )
            self.breaks.append(LogFault(self.info.last, why))
        jam = self.watch.jam(self.info)
        return VerifiedLog(self.info, self.checked, self.bytes, self.damaged, self.breaks, jam)


def _why_broken(index: int, info: Info) -> str:
    what = f"entry {index} does not continue the entry before it"
    if info.unfenced:
        return f"{what}: two writers were at work, which this log cannot refuse; let one log server write"
    return (
        f"{what}: entries between them are missing, or one of the two is of another history of the log; restore it "
        "from a backup"
    )


async def verify_log(log: Log, progress: Callable[[int], object] = lambda count: None) -> VerifiedLog:
    """Read the whole log as it is now and say what is wrong with it. ``progress`` gets how many indexes were passed.

    If the log is trimmed past the reader, the pass begins again: what was checked then is gone.
    """
    while True:
        walk = _Walk(await log.info())
        try:
            while walk.at <= walk.info.last:
                try:
                    async for records in log.read(walk.at, walk.info.last):
                        progress(walk.take(records))
                    break
                except CorruptEntry as damage:
                    progress(walk.skip(damage))
        except Trimmed:
            continue
        return walk.result()

"""The contract of a log: what every implementation promises, and what the conformance kit checks.

1. ``append`` returns only when the whole group is durable. A group is there as a whole or not at all.
2. Indexes start at 1 and rise in commit order; they may have gaps. What was read once at an index stays so.
3. A producer's sequences start at 1 and rise by one. A sequence that was appended before returns its first index, for
   as long as the log lives and also below the trim point; one that skips ahead is refused with ``SequenceGap``.
4. ``read`` serves each entry once, in order, and checks its CRC: a damaged entry is named, never served.
5. A crash between the commit and the answer leaves the entry in the log: the producer retries the same sequence.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from logplayer.errors import EntryTooLarge, LogError, LogUnavailable, UserError

ENTRY_BYTES_MAX = 4 * 1024 * 1024
"""The largest payload. One entry must fit into one message of every transport that carries it."""
GROUP_BYTES_MAX = 16 * 1024 * 1024
GROUP_COUNT_MAX = 1000
PRODUCER_BYTES_MAX = 255
BATCH_BYTES = 1024 * 1024
"""A batch of ``read`` ends after this many bytes, so what a reader holds is bounded."""


class Kind(enum.IntEnum):
    """What an entry's payload is; the values are those of the wire."""

    DATA = 0
    CONTROL = 1


class NewEntry(NamedTuple):
    """An entry on its way into the log."""

    producer: str
    sequence: int
    payload: bytes
    kind: Kind = Kind.DATA


class Record(NamedTuple):
    """An entry of the log. ``crc`` covers every other field as it is encoded on the wire."""

    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    kind: Kind
    producer: str
    sequence: int
    committed_at_us: int
    payload: bytes
    crc: int


class Info(NamedTuple):
    """Where the log stands. ``[first, last]`` can be read; ``first == last + 1`` when that is nothing."""

    log_id: str
    first: int
    last: int
    control: int
    bytes: int


class BadRequest(LogError, UserError):
    """The call cannot be right whatever the log's state is; nothing was changed."""


class Locked(LogUnavailable, UserError):
    """Another process writes to this log."""


@runtime_checkable
class Log(Protocol):
    """A durable, ordered log with idempotent append. One instance belongs to one event loop."""

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        """Append the group as a whole and return one index per entry, once it is durable."""
        ...

    def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        """Batches of ``[first, last]``; endless, and pushed as entries come, when ``last`` is None.

        Waits for entries that are not there yet. Raises ``Trimmed`` when ``first`` lies below the trim point, and
        ``CorruptEntry`` at a damaged entry after all entries before it were served.
        """
        ...

    async def info(self) -> Info: ...

    async def trim(self, up_to: int) -> None:
        """Forget every entry up to and including ``up_to``; afterwards ``first == up_to + 1``."""
        ...

    async def close(self) -> None: ...


_KINDS = tuple(Kind)


@functools.lru_cache(4096)
def _is_name(producer: str) -> bool:
    return 0 < len(producer.encode()) <= PRODUCER_BYTES_MAX and producer.isprintable()


def check_group(entries: Sequence[NewEntry]) -> None:
    """Refuse a group that no log would take, before anything is written."""
    if len(entries) == 1:
        producer, sequence, payload, kind = entries[0]
        if (
            type(payload) is bytes
            and len(payload) <= ENTRY_BYTES_MAX
            and type(sequence) is int
            and 0 < sequence < 2**63
            and _is_name(producer)
            and kind in _KINDS
        ):
            return
    if not entries:
        raise BadRequest("an append needs at least one entry")
    if len(entries) > GROUP_COUNT_MAX:
        raise EntryTooLarge(f"a group of {len(entries)} entries is over the limit of {GROUP_COUNT_MAX}; split it")
    total = 0
    for producer, sequence, payload, kind in entries:
        if not isinstance(payload, bytes) or not isinstance(sequence, int) or kind not in _KINDS:
            raise BadRequest(
                f"entry {sequence!r} of producer {producer!r}: a payload is bytes, a sequence is a whole number, "
                f"a kind is one of {', '.join(map(str, _KINDS))}"
            )
        if len(payload) > ENTRY_BYTES_MAX:
            raise EntryTooLarge(
                f"entry {sequence} of producer {producer!r} has {len(payload)} bytes; the limit is {ENTRY_BYTES_MAX}"
            )
        total += len(payload)
        if not _is_name(producer):
            raise BadRequest(
                f"producer {producer[:40]!r} is no name: use 1 to {PRODUCER_BYTES_MAX} printable bytes of text"
            )
        if not 1 <= sequence < 2**63:
            raise BadRequest(f"sequence {sequence} of producer {producer!r} is no sequence: they start at 1")
    if total > GROUP_BYTES_MAX:
        raise EntryTooLarge(f"a group of {total} bytes is over the limit of {GROUP_BYTES_MAX}; split it")


def check_range(first: int, last: int | None) -> None:
    """Refuse a range that names no entry."""
    if first < 1:
        raise BadRequest(f"cannot read from index {first}: indexes start at 1")
    if last is not None and last < first:
        raise BadRequest(f"cannot read [{first}, {last}]: the range is empty")


def gap_message(producer: str, sequence: int, newest: int) -> str:
    """The one wording of a refused sequence, whichever log refuses it."""
    return (
        f"producer {producer!r} sent sequence {sequence}, but its newest is {newest}: "
        f"send {newest + 1} next (nothing was appended)"
    )

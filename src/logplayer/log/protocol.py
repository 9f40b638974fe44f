"""The contract of a log: what every implementation promises, and what the conformance kit checks.

1. ``append`` returns only when the whole group is durable. A group is there as a whole or not at all.
2. Indexes start at 1 and rise in commit order; they may have gaps. What was read once at an index stays so.
3. A producer's sequences start at 1 and rise by one. A sequence that was appended before returns its first index, for
   as long as the log lives and also below the trim point; one that skips ahead is refused with ``SequenceGap``, and one
   that was appended before with another payload with ``ProducerConflict``. ``newest`` says where a producer goes on.
   Calls on one instance that share a producer are applied in the order in which they were made, so nobody has to wait
   for the answer before the next call.
4. ``read`` serves each entry once, in order, and checks its CRC: a damaged entry is named, never served.
5. A crash between the commit and the answer leaves the entry in the log: the producer retries the same sequence.
6. Producer names that begin with ``logplayer.`` are the system's: DATA under one is refused, and CONTROL under any name
   but ``CONTROL_PRODUCER``.
7. A CONTROL entry is appended only if it follows from the newest one in the log (``logplayer.log.control_rules``).
8. ``trim`` never passes the newest CONTROL entry: players start from it.
9. Each entry carries the chain value over all that came before it (``logplayer.core.chain``), and ``info`` has the
   values at both ends, the lower one also after a trim. The writer knows the last value; a log that cannot refuse a
   second writer says so (``unfenced``), and there two of them may break the chain.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from logplayer.errors import (
    EntryTooLarge,
    LogError,
    LogUnavailable,
    UserError,
)

ENTRY_BYTES_MAX = 4 * 1024 * 1024
"""The largest payload. One entry must fit into one message of every transport that carries it."""
GROUP_BYTES_MAX = 16 * 1024 * 1024
GROUP_COUNT_MAX = 1000
PRODUCER_BYTES_MAX = 255
SYSTEM_PREFIX = "logplayer."
CONTROL_PRODUCER = "logplayer.control"
"""The one producer of CONTROL entries: its sequences make them a chain."""
bytes_ = bytes  # For classes with a field of that name.
BATCH_BYTES = 1024 * 1024
"""A batch of ``read`` ends after this many bytes, so what a reader holds is bounded."""


class Kind(enum.IntEnum):
    """What an entry's payload is; the values are those of the wire."""

    DATA = 0
    CONTROL = 1


class NewEntry(NamedTuple):
    """An entry on its way into the log.

    Attributes:
        producer: The name of its producer.
        sequence: Its number among the producer's entries: the first is 1, and each is one more.
        payload: An encoded transaction.
        kind: What the payload is. Applications append DATA only.

    Example:
        >>> import logplayer as lp
        >>> NewEntry("batch-7", 1, lp.put("k", "v").encoded).sequence
        1
    """

    producer: str
    sequence: int
    payload: bytes
    kind: Kind = Kind.DATA


class Record(NamedTuple):
    """An entry of the log.

    Attributes:
        index: Where it is in the log.
        kind: What the payload is: a transaction (DATA) or a decision (CONTROL).
        producer: The name of its producer.
        sequence: Its number among the producer's entries.
        committed_at_us: When it was committed: microseconds since 1970, by the clock of the log.
        payload: The encoded transaction or decision.
        chain: The chain value over it and all that came before it.
        crc: The CRC-32 of every other field, as they are encoded on the wire.

    Example:
        >>> async for records in log.read(1, 10):  # doctest: +SKIP
        ...     print([record.index for record in records])
    """

    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    kind: Kind
    producer: str
    sequence: int
    committed_at_us: int
    payload: bytes
    chain: bytes
    crc: int


class Info(NamedTuple):
    """What the log has. ``[first, last]`` can be read; ``first == last + 1`` when that is nothing.

    Attributes:
        log_id: Which log it is; made with it.
        first: The first index that was not trimmed.
        last: The index of the newest entry.
        control: The index of the newest decision; 0 if there is none.
        bytes: What it takes where it is stored.
        chain: The chain value at ``last``.
        trimmed_chain: The chain value at ``first - 1``.
        unfenced: Whether it cannot refuse a second writer, so that the chain may break where two have met.

    Example:
        >>> (await log.info()).last  # doctest: +SKIP
        42
    """

    log_id: str
    first: int
    last: int
    control: int
    bytes: int
    chain: bytes_ = b""
    trimmed_chain: bytes_ = b""
    unfenced: bool = False


class History(NamedTuple):
    """Which history of the log is meant: the one with this chain value at this index.

    Attributes:
        index: An index of the log.
        chain: The chain value there.

    Example:
        >>> await log.trim(40, lp.History(record.index, record.chain))  # doctest: +SKIP
        40
    """

    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    chain: bytes


class Newest(NamedTuple):
    """A producer's newest entry in the log, (0, 0) if it has none: ``sequence + 1`` is the next that it may send.

    Attributes:
        sequence: Its number among the producer's entries.
        index: Where it is in the log, or was until it was trimmed.

    Example:
        >>> (await log.newest("web-1")).sequence  # doctest: +SKIP
        101
    """

    sequence: int
    index: int  # type: ignore[assignment]  # Hides tuple's own method.


class BadRequest(LogError, UserError):
    """The call cannot be right whatever the log's state is; nothing was changed.

    Example:
        >>> import logplayer as lp
        >>> lp.put("alice", 90)
        Traceback (most recent call last):
        logplayer.log.protocol.BadRequest: a value is text or bytes, not int (90); see lp.json_value
    """


class Locked(LogUnavailable):
    """Another process writes to this log."""


@runtime_checkable
class Log(Protocol):
    """A durable, ordered log with idempotent append. One instance belongs to one event loop.

    Example:
        >>> log = await lp.open_log("file:///tmp/wal")  # doctest: +SKIP
        >>> await log.append([lp.NewEntry("p", 1, lp.put("k", "v").encoded)])  # doctest: +SKIP
        [1]
    """

    async def append(self, entries: Sequence[NewEntry]) -> list[int]:
        """Append the group as a whole and return one index per entry, once it is durable.

        Args:
            entries: Each with its producer, the next sequence of that producer, and an encoded transaction.

        Raises:
            SequenceGap: A sequence was skipped; nothing was appended.
            ProducerConflict: A sequence is in the log with another payload; nothing was appended.
            EntryTooLarge: An entry or the group is over the limit; nothing was appended.
            LogFull: The disk has no room; nothing was appended.
            LogUnavailable: No answer; send the same again.

        Example:
            >>> await log.append([lp.NewEntry("web-1", 1, lp.put("alice", "90").encoded)])  # doctest: +SKIP
            [1]
        """
        ...

    def read(self, first: int, last: int | None = None) -> AsyncIterator[list[Record]]:
        """Batches of ``[first, last]``; endless, and pushed as entries come, when ``last`` is None.

        Args:
            first: The first index.
            last: The last one. It is waited for.

        Raises:
            Trimmed: ``first`` is below the trim point.
            CorruptEntry: An entry is damaged; all before it were served.
            LogUnavailable: The log is away, or was closed.

        Example:
            >>> async for records in log.read(1, 10):  # doctest: +SKIP
            ...     print([record.index for record in records])
        """
        ...

    async def info(self) -> Info:
        """Where the log is now: its id, first and last index, newest control entry, bytes.

        Raises:
            LogUnavailable: It cannot be asked.

        Example:
            >>> (await log.info()).last  # doctest: +SKIP
            42
        """
        ...

    async def newest(self, producer: str) -> Newest:
        """The producer's newest sequence and its index, whether or not that entry was trimmed since.

        Args:
            producer: The producer's name.

        Raises:
            BadRequest: This cannot be the name of a producer.
            LogUnavailable: The log cannot be asked.

        Example:
            >>> await log.newest("web-1")  # doctest: +SKIP
            Newest(sequence=7, index=42)
        """
        ...

    async def trim(self, up_to: int, history: History | None = None) -> int:
        """Forget every entry up to and including ``up_to``, but never the newest CONTROL entry.

        A trim that a later one has overtaken forgets nothing and is not an error.

        Args:
            up_to: The last index to forget.
            history: What was read at an index: nothing is forgotten unless the log has the same there. Give it if you
                trim by what targets have: a log that was restored may have other entries at those indexes.

        Returns:
            The last index that is forgotten now: less than ``up_to`` if the newest CONTROL entry was in the way, and
            more if an earlier trim went further. Afterwards ``first`` is one more.

        Raises:
            BadRequest: The index is beyond the log's end.
            LogDiverged: The log does not have ``history``; nothing was forgotten.
            ControlJammed: The newest CONTROL entry cannot be read: an older one may be what the log is repaired from.
            LogUnavailable: The log cannot be asked.

        Example:
            >>> await log.trim(40, lp.History(record.index, record.chain))  # doctest: +SKIP
            40
        """
        ...

    async def close(self) -> None:
        """Give back files and connections, and end the readers. Safe to call twice.

        Example:
            >>> await log.close()  # doctest: +SKIP
        """
        ...


_KINDS = tuple(Kind)


def overtaken(up_to: int, history: History, first: int) -> bool:
    """Whether a later trim went further than this one asks for, so that what it means can no longer be compared.

    It forgets nothing, so it needs no comparison: two trims of one player may arrive in the wrong order.
    """
    return up_to < first and history.index < first - 1


@functools.lru_cache(4096)
def _is_name(producer: str) -> bool:
    return producer.isprintable() and 0 < len(producer.encode()) <= PRODUCER_BYTES_MAX  # Half a character is neither.


@functools.lru_cache(4096)
def _may_append(producer: str, kind: Kind) -> bool:
    if kind == Kind.CONTROL:
        return producer == CONTROL_PRODUCER
    return _is_name(producer) and not producer.startswith(SYSTEM_PREFIX)


def check_group(entries: Sequence[NewEntry]) -> None:
    """Refuse a group that no log would take, before anything is written."""
    if len(entries) == 1:
        producer, sequence, payload, kind = entries[0]
        if (
            type(payload) is bytes
            and len(payload) <= ENTRY_BYTES_MAX
            and type(sequence) is int
            and 0 < sequence < 2**63
            and kind in _KINDS
            and type(producer) is str
            and _may_append(producer, kind)
        ):
            return
    if not entries:
        raise BadRequest("an append needs at least one entry")
    if len(entries) > GROUP_COUNT_MAX:
        raise EntryTooLarge(f"a group of {len(entries)} entries is over the limit of {GROUP_COUNT_MAX}; split it")
    total = decisions = 0
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
        check_producer(producer)
        if not _may_append(producer, kind):
            raise _not_theirs(producer, kind)
        decisions += kind == Kind.CONTROL
        if not 1 <= sequence < 2**63:
            raise BadRequest(f"sequence {sequence} of producer {producer!r} is not a sequence: sequences start at 1")
    if total > GROUP_BYTES_MAX:
        raise EntryTooLarge(f"a group of {total} bytes is over the limit of {GROUP_BYTES_MAX}; split it")
    if decisions > 1:
        # The second would have to carry the index of the first, which is not known before it is appended.
        raise BadRequest(f"a group of {decisions} CONTROL entries: append them one after the other")


def _not_theirs(producer: str, kind: Kind) -> BadRequest:
    if kind == Kind.CONTROL:
        return BadRequest(
            f"producer {producer!r} sent a CONTROL entry: decisions are appended by players and by 'logplayer target', "
            f"as {CONTROL_PRODUCER!r}; send transactions as DATA"
        )
    return BadRequest(
        f"producer {producer!r} sent a transaction: names that begin with {SYSTEM_PREFIX!r} are the system's; "
        "choose another name"
    )


def check_range(first: int, last: int | None) -> None:
    """Refuse a range that names no entry."""
    for index in (first,) if last is None else (first, last):
        if not 1 <= index < 2**63:
            raise BadRequest(f"cannot read from or up to index {index}: indexes start at 1 and stay below 2^63")
    if last is not None and last < first:
        raise BadRequest(f"cannot read [{first}, {last}]: the range is empty")


def check_producer(producer: str) -> None:
    """Refuse what cannot be a producer's name."""
    if not isinstance(producer, str) or not _is_name(producer):
        raise _no_name(producer)


def _no_name(producer: object) -> BadRequest:
    return BadRequest(
        f"producer {str(producer)[:40]!r} is not a name: use 1 to {PRODUCER_BYTES_MAX} printable bytes of text"
    )

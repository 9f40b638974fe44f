"""The words of what a log refuses, the same whichever log refuses it."""

from __future__ import annotations

from typing import TypeGuard

from logplayer.errors import LogDiverged, ProducerConflict, SequenceGap, Trimmed
from logplayer.log.protocol import History, Newest

NONE = Newest(0, 0)


def other_history(history: History) -> LogDiverged:
    """The one wording of a trim that meant another history."""
    return LogDiverged(
        f"the log does not have what was read at index {history.index} (nothing was trimmed): it was restored from a "
        "backup, or lost entries",
        history.index,
    )


def sequence_gap(producer: str, sequence: int, newest: int) -> SequenceGap:
    """The one wording of a refused sequence, whichever log refuses it. ``newest`` is what the log has without it."""
    return SequenceGap(
        f"producer {producer!r} sent sequence {sequence}, but its newest is {newest}: send {newest + 1} next",
        newest,
        producer,
        sequence,
    )


def trimmed(at: int, first: int) -> Trimmed:
    """The one wording of an index that is gone, whichever log is asked for it."""
    return Trimmed(f"entry {at} was trimmed; the first one that can be read is {first}", first)


def producer_conflict(producer: str, sequence: int, index: int, newest: Newest = NONE) -> ProducerConflict:
    """The one wording of a sequence that the log has at ``index`` with another payload, whichever log refuses it.

    ``newest`` is what the log has of the producer. Index 0: both payloads are in one group.
    """
    where = f"has another payload in the log, at index {index}" if index else "has two payloads in one group"
    more = f"; the newest of this producer is {newest.sequence}, at index {newest.index}" if newest.index else ""
    return ProducerConflict(
        f"sequence {sequence} of producer {producer!r} {where}{more}: give each process a "
        "producer's name of its own, and go on after the newest sequence that the log knows",
        index,
        producer,
        sequence,
        *newest,
    )


def is_in_the_log(error: Exception) -> TypeGuard[ProducerConflict]:
    """Whether it is a conflict with an entry of the log, so that ``with_newest`` says more."""
    return isinstance(error, ProducerConflict) and bool(error.index)


def with_newest(conflict: ProducerConflict, newest: Newest) -> ProducerConflict:
    """The same conflict, which says how far the other one is."""
    return producer_conflict(conflict.producer, conflict.sequence, conflict.index, newest)

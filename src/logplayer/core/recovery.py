"""Catch-up: what a lagging target reads next from the log, and whether what was read may still be pushed."""

from __future__ import annotations

from logplayer.core.effect import ReadCatchUp
from logplayer.core.entry import Message
from logplayer.core.event import CaughtUp
from logplayer.core.membership import Control
from logplayer.core.queue import State, TargetQueue


def wants_more(queue: TargetQueue, current: int) -> bool:
    """Whether a catching-up target should be given more: it lags, nothing is being read for it, and it has room."""
    if queue.state is not State.CATCHING_UP or queue.reading or queue.covered >= current:
        return False
    limits = queue.limits
    # Wait until a good part of the queue is free: many small reads cost more than they hurry.
    return len(queue.messages) * 2 < limits.queue_count_max and queue.bytes * 2 < limits.queue_bytes_max


def next_read(queue: TargetQueue, current: int) -> ReadCatchUp:
    """The next read for a target that wants more."""
    assert queue.session is not None
    limits = queue.limits
    count, bytes_ = limits.queue_count_max - len(queue.messages), limits.queue_bytes_max - queue.bytes
    queue.reading = True
    return ReadCatchUp(queue.name, queue.session, queue.covered + 1, current, count, bytes_)


def push(queue: TargetQueue, read: CaughtUp, control: Control) -> bool:
    """Queue what was read, as far as it fits. Returns whether the coverage moved.

    Between the read and now the session may have died and another begun, so both the session and the coverage
    must still be those that the read was made for.
    """
    if queue.session != read.session or queue.state is not State.CATCHING_UP:
        return False  # A reader of an earlier session, still winding down.
    queue.reading = False
    if queue.covered != read.after:
        return False  # The coverage has moved since: the reader read for a place that is no longer ours.
    quarantined = control.quarantined.get(queue.name, ())
    for entry in read.entries:
        payload = control.router.part(entry, queue.name)
        if payload is None:
            continue
        if not queue.offer(Message(entry.index, payload, entry.index in quarantined)):
            queue.cover(entry.index - 1)
            return queue.covered > read.after
    queue.cover(read.through)
    return queue.covered > read.after

"""Catch-up: what a lagging target reads next from the log, and whether what was read may still be pushed."""

from __future__ import annotations

from logplayer.core.control_state import ControlState
from logplayer.core.effects import ReadCatchUp
from logplayer.core.entry import Delivery
from logplayer.core.events import CaughtUp, DeliveriesRead
from logplayer.core.routing import Cut
from logplayer.core.target_queue import State, TargetQueue


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
    first = queue.covered + 1
    return ReadCatchUp(queue.name, queue.session, first, current, count, bytes_, queue.covered_chain)


def push(queue: TargetQueue, read: CaughtUp, control: ControlState, cut: Cut) -> bool:
    """Queue what was read, as far as it fits. Returns whether the coverage moved."""
    if not _still_wanted(queue, read):
        return False
    quarantined = control.quarantined.get(queue.name, ())
    before = queue.covered_chain
    for entry in read.entries:
        payload = control.router.split(entry, cut).get(queue.name)
        if payload is not None and not queue.offer(
            Delivery(entry.index, payload, entry.index in quarantined, entry.chain)
        ):
            queue.cover(entry.index - 1, before)
            return queue.covered > read.after
        before = entry.chain
    queue.cover(read.through, read.chain)
    return queue.covered > read.after


def push_deliveries(queue: TargetQueue, read: DeliveriesRead) -> bool:
    """The same, for what needs no routing."""
    if not _still_wanted(queue, read):
        return False
    if not queue.offer_all(read.messages):
        for message in read.messages:
            if not queue.offer(message):  # Coverage ends at the message before: the value there is known.
                return queue.covered > read.after
    queue.cover(read.through, read.chain)
    return queue.covered > read.after


def _still_wanted(queue: TargetQueue, read: CaughtUp | DeliveriesRead) -> bool:
    """Whether what was read may be queued.

    Between the read and now the session may have died and another begun, so both the session and the coverage
    must still be those that the read was made for.
    """
    if queue.session != read.session or queue.state is not State.CATCHING_UP:
        return False  # A reader of an earlier session, still winding down.
    queue.reading = False
    queue.read_error = ""
    return queue.covered == read.after  # Else it has moved since: the reader read for a place that is no longer ours.

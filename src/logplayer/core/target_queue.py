"""The target queue: one bounded queue per target, and the three indexes that say how far the target is.

    acked  <=  sent  <=  covered
      |         |          every entry up to here that is for this target is applied, sent, or queued
      |         the end of the last range that was written to the session's stream
      durable at the target, by its own word

The indexes count positions of the *log*, not messages. Most entries are for other targets, so a target that has
everything up to 900 may have applied ten of them. A batch says which stretch ``(prev, to]`` it covers, also if there
is nothing in it: that is how an idle target moves forward, and lets the log be trimmed. ``prev`` of a batch is ``to``
of the one before, so the target can refuse a gap or a repetition by comparing one number with the one it stores.

``to`` may run ahead of the last message in the batch, up to the coverage, but only if the queue is empty by then. The
obvious shortcut, to claim the coverage with every batch, skips what is still queued: the target would store an index
past entries that it has not got, and nobody would ever send them again.

States, and the paper's letters for them:

    SUSPENDED (S)  --Opened-->  CATCHING_UP (RF, FC)  --covered up to the main stream-->  LIVE (N)
        ^                            ^                                                      |
        |                            '------------------- queue full ----------------------'|
        '-------------------------- session lost, from any state ---------------------------'

There is no state for "all is read, not all is sent" (the paper's FC): messages leave in the order in which they came,
whoever brought them, so a target may join as soon as its coverage has reached the main stream.

A LIVE queue's coverage follows the main stream without being touched: see :meth:`TargetQueue.coverage`. An entry that
is for one target of a thousand must not cost a thousand updates. So ``covered`` alone is the coverage of a queue that
catches up, and the larger of it and the main stream's index is that of one that is LIVE; :meth:`TargetQueue.demote`
writes it down at the moment when the two part.

Each of the indexes has the log's chain value beside it (``core.chain``), so that every batch says which history it
continues: ``prev`` and ``prev_chain`` of a batch are ``to`` and ``to_chain`` of the one before.

What may be sent is bounded twice. ``messages`` holds what waits, within ``queue_count_max`` and ``queue_bytes_max``;
the window holds what is written and not acked, within its own bounds. A message larger than any of them passes when it
is alone, or it would never pass. Both end with the session: what was in them is read from the log again if the target
does not have it.

``writable`` answers "may I send the next batch?", and nobody else keeps that answer: it is False from SendBatch until
Written, and while there is no session. So at most one batch is on its way into the stream, and everything that comes
meanwhile gathers in the queue and leaves together. That is the whole of batching: under light load an entry leaves at
once, under heavy load batches grow by themselves, and no timer of the core delays anybody. When Written comes is up to
the transport (``wire.turn``).

:meth:`TargetQueue.pass_on` is ``offer`` and ``take`` in one, for the most frequent case: an entry that came alone for a
target that is ready and has nothing queued. It saves a tenth of all that the player spends on an entry for twenty
targets. The two ways must agree; the simulator takes both.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from logplayer.core.chain import GENESIS
from logplayer.core.claims import Claim
from logplayer.core.deadlines import Deadlines
from logplayer.core.effects import SendBatch
from logplayer.core.entry import Delivery, Session
from logplayer.core.invariants import broken
from logplayer.core.limits import Limits
from logplayer.core.reconnect import Reconnect
from logplayer.core.window import Window

_new_tuple = tuple.__new__  # A third of the time that the class itself takes.


class State(enum.Enum):
    """The state of a target queue. The comments give the paper's letters."""

    SUSPENDED = "SUSPENDED"  # S: no session.
    CATCHING_UP = "CATCHING_UP"  # RF and FC: fed from the log by its own reader.
    LIVE = "LIVE"  # N: fed by the main stream.


LEGAL: dict[State, frozenset[State]] = {
    State.SUSPENDED: frozenset({State.CATCHING_UP}),
    State.CATCHING_UP: frozenset({State.LIVE, State.SUSPENDED}),
    State.LIVE: frozenset({State.CATCHING_UP, State.SUSPENDED}),
}


class Ahead(NamedTuple):
    """An index ahead of the main stream that a target has, and the chain value there, which the log has confirmed.

    Another log may have taken the place of the one that answered before the main stream gets there. So it is compared
    once more then, and until then only what the main stream had read, up to ``agreed``, is known to be the same.
    """

    index: int  # type: ignore[assignment]  # Hides tuple's own method.
    chain: bytes
    agreed: int


class TargetQueue:
    """What one player knows and holds for one target. Only the player's ``step`` touches it."""

    __slots__ = (
        "acked",
        "ahead",
        "bytes",
        "claim",
        "covered",
        "covered_chain",
        "deadlines",
        "digest",
        "known",
        "limits",
        "messages",
        "name",
        "read_error",
        "reading",
        "reconnect",
        "sent",
        "sent_chain",
        "session",
        "state",
        "term",
        "trimmed_before_open",
        "window",
        "writable",
    )

    def __init__(self, name: str, limits: Limits, acked: int = 0, term: int = 0) -> None:
        self.name = name
        self.limits = limits
        self.state = State.SUSPENDED
        self.session: Session | None = None  # Invariant: not None unless SUSPENDED; None or opening if SUSPENDED.
        self.term = term  # Invariant: the term of the newest session, open or gone.
        self.known = False  # Whether the target has reported its index to this player.
        self.acked = acked  # A lower bound of what is durable; kept across sessions, for the trim point.
        self.sent = 0
        self.covered = 0
        self.sent_chain = self.covered_chain = GENESIS  # The log's chain values there.
        self.ahead: Ahead | None = None  # Invariant: not None while an acked index is ahead of the main stream.
        self.messages: deque[Delivery] = deque()  # Invariant: rises strictly within (sent, covered].
        self.bytes = 0
        self.window = Window(limits.flight_batches_max, limits.flight_bytes_max)
        self.writable = False
        self.reading = False  # Invariant: at most one catch-up read is outstanding per session.
        self.read_error = ""  # Why the last catch-up read brought nothing; empty once one has.
        self.trimmed_before_open = 0
        self.claim: Claim | None = None  # Invariant: SUSPENDED while the log is asked about it.
        self.digest = 0  # The target's own, from its last word.
        self.reconnect = Reconnect(name, limits)
        self.deadlines = Deadlines(limits)

    def __repr__(self) -> str:
        return (
            f"<TargetQueue {self.name} {self.state.value} session={self.session} acked={self.acked} sent={self.sent} "
            f"covered={self.covered} queued={len(self.messages)} {self.window!r}>"
        )

    # --- The session's life ---------------------------------------------------------------------------------

    def open(self, epoch: int, trimmed: int, now: int) -> Session:
        """Begin a new session, with the next term. ``trimmed`` is the trim point as known before the Open is sent."""
        self.term += 1
        self.session = Session(epoch, self.term)
        self.trimmed_before_open = trimmed
        self.deadlines.opening(now)
        return self.session

    def opened(self, index: int, chain: bytes, current: int, now: int) -> None:
        """The target accepted the session and has ``index``, with this chain value; the main stream has ``current``."""
        self._become(State.CATCHING_UP)
        self.known = True
        self.acked = self.sent = self.covered = index
        self.sent_chain = self.covered_chain = chain
        self.ahead = Ahead(index, chain, current) if index > current else None
        self.writable = True
        self.deadlines.opened(now)

    def suspend(self) -> None:
        """The session is over, whatever its state. Only the lower bound of what is durable is kept."""
        if self.state is not State.SUSPENDED:
            self._become(State.SUSPENDED)
        self.session = None
        self.sent = self.covered = 0
        self.sent_chain = self.covered_chain = GENESIS
        self.messages.clear()
        self.bytes = 0
        self.window.clear()
        self.writable = False
        self.reading = False
        self.claim = None
        self.read_error = ""

    def _become(self, state: State) -> None:
        if state not in LEGAL[self.state]:
            raise broken("LegalTransition", target=self.name, old=self.state, new=state)
        self.state = state

    # --- Coverage -------------------------------------------------------------------------------------------

    def coverage(self, current: int) -> int:
        """Up to where the target is covered, if the main stream has reached ``current``.

        A LIVE target is covered by every entry that the main stream dispatches, also by those that are not for it.
        """
        if self.state is State.LIVE and current > self.covered:
            return current
        return self.covered

    def join(self, current: int) -> bool:
        """Become LIVE if the coverage has reached the main stream: the test and the switch are one step."""
        if self.state is not State.CATCHING_UP or self.covered < current:
            return False
        self._become(State.LIVE)
        if self.covered < current:
            raise broken("LiveCoversMain", queue=self, current=current)
        return True

    def demote(self, current: int, chain: bytes) -> None:
        """Fall back from LIVE to catch-up at the coverage as of ``current``; the session and the queue stay."""
        self.cover(current, chain)
        self._become(State.CATCHING_UP)

    # --- Identity -------------------------------------------------------------------------------------------

    def trimmable(self) -> int:
        """Up to where what the target has is of the history that the main stream has read."""
        return self.acked if self.ahead is None else min(self.acked, self.ahead.agreed)

    def agrees(self, index: int, chain: bytes) -> bool:
        """Whether a target ahead of the main stream has what that has come to: ``chain`` at ``index``.

        The question is settled then. If it has not, it counts with what both were known to have when it opened.
        """
        ahead = self.ahead
        if ahead is None or index != ahead.index:
            return True
        self.ahead = None
        if chain == ahead.chain:
            return True
        self.acked = min(self.acked, ahead.agreed)
        return False

    def disown(self) -> None:
        """What the target has is of another history: nothing of it lets the log be trimmed."""
        self.acked = 0
        self.ahead = None

    # --- In: entries ----------------------------------------------------------------------------------------

    def offer(self, message: Delivery) -> bool:
        """Queue the message if it fits; the coverage moves to its index. An empty queue takes a message of any size."""
        index, payload, _, chain = message  # At once: four attributes of a named tuple take three times as long.
        messages = self.messages
        bytes_ = self.bytes + len(payload)
        if messages:
            limits = self.limits
            if bytes_ > limits.queue_bytes_max or len(messages) >= limits.queue_count_max:
                return False
        if index <= self.covered:
            raise broken("QueueHoldsCoverage", queue=self, index=index)
        messages.append(message)
        self.bytes = bytes_
        self.covered = index
        self.covered_chain = chain
        return True

    def offer_all(self, messages: Sequence[Delivery]) -> bool:
        """Queue all of the messages if they fit together, for little more than one of them costs; else queue none."""
        if not messages:
            return True
        bytes_ = self.bytes + sum([len(payload) for _, payload, _, _ in messages])
        limits = self.limits
        if len(self.messages) + len(messages) > limits.queue_count_max or bytes_ > limits.queue_bytes_max:
            return False
        indexes = [index for index, _, _, _ in messages]
        if indexes[0] <= self.covered or sorted(set(indexes)) != indexes:
            raise broken("QueueHoldsCoverage", queue=self, first=indexes[0], last=indexes[-1])
        self.messages.extend(messages)
        self.bytes = bytes_
        self.covered = indexes[-1]
        self.covered_chain = messages[-1].chain
        return True

    def pass_on(self, message: Delivery) -> SendBatch | None:
        """A batch with this message alone, past the queue; None if it must be queued, because the window is closed.

        The caller has found the stream ready and the queue empty.
        """
        window = self.window
        flight = window.flight
        index, payload, _, chain = message
        size = len(payload)
        if flight and (len(flight) >= window.batches_max or window.bytes + size > window.bytes_max):
            return None
        if index <= self.covered:
            raise broken("QueueHoldsCoverage", queue=self, index=index)
        if self.session is None or not self.writable or self.messages:
            raise broken("OneWriter", queue=self)
        prev, prev_chain = self.sent, self.sent_chain
        self.sent = self.covered = index
        self.sent_chain = self.covered_chain = chain
        self.writable = False
        flight.append((index, 1, size))
        window.count += 1
        window.bytes += size
        return _new_tuple(SendBatch, (self.name, self.session, prev, index, [message], prev_chain, chain))

    def has_room(self) -> bool:
        """Whether less than half of the queue is taken."""
        limits = self.limits
        return len(self.messages) * 2 <= limits.queue_count_max and self.bytes * 2 <= limits.queue_bytes_max

    def cover(self, through: int, chain: bytes) -> None:
        """Everything for this target up to ``through`` is queued; ``chain`` is the log's value there."""
        if through > self.covered:
            self.covered = through
            self.covered_chain = chain

    # --- Out: batches ---------------------------------------------------------------------------------------

    def take(self, current: int, chain: bytes) -> SendBatch | None:
        """The next batch if there is one and the window has room for it. ``chain`` is the log's value at ``current``.

        A batch that drains the queue ends at the coverage; one that does not ends at its last entry, so that a range
        never passes an entry that is still queued.
        """
        window, queue = self.window, self.messages
        room = window.room()
        if room <= 0:
            return None
        taken, bytes_ = self._take_messages(room)
        prev = self.sent
        if not queue and self.state is State.LIVE:
            self.cover(current, chain)
        to, to_chain = self.covered, self.covered_chain
        if queue:
            if not taken:
                return None  # The next message does not fit the window; an ack will make room.
            to, to_chain = taken[-1].index, taken[-1].chain
        if to <= prev:
            return None
        if self.session is None or not self.writable:
            raise broken("OneWriter", queue=self)
        if taken and (taken[0].index <= prev or taken[-1].index > to):
            raise broken("BatchCoversItsEntries", queue=self, prev=prev, to=to)
        prev_chain = self.sent_chain
        self.sent, self.sent_chain = to, to_chain
        self.writable = False
        window.add(to, len(taken), bytes_)
        return SendBatch(self.name, self.session, prev, to, taken, prev_chain, to_chain)

    def _take_messages(self, room: int) -> tuple[list[Delivery], int]:
        queue, limits = self.messages, self.limits
        if len(queue) <= limits.batch_count_max:
            taken, bytes_ = list(queue), self.bytes
        else:
            taken = list(islice(queue, limits.batch_count_max))
            bytes_ = sum([len(payload) for _, payload, _, _ in taken])
        if bytes_ > room or bytes_ > limits.batch_bytes_max:
            taken, bytes_ = self._take_by_bytes(room)
        elif len(taken) == len(queue):
            queue.clear()
        else:
            for _ in taken:
                queue.popleft()
        self.bytes -= bytes_
        return taken, bytes_

    def _take_by_bytes(self, room: int) -> tuple[list[Delivery], int]:
        """As many as fit into the bytes. They are fewer than a batch may count: that many did not fit."""
        queue, limits = self.messages, self.limits
        taken: list[Delivery] = []
        bytes_ = 0
        while queue:
            more = len(queue[0].payload)
            if bytes_ + more > room and (taken or self.window.flight):
                break
            taken.append(queue.popleft())
            bytes_ += more
            if room > limits.batch_bytes_max:
                room = limits.batch_bytes_max  # For the rest of the batch: a first message may be larger than that.
        return taken, bytes_

    def ack(self, index: int, now: int) -> None:
        """The target says that everything up to ``index`` is durable.

        The caller has checked that ``acked <= index <= sent``: a target that says otherwise is at fault, not we.
        """
        deadlines = self.deadlines
        deadlines.heard_at = now
        if index > self.acked:
            self.acked = index
            self.window.ack(index)
            deadlines.progress_at = now
            self.reconnect.attempts = 0  # The next loss starts with the shortest wait.
            self.reconnect.blocked = None

    def verify(self) -> None:
        """Raise if an invariant does not hold. The player calls this at every tick: the hot path need not."""
        if self.state is State.SUSPENDED:
            return
        messages, window, limits = self.messages, self.window, self.limits
        if not self.acked <= self.sent <= self.covered:
            raise broken("IndexOrder", queue=self)
        if messages and (messages[0].index <= self.sent or messages[-1].index > self.covered):
            raise broken("QueueHoldsCoverage", queue=self, first=messages[0].index, last=messages[-1].index)
        if len(messages) > limits.queue_count_max or (len(messages) > 1 and self.bytes > limits.queue_bytes_max):
            raise broken("MemoryBound", queue=self, bytes=self.bytes)
        batches = len(window.flight)
        if batches > window.batches_max or (batches > 1 and window.bytes > window.bytes_max):
            raise broken("MemoryBound", queue=self, window=window)

    def idle(self) -> bool:
        """Nothing is queued and nothing is in flight."""
        return not self.messages and not self.window.flight

"""The target queue: one bounded queue per target, and the three indexes that say where the target stands.

    acked  <=  sent  <=  covered
      |         |          every entry up to here that is for this target is applied, sent, or queued
      |         the end of the last range that was written to the session's stream
      durable at the target, by its own word

States, and the paper's letters for them:

    SUSPENDED (S)  --Opened-->  CATCHING_UP (RF, FC)  --covered up to the main stream-->  LIVE (N)
        ^                            ^                                                      |
        |                            '------------------- queue full ----------------------'|
        '-------------------------- session lost, from any state ---------------------------'

A LIVE queue's coverage follows the main stream without being touched: see :meth:`TargetQueue.coverage`.
"""

from __future__ import annotations

import enum
from collections import deque

from logplayer.core.effect import SendBatch
from logplayer.core.entry import Message, Session
from logplayer.core.health import Health
from logplayer.core.heartbeat import Heartbeat
from logplayer.core.invariant import broken
from logplayer.core.limits import Limits
from logplayer.core.window import Window

_new_tuple = tuple.__new__  # A third of the time that the class itself takes.


class State(enum.Enum):
    """Where a target queue stands. The comments give the paper's letters."""

    SUSPENDED = "SUSPENDED"  # S: no session.
    CATCHING_UP = "CATCHING_UP"  # RF and FC: fed from the log by its own reader.
    LIVE = "LIVE"  # N: fed by the main stream.


LEGAL: dict[State, frozenset[State]] = {
    State.SUSPENDED: frozenset({State.CATCHING_UP}),
    State.CATCHING_UP: frozenset({State.LIVE, State.SUSPENDED}),
    State.LIVE: frozenset({State.CATCHING_UP, State.SUSPENDED}),
}


class TargetQueue:
    """What one player knows and holds for one target. Only the player's ``step`` touches it."""

    __slots__ = (
        "acked",
        "bytes",
        "covered",
        "digest",
        "health",
        "heartbeat",
        "known",
        "limits",
        "messages",
        "name",
        "reading",
        "sent",
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
        self.messages: deque[Message] = deque()  # Invariant: rises strictly within (sent, covered].
        self.bytes = 0
        self.window = Window(limits.flight_batches_max, limits.flight_bytes_max)
        self.writable = False
        self.reading = False  # Invariant: at most one catch-up read is outstanding per session.
        self.trimmed_before_open = 0
        self.digest = 0  # The target's own, from its last word.
        self.health = Health(name, limits)
        self.heartbeat = Heartbeat(limits)

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
        self.heartbeat.opening(now)
        return self.session

    def opened(self, index: int, now: int) -> None:
        """The target accepted the session and stands at ``index``."""
        self._become(State.CATCHING_UP)
        self.known = True
        self.acked = self.sent = self.covered = index
        self.writable = True
        self.heartbeat.opened(now)

    def suspend(self) -> None:
        """The session is over, whatever its state. Only the lower bound of what is durable is kept."""
        if self.state is not State.SUSPENDED:
            self._become(State.SUSPENDED)
        self.session = None
        self.sent = self.covered = 0
        self.messages.clear()
        self.bytes = 0
        self.window.clear()
        self.writable = False
        self.reading = False

    def _become(self, state: State) -> None:
        if state not in LEGAL[self.state]:
            raise broken("LegalTransition", target=self.name, old=self.state, new=state)
        self.state = state

    # --- Coverage -------------------------------------------------------------------------------------------

    def coverage(self, current: int) -> int:
        """Up to where the target is covered, if the main stream stands at ``current``.

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

    def demote(self, current: int) -> None:
        """Fall back from LIVE to catch-up at the coverage as of ``current``; the session and the queue stay."""
        self.covered = self.coverage(current)
        self._become(State.CATCHING_UP)

    # --- In: entries ----------------------------------------------------------------------------------------

    def offer(self, message: Message) -> bool:
        """Queue the message if it fits; the coverage moves to its index. An empty queue takes a message of any size."""
        messages = self.messages
        bytes_ = self.bytes + len(message.payload)
        if messages and (len(messages) >= self.limits.queue_count_max or bytes_ > self.limits.queue_bytes_max):
            return False
        if message.index <= self.covered:
            raise broken("QueueHoldsCoverage", queue=self, index=message.index)
        messages.append(message)
        self.bytes = bytes_
        self.covered = message.index
        return True

    def pass_on(self, message: Message) -> SendBatch | None:
        """A batch with this message alone, past the queue; None if it must be queued, for want of room in the window.

        The caller has found the stream ready and the queue empty.
        """
        window = self.window
        flight = window.flight
        index = message.index
        size = len(message.payload)
        if flight and (len(flight) >= window.batches_max or window.bytes + size > window.bytes_max):
            return None
        if index <= self.covered:
            raise broken("QueueHoldsCoverage", queue=self, index=index)
        if self.session is None or not self.writable or self.messages:
            raise broken("OneWriter", queue=self)
        prev = self.sent
        self.sent = self.covered = index
        self.writable = False
        flight.append((index, 1, size))
        window.count += 1
        window.bytes += size
        return _new_tuple(SendBatch, (self.name, self.session, prev, index, [message]))

    def has_room(self) -> bool:
        """Whether less than half of the queue is taken."""
        limits = self.limits
        return len(self.messages) * 2 <= limits.queue_count_max and self.bytes * 2 <= limits.queue_bytes_max

    def cover(self, through: int) -> None:
        """Everything for this target up to ``through`` is queued."""
        if through > self.covered:
            self.covered = through

    # --- Out: batches ---------------------------------------------------------------------------------------

    def take(self, current: int) -> SendBatch | None:
        """The next batch if there is one and the window has room for it.

        A batch that drains the queue ends at the coverage; one that does not ends at its last entry, so that a range
        never passes an entry that is still queued.
        """
        window, queue = self.window, self.messages
        room = window.room()
        if room <= 0:
            return None
        taken, bytes_ = self._take_messages(room)
        prev = self.sent
        to = self.covered
        if queue:
            if not taken:
                return None  # The next message does not fit the window; an ack will make room.
            to = taken[-1].index
        elif to < current and self.state is State.LIVE:
            to = self.covered = current
        if to <= prev:
            return None
        if self.session is None or not self.writable:
            raise broken("OneWriter", queue=self)
        if taken and (taken[0].index <= prev or taken[-1].index > to):
            raise broken("BatchCoversItsEntries", queue=self, prev=prev, to=to)
        self.sent = to
        self.writable = False
        window.add(to, len(taken), bytes_)
        return SendBatch(self.name, self.session, prev, to, taken)

    def _take_messages(self, room: int) -> tuple[list[Message], int]:
        queue, limits = self.messages, self.limits
        if self.bytes <= room and self.bytes <= limits.batch_bytes_max and len(queue) <= limits.batch_count_max:
            taken, bytes_ = list(queue), self.bytes
            queue.clear()
            self.bytes = 0
            return taken, bytes_
        taken = []
        bytes_ = 0
        while queue and len(taken) < limits.batch_count_max:
            more = len(queue[0].payload)
            if bytes_ + more > room and (taken or self.window.flight):
                break
            taken.append(queue.popleft())
            bytes_ += more
            if room > limits.batch_bytes_max:
                room = limits.batch_bytes_max  # For the rest of the batch: a first message may be larger than that.
        self.bytes -= bytes_
        return taken, bytes_

    def ack(self, index: int, now: int) -> None:
        """The target says that everything up to ``index`` is durable.

        The caller has checked that ``acked <= index <= sent``: a target that says otherwise is at fault, not we.
        """
        heartbeat = self.heartbeat
        heartbeat.heard_at = now
        if index > self.acked:
            self.acked = index
            self.window.ack(index)
            heartbeat.progress_at = now
            self.health.attempts = 0  # The next loss starts with the shortest wait.
            self.health.blocked = None

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

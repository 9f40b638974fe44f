"""A world for feeds: one target, filled from a bounded source by one feed, or by two that take it from each other.

The feed is the real one of ``core/feed.py``, and the target follows the real rules of ``core/fence.py``. Questions
fail, requests and answers arrive late, in a prefix or not at all, the source is read in pieces, streams are cut.

once       the target has each delivery of the source once, in order, and no other
range      a batch has exactly what the source has of its range
ended      a feed ends when the target has all of the source, and says so
progress   once the faults stop, every feed ends
"""

from __future__ import annotations

import random
from collections import deque
from zlib import crc32

from logplayer.core.effects import CloseSession, OpenSession, ReadCatchUp, SendBatch, SendProbe
from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.events import Acked, DeliveriesRead, Event, Lost, Opened, Refused, Ticked, Written
from logplayer.core.feed import AskFailed, AskSession, Feed, FeedEffect, FeedEvent, Stood
from logplayer.core.fence import Batch, Position, TargetRefusal, admit, advance, check
from logplayer.core.limits import Limits
from logplayer.testing.sim.options import CLOCK
from logplayer.testing.sim.violation import Violation

NAME = "a"
HEAL_STEPS = 40_000
Request = OpenSession | SendBatch | SendProbe


class FedTarget:
    """The target, and what the source says it must get."""

    def __init__(self, source: list[Delivery]) -> None:
        self.source = source
        self.position = Position()
        self.applied: list[Delivery] = []

    def take(self, request: Request) -> Event:
        """Its answer."""
        session, position = request.session, self.position
        if isinstance(request, OpenSession):
            opened = admit(position, session, "log")
            if isinstance(opened, TargetRefusal):
                return Refused(NAME, session, opened.reason)
            self.position = opened
            return Opened(NAME, session, opened.index)
        if isinstance(request, SendBatch):
            batch = Batch(request.prev, request.to, tuple(request.messages))
            refused = check(position, session, batch)
            if refused is not None:
                return Refused(NAME, session, refused.reason)
            due = tuple(m for m in self.source if batch.prev < m.index <= batch.to)
            if batch.messages != due:
                raise Violation("range", f"({batch.prev}, {batch.to}] has {len(batch.messages)} of {len(due)}")
            self.applied += due
            self.position = advance(position, batch)
            if self.applied != self.source[: len(self.applied)]:
                raise Violation("once", f"at {batch.to}: {[m.index for m in self.applied]}")
        elif session != position.session:
            return Refused(NAME, session, Refusal.STALE_SESSION)
        return Acked(NAME, session, self.position.index)


class FeedShell:
    """Performs what one feed asks for: late, in part, or not at all."""

    def __init__(self, feed: Feed, target: FedTarget, rng: random.Random) -> None:
        self.feed, self.target, self.rng = feed, target, rng
        self.there: deque[Request] = deque()
        self.back: deque[FeedEvent] = deque()
        self.reads: list[ReadCatchUp] = []
        self.asks = 0
        self.session: Session | None = None

    def tell(self, fact: FeedEvent) -> None:
        for effect in self.feed.step(fact):
            self._perform(effect)
        ended = self.feed.ended
        if ended is not None and (ended.index < self.feed.through or self.target.position.index < self.feed.through):
            raise Violation("ended", f"{ended}, and the target has {self.target.position.index}")

    def _perform(self, effect: FeedEffect) -> None:
        match effect:
            case AskSession():
                self.asks += 1
            case ReadCatchUp():
                self.reads.append(effect)
            case OpenSession() | SendBatch() | SendProbe():
                self.session = effect.session
                self.there.append(effect)
            case CloseSession():  # What is on the way may still arrive, in a prefix; so may answers.
                for _ in range(self.rng.randint(0, len(self.there))):
                    self.there.pop()

    def act(self, *, heal: bool) -> str:
        """One thing that can happen now; returns which."""
        what = self.rng.choice(["ask", "there", "back", "read", *([] if heal else ["cut", "late"])])
        if what == "ask" and self.asks:
            self.asks -= 1
            well = heal or self.rng.random() < 0.7
            self.tell(Stood(self.target.position.session) if well else AskFailed("away"))
        elif what == "there" and self.there:
            request = self.there.popleft()
            self.back.append(self.target.take(request))
            if isinstance(request, SendBatch):
                self.back.append(Written(NAME, request.session))
        elif what == "back" and self.back:
            self.tell(self.back.popleft())
        elif what == "read" and self.reads:
            self.tell(self._read(self.reads.pop(0)))
        elif what == "cut" and self.session is not None:
            self.there.clear()
            self.back.append(Lost(NAME, self.session, "cut"))
        elif what == "late" and self.reads:
            self.reads.append(self.reads.pop(0))  # Of a session that may be over by then.
        return what

    def _read(self, request: ReadCatchUp) -> DeliveriesRead:
        found = [m for m in self.target.source if request.first <= m.index <= request.last]
        count = self.rng.randint(1, request.count_max + 2)  # More than asked for does no harm.
        through = request.last if count >= len(found) else found[count].index - 1
        return DeliveriesRead(NAME, request.session, request.first - 1, through, found[:count])


class FeedWorld:
    """One seed's run."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.steps = self.faults = 0
        through = rng.randint(1, 60)
        self.target = FedTarget(
            [Delivery(n, bytes(rng.randint(0, 9))) for n in range(1, through + 1) if rng.random() < 0.7]
        )
        limits = Limits(
            queue_count_max=6,
            queue_bytes_max=30,
            batch_count_max=3,
            batch_bytes_max=15,
            flight_batches_max=2,
            flight_bytes_max=20,
            idle_entries_max=1,
            trim_entries_min=1,
            **CLOCK,
        )
        feeds = [Feed(NAME, 0, through, limits=limits, patience_ms=10**9) for _ in range(rng.choice((1, 1, 2)))]
        self.shells = [FeedShell(feed, self.target, rng) for feed in feeds]
        self.fault_steps = rng.randint(0, 400)

    def __str__(self) -> str:
        return f"feeds={len(self.shells)} deliveries={len(self.target.source)} steps={self.fault_steps}"

    def state_digest(self) -> str:
        """The same for every run of a seed."""
        facts = (self.steps, self.target.position, [m.index for m in self.target.applied])
        return f"{crc32(repr(facts).encode()):08x}"

    def run(self) -> None:
        """The phase of faults, then one without."""
        now = 0
        while self.steps < self.fault_steps + HEAL_STEPS:
            self.steps += 1
            shell = self.rng.choice(self.shells)
            now += self.rng.choice((0, 0, 0, 1, 5, 20))
            if self.rng.random() < 0.2:
                shell.tell(Ticked(now))
            self.faults += shell.act(heal=self.steps > self.fault_steps) in ("cut", "late")
            if all(shell.feed.ended for shell in self.shells):
                break
        else:
            raise Violation("progress", f"{[shell.feed for shell in self.shells]}")
        if self.target.applied != self.target.source:
            raise Violation("once", f"{len(self.target.applied)} of {len(self.target.source)} deliveries")

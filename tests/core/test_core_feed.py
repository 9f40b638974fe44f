"""A feed fills one target from a bounded source: through every fault exactly once, and it says how it ended."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logplayer.core.effects import CloseSession, OpenSession, ReadCatchUp, SendBatch, SendProbe, Stop
from logplayer.core.entry import Delivery, Refusal, Session
from logplayer.core.events import Acked, DeliveriesRead, Event, Lost, Opened, Refused, Ticked, Written
from logplayer.core.feed import AskFailed, AskSession, Fed, Feed, FeedEffect, FeedEvent, Stood
from logplayer.core.reconnect import Blocked
from tests.core.core_rig import limits, of, one

NOBODY = Session(0, 0)


def feed_of(through: int, *, epoch: int = 0, after: int = 0, patience_ms: int = 5000, **changed: int) -> Feed:
    small = limits(**{"idle_entries_max": 1, **changed})
    return Feed("a", epoch, through, after=after, limits=small, patience_ms=patience_ms)


def asked(feed: Feed, newest: Session = NOBODY) -> Session:
    """Begin: the target says which session is its newest. Returns the one that is opened."""
    assert feed.step(Ticked(0)) == [AskSession("a")]
    return one(feed.step(Stood(newest)), OpenSession).session


def opened(feed: Feed, index: int = 0) -> tuple[Session, ReadCatchUp]:
    session = asked(feed)
    return session, one(feed.step(Opened("a", session, index)), ReadCatchUp)


def deliveries(*indexes: int) -> list[Delivery]:
    return [Delivery(index, b"%d" % index) for index in indexes]


def test_a_source_is_read_sent_and_acked() -> None:
    feed = feed_of(10)
    session, read = opened(feed, 3)
    assert (read.first, read.last) == (4, 10)
    [batch] = of(feed.step(DeliveriesRead("a", session, 3, 10, deliveries(5, 8))), SendBatch)
    assert (batch.prev, batch.to, batch.messages) == (3, 10, deliveries(5, 8))
    assert feed.step(Written("a", session)) == []
    assert feed.ended is None
    assert feed.step(Acked("a", session, 10, digest=77)) == [Stop()]
    assert feed.ended == Fed(10, 77)
    assert feed.step(Acked("a", session, 10)) == []  # Whatever comes later comes too late.


def test_the_end_of_the_source_is_covered_at_once_though_nothing_is_in_it() -> None:
    feed = feed_of(10)
    session, _ = opened(feed)
    [batch] = of(feed.step(DeliveriesRead("a", session, 0, 10, [])), SendBatch)
    assert (batch.prev, batch.to, batch.messages) == (0, 10, [])


def test_an_empty_source_still_opens_the_target() -> None:
    feed = feed_of(0)
    session = asked(feed)
    feed.step(Opened("a", session, 0))
    assert feed.ended == Fed(0)


@pytest.mark.parametrize(
    ("newest", "term"), [(NOBODY, 1), (Session(4, 57), 58), (Session(3, 57), 1), (Session(5, 57), 1)]
)
def test_the_first_term_follows_the_newest_of_the_same_epoch(newest: Session, term: int) -> None:
    assert asked(feed_of(10, epoch=4), newest) == Session(4, term)


def test_a_lost_session_is_followed_by_the_next_term_from_where_the_target_stands() -> None:
    feed = feed_of(10)
    session, _ = opened(feed)
    feed.step(DeliveriesRead("a", session, 0, 10, deliveries(2, 9)))
    assert feed.step(Refused("a", session, Refusal.STALE_SESSION)) == [CloseSession("a", session)]
    again = one(feed.step(Ticked(100)), OpenSession).session
    assert again == Session(0, 2)
    assert one(feed.step(Opened("a", again, 5)), ReadCatchUp).first == 6


@pytest.mark.parametrize("epoch", [5, 1000])  # Within the source, and after it: a player would ask the log.
def test_fenced_ends_it(epoch: int) -> None:
    fenced = Blocked("FENCED", f"epoch {epoch} has taken over", epoch)
    feed = feed_of(10)
    session = asked(feed)
    effects = feed.step(Refused("a", session, Refusal.FENCED, "no", epoch=epoch))
    assert effects[-1] == Stop()
    assert feed.ended == Fed(0, blocked=fenced)
    feed = feed_of(10)
    session, _ = opened(feed, 3)
    feed.step(Refused("a", session, Refusal.FENCED, "no", epoch=epoch))
    assert feed.ended == Fed(3, blocked=fenced)


def test_poison_and_a_wrong_log_end_it() -> None:
    feed = feed_of(10)
    session, _ = opened(feed)
    feed.step(Refused("a", session, Refusal.POISON, "no such op", index=7))
    assert feed.ended == Fed(0, blocked=Blocked("POISON", "no such op", 7))
    feed = feed_of(10)
    feed.step(Refused("a", asked(feed), Refusal.WRONG_LOG, "another log"))
    assert feed.ended is not None
    assert feed.ended.blocked == Blocked("WRONG_LOG", "another log")


def test_a_target_that_has_more_than_the_source_has_all_of_it() -> None:
    feed = feed_of(10)
    feed.step(Opened("a", asked(feed), 12, digest=5))
    assert feed.ended == Fed(12, 5)


def test_a_target_that_lacks_what_comes_before_the_source_gets_nothing() -> None:
    feed = feed_of(10, after=6)
    effects = feed.step(Opened("a", asked(feed), 5))
    assert not of(effects, ReadCatchUp)
    assert feed.ended is not None
    assert feed.ended.blocked is not None
    assert feed.ended.blocked.kind == "RESEED"
    feed = feed_of(10, after=6)
    assert one(feed.step(Opened("a", asked(feed), 6)), ReadCatchUp).first == 7


# --- Patience ---


def tick_until_ended(feed: Feed, answer: FeedEvent | None = None, ticks: int = 300) -> int:
    """Tick, and answer whatever is asked for; returns how many times it was asked."""
    count = 0
    for now in range(0, ticks * 100, 100):
        for effect in feed.step(Ticked(now)):
            if isinstance(effect, AskSession) and answer is not None:
                count += 1
                feed.step(answer)
            elif isinstance(effect, OpenSession):
                count += 1
                feed.step(Lost("a", effect.session, "connection refused"))
        if feed.ended is not None:
            return count
    return count


def test_a_target_that_cannot_be_asked_is_asked_again_until_the_patience_ends() -> None:
    feed = feed_of(10)
    assert tick_until_ended(feed, AskFailed("no route")) > 10
    assert feed.ended == Fed(0, error="no route")


def test_a_target_that_opens_no_session_is_given_up() -> None:
    feed = feed_of(10)
    assert tick_until_ended(feed, Stood(NOBODY)) > 10
    assert feed.ended == Fed(0, error="connection refused")


def test_one_question_is_asked_at_a_time() -> None:
    feed = feed_of(10)
    assert feed.step(Ticked(0)) == [AskSession("a")]
    assert feed.step(Ticked(100)) == feed.step(Ticked(200)) == []


def test_progress_starts_the_patience_again_and_a_pause_of_ours_does_not_count() -> None:
    feed = feed_of(10, patience_ms=1000, progress_ms_max=10_000)
    session, _ = opened(feed)
    feed.step(DeliveriesRead("a", session, 0, 10, deliveries(2, 9)))
    for index in (1, 2, 3):
        now = index * 100_000  # We slept: it counts as tick_ms_max.
        feed.step(Ticked(now))
        for later in range(100, 900, 100):
            feed.step(Acked("a", session, index - 1))  # It lives, and takes nothing.
            feed.step(Ticked(now + later))
        feed.step(Acked("a", session, index))
    assert feed.ended is None


def test_a_slow_source_is_no_fault_of_the_target() -> None:
    feed = feed_of(10, patience_ms=1000, progress_ms_max=10_000)
    session, _ = opened(feed)
    for now in range(0, 60_000, 100):
        feed.step(Ticked(now))
        feed.step(Acked("a", session, 0))  # The answer to a probe.
    assert feed.ended is None
    feed.step(DeliveriesRead("a", session, 0, 10, deliveries(2)))
    for now in range(60_000, 70_000, 100):
        feed.step(Ticked(now))
        feed.step(Acked("a", session, 0))
    assert feed.ended is not None
    assert feed.ended.error


# --- Through faults ---


class Target:
    """The reference: takes a batch if the session is its newest, the range fits, and it holds all of that range."""

    def __init__(self, source: list[Delivery]) -> None:
        self.source = source
        self.index = 0
        self.session = NOBODY
        self.applied: list[Delivery] = []

    def take(self, request: OpenSession | SendBatch | SendProbe) -> Event:
        if isinstance(request, OpenSession):
            if request.session <= self.session:
                return Refused("a", request.session, Refusal.STALE_SESSION)
            self.session = request.session
            return Opened("a", request.session, self.index)
        if request.session != self.session:
            return Refused("a", request.session, Refusal.STALE_SESSION)
        if isinstance(request, SendBatch):
            if request.prev != self.index:
                return Refused("a", request.session, Refusal.OUT_OF_SYNC)
            assert request.messages == [m for m in self.source if request.prev < m.index <= request.to]
            self.applied += request.messages
            self.index = request.to
        return Acked("a", request.session, self.index)


class Shell:
    """Performs what one feed asks for, late, in part, or not at all."""

    def __init__(self, feed: Feed, target: Target, random: Random) -> None:
        self.feed, self.target, self.random = feed, target, random
        self.there: deque[OpenSession | SendBatch | SendProbe] = deque()
        self.back: deque[FeedEvent] = deque()
        self.reads: list[ReadCatchUp] = []
        self.asks = 0
        self.session: Session | None = None

    def tell(self, fact: FeedEvent) -> None:
        for effect in self.feed.step(fact):
            self.perform(effect)

    def perform(self, effect: FeedEffect) -> None:
        if isinstance(effect, AskSession):
            self.asks += 1
        elif isinstance(effect, ReadCatchUp):
            self.reads.append(effect)
        elif isinstance(effect, OpenSession | SendBatch | SendProbe):
            self.session = effect.session
            self.there.append(effect)
        elif isinstance(effect, CloseSession):
            # What is on the way may still arrive, in a prefix; so may answers.
            for _ in range(self.random.randint(0, len(self.there))):
                self.there.pop()

    def act(self, heal: bool) -> None:
        """One thing that can happen now."""
        random = self.random
        what = random.choice(["ask", "there", "back", "read", *([] if heal else ["cut", "late"])])
        if what == "ask" and self.asks:
            self.asks -= 1
            well = heal or random.random() < 0.7
            self.tell(Stood(self.target.session) if well else AskFailed("away"))
        elif what == "there" and self.there:
            request = self.there.popleft()
            self.back.append(self.target.take(request))
            if isinstance(request, SendBatch):
                self.back.append(Written("a", request.session))
        elif what == "back" and self.back:
            self.tell(self.back.popleft())
        elif what == "read" and self.reads:
            self.tell(self.read(self.reads.pop(0)))
        elif what == "cut" and self.session is not None:
            self.there.clear()
            self.back.append(Lost("a", self.session, "cut"))
        elif what == "late" and self.reads:
            self.reads.append(self.reads.pop(0))  # Of a session that may be over by then.

    def read(self, request: ReadCatchUp) -> DeliveriesRead:
        found = [m for m in self.target.source if request.first <= m.index <= request.last]
        count = self.random.randint(1, request.count_max + 2)  # More than asked for does no harm.
        through = request.last if count >= len(found) else found[count].index - 1
        return DeliveriesRead("a", request.session, request.first - 1, through, found[:count])


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), rivals=st.sampled_from([1, 1, 2]), steps=st.integers(0, 400))
def test_every_delivery_arrives_once_and_in_order_whatever_breaks(seed: int, rivals: int, steps: int) -> None:
    random = Random(seed)
    through = random.randint(1, 60)
    source = [Delivery(n, bytes(random.randint(0, 9))) for n in range(1, through + 1) if random.random() < 0.7]
    target = Target(source)
    room = {"queue_count_max": 6, "queue_bytes_max": 30, "batch_count_max": 3, "batch_bytes_max": 15}
    window = {"flight_batches_max": 2, "flight_bytes_max": 20}
    shells = [Shell(feed_of(through, patience_ms=10**9, **room, **window), target, random) for _ in range(rivals)]
    now = 0
    for step in range(steps + 40_000):
        shell = random.choice(shells)
        now += random.choice([0, 0, 0, 1, 5, 20])
        if random.random() < 0.2:
            shell.tell(Ticked(now))
        shell.act(heal=step >= steps)
        if all(shell.feed.ended for shell in shells):
            break
    assert [shell.feed.ended for shell in shells] == [Fed(through)] * rivals
    assert target.applied == source
    assert target.index == through

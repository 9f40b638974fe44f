"""A state machine drives ``Player.step`` with everything that a shell may tell it: in order, late, stale or never.

The targets here are a tiny reference of their own: they know nothing of core/fence.py.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logplayer.core.effects import (
    CloseSession,
    Effect,
    OpenSession,
    ReadCatchUp,
    Report,
    SendBatch,
    SendProbe,
    TrimLog,
)
from logplayer.core.entry import Entry, Mutation, Refusal, Session
from logplayer.core.events import (
    Acked,
    CatchUpFailed,
    CatchUpTrimmed,
    CaughtUp,
    Event,
    Fetched,
    LogTrimmed,
    Lost,
    Opened,
    Refused,
    Surveyed,
    Ticked,
    Written,
)
from logplayer.core.target_queue import State
from tests.core.core_rig import control, limits, mutations_of, new_player, payload

NAMES = ("a", "b", "c")
NOBODY = Session(0, 0)


@dataclass
class Target:
    """Applies a batch if its session is the newest and its range begins where the target stands."""

    name: str
    index: int = 0
    session: Session = NOBODY
    applied: list[tuple[int, bytes]] = field(default_factory=list)

    def take(self, message: Effect) -> Event | None:
        if isinstance(message, OpenSession):
            if message.session <= self.session:
                return Refused(self.name, message.session, Refusal.STALE_SESSION)
            self.session = message.session
            return Opened(self.name, message.session, self.index)
        assert isinstance(message, SendBatch | SendProbe)
        if message.session != self.session:
            return Refused(self.name, message.session, Refusal.STALE_SESSION)
        if isinstance(message, SendBatch):
            if message.prev != self.index:
                return Refused(self.name, message.session, Refusal.OUT_OF_SYNC)
            self.applied += [(m.index, m.payload) for m in message.messages]
            self.index = message.to
        return Acked(self.name, message.session, self.index)


@dataclass
class Stream:
    """One session's two directions."""

    target: Target
    session: Session
    there: deque[Effect] = field(default_factory=deque)
    back: deque[Event] = field(default_factory=deque)
    written: int = 0  # Batches that the player has not been told of yet.
    over: bool = False


class World(RuleBasedStateMachine):
    @initialize(
        queue=st.integers(1, 4),
        queue_bytes=st.sampled_from((5, 20, 200)),
        batch=st.integers(1, 3),
        flight=st.integers(1, 3),
        idle=st.sampled_from((1, 3, 1000)),
    )
    def begin(self, queue: int, queue_bytes: int, batch: int, flight: int, idle: int) -> None:
        self.limits = limits(
            queue_count_max=queue,
            queue_bytes_max=queue_bytes,
            batch_count_max=batch,
            batch_bytes_max=8,
            flight_batches_max=flight,
            flight_bytes_max=16,
            idle_entries_max=idle,
        )
        self.log: list[Entry] = []
        self.last = self.trimmed = self.fetched = self.now = 0
        self.targets = {name: Target(name) for name in NAMES}
        self.streams: dict[tuple[str, Session], Stream] = {}
        self.reads: deque[ReadCatchUp] = deque()
        self.said: list[Event] = []  # Everything that a session was ever told of; it may be told again, too late.
        self.player = new_player(1, 0, control(*NAMES), self.limits, trims=True)
        self.player.step(Surveyed(1, ()))

    def tell(self, fact: Event) -> None:
        """One step; its effects are performed on the reference world."""
        for effect in self.player.step(fact):
            assert not isinstance(effect, Report), effect
            if isinstance(effect, OpenSession):
                stream = Stream(self.targets[effect.target], effect.session)
                self.streams[effect.target, effect.session] = stream
                stream.there.append(effect)
            elif isinstance(effect, SendBatch | SendProbe):
                stream = self.streams[effect.target, effect.session]
                assert not stream.over, "nothing is sent on a session that was closed"
                stream.there.append(effect)
                if isinstance(effect, SendBatch):
                    assert stream.written == 0, "one write at a time"
                    stream.written += 1
            elif isinstance(effect, CloseSession):
                self.streams[effect.target, effect.session].over = True
            elif isinstance(effect, ReadCatchUp):
                self.reads.append(effect)
            elif isinstance(effect, TrimLog):
                assert effect.up_to <= min(target.index for target in self.targets.values()), "TrimSafe"
                self.trimmed = effect.up_to

    def open_streams(self) -> list[Stream]:
        return list(self.streams.values())

    # --- What may happen ------------------------------------------------------------------------------------

    @rule(
        gap=st.sampled_from((0, 0, 0, 2)),
        names=st.lists(st.sampled_from(NAMES), max_size=3),
        size=st.sampled_from((0, 1, 6, 30)),
    )
    def append(self, gap: int, names: list[str], size: int) -> None:
        self.last += 1 + gap
        self.log.append(Entry(self.last, payload(*(Mutation(b"k", b"x" * size, name) for name in names))))

    @rule(count=st.integers(1, 4))
    def fetch(self, count: int) -> None:
        found = [copy(e) for e in self.log if e.index > self.fetched][:count]
        if found:
            self.fetched = found[-1].index
            self.tell(Fetched(found))

    @rule(span=st.sampled_from((1, 10, 60, 300)))
    def tick(self, span: int) -> None:
        self.now += span
        self.tell(Ticked(self.now))

    @precondition(lambda self: any(stream.there for stream in self.open_streams()))
    @rule(data=st.data())
    def reach_a_target(self, data: st.DataObject) -> None:
        """Also on streams that the player has given up: they deliver a prefix, late."""
        stream = data.draw(st.sampled_from([s for s in self.open_streams() if s.there]), label="stream")
        self.deliver(stream)

    def deliver(self, stream: Stream) -> None:
        answer = stream.target.take(stream.there.popleft())
        if answer is not None:
            stream.back.append(answer)

    @precondition(lambda self: any(stream.back for stream in self.open_streams()))
    @rule(data=st.data())
    def reach_the_player(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from([s for s in self.open_streams() if s.back]), label="stream")
        self.answer(stream)

    def answer(self, stream: Stream) -> None:
        fact = stream.back.popleft()
        self.said.append(fact)
        self.tell(fact)

    @precondition(lambda self: any(stream.written for stream in self.open_streams()))
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from([s for s in self.open_streams() if s.written]), label="stream")
        self.wrote(stream)

    def wrote(self, stream: Stream) -> None:
        stream.written -= 1
        self.tell(Written(stream.target.name, stream.session))

    @precondition(lambda self: bool(self.reads))
    @rule(count=st.integers(0, 4), fails=st.sampled_from((False, False, False, True)))
    def read(self, count: int, fails: bool) -> None:
        asked = self.reads.popleft()
        if fails:
            self.tell(CatchUpFailed(asked.target, asked.session, "away"))
        elif asked.first <= self.trimmed:
            self.tell(CatchUpTrimmed(asked.target, asked.session, self.trimmed + 1))
        else:
            found = [copy(e) for e in self.log if asked.first <= e.index <= asked.last]
            short = found[:count]
            through = asked.last if len(short) == len(found) else short[-1].index if short else asked.first - 1
            self.tell(CaughtUp(asked.target, asked.session, asked.first - 1, through, short))

    @rule(name=st.sampled_from(NAMES), told=st.booleans())
    def cut(self, name: str, told: bool) -> None:
        """The newest stream breaks; what is on it may be lost, and the player may learn of it late."""
        mine = [stream for stream in self.open_streams() if stream.target.name == name and not stream.over]
        if mine:
            mine[-1].there.clear()
            lost = Lost(name, mine[-1].session, "reset")
            if told:
                self.tell(lost)
            else:
                mine[-1].back.append(lost)

    @precondition(lambda self: bool(self.said))
    @rule(data=st.data())
    def say_again(self, data: st.DataObject) -> None:
        """A word of a session that is over comes a second time."""
        old = [f for f in self.said if self.streams[f.target, f.session].over]  # type: ignore[union-attr]
        if old:
            self.tell(data.draw(st.sampled_from(old), label="old"))

    @rule()
    def trimmed_elsewhere(self) -> None:
        self.tell(LogTrimmed(self.trimmed))

    # --- What must hold -------------------------------------------------------------------------------------

    @invariant()
    def the_targets_hold_what_the_log_says(self) -> None:
        for target in self.targets.values() if hasattr(self, "targets") else ():
            assert target.applied == self.due(target)

    def due(self, target: Target) -> list[tuple[int, bytes]]:
        wanted = []
        for entry in self.log:
            parts = [m.encoded for m in mutations_of(entry) if m.target == target.name]
            if parts and entry.index <= target.index:
                wanted.append((entry.index, b"".join(parts)))
        return wanted

    @invariant()
    def memory_is_bounded_and_beliefs_are_true(self) -> None:
        if not hasattr(self, "player"):
            return
        for queue in self.player.queues.values():
            queue.verify()
            assert queue.acked <= self.targets[queue.name].index
            assert len(queue.messages) <= self.limits.queue_count_max
            assert len(queue.window.flight) <= self.limits.flight_batches_max
            if queue.state is State.LIVE:
                assert queue.coverage(self.player.current) >= self.player.current
        assert len(self.player.recent.entries) <= self.limits.queue_count_max
        assert len(self.reads) <= len(self.streams) + 1

    @rule(rounds=st.integers(1, 12))
    def run(self, rounds: int) -> None:
        """A while without trouble, so that sessions stand and queues are LIVE when the next trouble comes."""
        for _ in range(rounds):
            self.round()

    def round(self) -> None:
        self.fetch(4)
        if self.reads:
            self.read(4, False)
        for stream in self.open_streams():
            if stream.there:
                self.deliver(stream)
            if stream.written:
                self.wrote(stream)
            if stream.back:
                self.answer(stream)
        self.tick(20)

    def teardown(self) -> None:
        """No more trouble: everything arrives."""
        if not hasattr(self, "player"):
            return
        for _ in range(400 + 40 * len(self.log)):
            if all(target.index >= self.last for target in self.targets.values()) and self.fetched >= self.last:
                break
            self.round()
        else:
            raise AssertionError(f"not everything arrived: {[*self.player.queues.values()]}")
        self.the_targets_hold_what_the_log_says()


def copy(entry: Entry) -> Entry:
    """A reader decodes its own."""
    return Entry(entry.index, entry.payload, entry.record)


TestWorld = World.TestCase
TestWorld.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

"""Tracing only observes: the same facts lead to the same effects, in the same order, traced or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from logplayer.core.effects import Effect, OpenSession, ReadCatchUp, SendBatch
from logplayer.core.entry import Entry
from logplayer.core.events import Acked, CaughtUp, Event, Fetched, Lost, Opened, Ticked, Written
from logplayer.testing.sim.host import SimHost
from logplayer.testing.sim.options import options_for
from logplayer.testing.sim.simulation import Simulation
from tests.core.core_rig import control, entry, limits, new_player

NAMES = ("a", "b", "c")
GHOST = "ghost"  # Not a member: what is for it is reported, in the step that dispatches it.


class Pair:
    """Two players that are told the same, one of them traced."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.lines: list[Mapping[str, object]] = []
        small = limits(queue_count_max=2, flight_batches_max=2, batch_count_max=2)
        self.plain = new_player(1, 0, control(*NAMES), small)
        self.traced = new_player(1, 0, control(*NAMES), small, trace=self.lines.append)
        self.pending: list[Event] = []
        self.now = 0

    def tell(self, make: Callable[[], Event]) -> None:
        """One fact for both; each gets a copy of its own."""
        plain, traced = self.plain.step(make()), self.traced.step(make())
        assert traced == plain
        for effect in plain:
            self.pending += self.answers(effect)

    def answers(self, effect: Effect) -> list[Event]:
        if isinstance(effect, OpenSession):
            return [Opened(effect.target, effect.session, self.plain.queues[effect.target].acked)]
        if isinstance(effect, SendBatch):
            head = effect.target, effect.session
            return [Written(*head), Acked(*head, effect.to)]
        if isinstance(effect, ReadCatchUp):
            head = effect.target, effect.session
            found = [one for one in self.log if effect.first <= one.index <= effect.last]
            return [CaughtUp(*head, effect.first - 1, effect.last, found)]
        return []

    def fetch(self, count: int, names: list[str]) -> None:
        first = len(self.log) + 1
        new = [(index, dict.fromkeys(names, "x")) for index in range(first, first + count)]
        self.log += [entry(index, **parts) for index, parts in new]
        self.tell(lambda: Fetched([entry(index, **parts) for index, parts in new]))

    def answer(self, which: int) -> None:
        if self.pending:
            fact = self.pending.pop(which % len(self.pending))
            self.tell(lambda: fact)

    def tick(self) -> None:
        self.now += 50
        self.tell(lambda: Ticked(self.now))

    def lose(self, name: str) -> None:
        session = self.plain.queues[name].session
        if session is not None:
            self.tell(lambda: Lost(name, session, "it broke"))


def acts(kind: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(kind), *arguments)


walks = st.lists(
    st.one_of(
        acts("fetch", st.sampled_from((1, 1, 1, 3)), st.lists(st.sampled_from((*NAMES, GHOST)), unique=True)),
        acts("answer", st.integers(0, 8)),
        acts("answer", st.integers(0, 8)),
        acts("tick"),
        acts("lose", st.sampled_from(NAMES)),
    ),
    max_size=60,
)


@given(walks)
def test_a_traced_player_asks_for_the_same_in_the_same_order(walk: list[tuple[Any, ...]]) -> None:
    pair = Pair()
    pair.tick()
    for _ in NAMES:
        pair.answer(0)
    for act, *arguments in walk:
        getattr(pair, act)(*arguments)


def test_a_batch_leaves_before_what_is_decided_after_it() -> None:
    """The trace tells of the entry before it tells of the batch; the batch does not wait for that."""
    pair = Pair()
    pair.tick()
    for _ in NAMES:
        pair.answer(0)
    pair.fetch(1, ["a", GHOST, "b"])
    assert [line["ev"] for line in pair.lines[-3:]] == ["dispatch", "send", "send"]


class Recording(Simulation):
    """A simulation that writes down every effect of every player, as it is performed."""

    def __init__(self, seed: int, trace: bool) -> None:
        self.performed: list[tuple[int, Effect]] = []
        super().__init__(options_for(seed), trace=trace)

    class _Host(SimHost):
        def _perform(self, request: Effect) -> None:
            assert isinstance(self.sim, Recording)
            self.sim.performed.append((self.core.epoch, request))
            super()._perform(request)

    _host_class = _Host


def test_a_traced_run_of_the_simulator_sends_the_same_batches_in_the_same_order() -> None:
    for seed in range(1, 30):
        plain, traced = Recording(seed, trace=False), Recording(seed, trace=True)
        plain.run()
        traced.run()
        assert traced.performed == plain.performed, f"seed {seed}"
        assert traced.state_digest() == plain.state_digest()


def test_the_simulator_performs_each_effect_before_the_next_is_decided() -> None:
    """As the shell does: else the simulator would test an order that production never takes."""
    sent: list[list[int]] = []

    class Looking(SimHost):
        def _perform(self, request: Effect) -> None:
            if isinstance(request, SendBatch):
                sent.append([self.core.queues[name].sent for name in NAMES[:2]])

    host = Looking(Simulation(options_for(1)), new_player(1, 0, control(*NAMES), limits()))
    for effect in host.core.step(Ticked(0)):
        assert isinstance(effect, OpenSession)
        host.core.step(Opened(effect.target, effect.session, 0))
    host.tell(Fetched([entry(1, a="x", b="x")]))
    assert sent == [[1, 0], [1, 1]]

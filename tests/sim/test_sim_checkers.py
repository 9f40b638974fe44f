"""Each checker can fail: a world is bent by hand, and the checker that must speak speaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logplayer.core.effects import Report, SendBatch, StepDown
from logplayer.core.entry import Delivery, Session
from logplayer.core.fence import Batch
from logplayer.core.limits import Limits
from logplayer.testing.sim import checkers
from logplayer.testing.sim.options import CLOCK, options_for
from logplayer.testing.sim.simulation import Simulation
from logplayer.testing.sim.story import Story
from logplayer.testing.sim.violation import Violation
from logplayer.testing.sim.world import AppliedDelivery, SimTarget
from logplayer.wire.entries import encode_mutation

NAMES = set(re.findall(r"^([a-z][a-z -]+?)(?:,| {2,})", checkers.__doc__ or "", re.MULTILINE))
NAMES |= {"once", "none lost"}  # The first line of the table names three.


def told() -> Story:
    """A world in which entries 2 and 3 were delivered to t1."""
    story = Story(1, "explicit", False, False, Limits(**CLOCK, queue_count_max=2, batch_count_max=2))
    story.checkers = checkers.Checkers(story)
    story.start("at=0")
    story.settle()
    story.append("t1=a")
    story.append("t1=b")
    story.settle()
    return story


A = encode_mutation(b"t1", b"a", "t1").encoded  # What the story appends for t1=a.


def given(story: Story, index: int, payload: bytes = A, aside: bool = False, term: int = 1) -> SimTarget:
    """Something is put into t1's store."""
    target = story.targets["t1"]
    target.applied.append(AppliedDelivery(index, payload, aside, Session(1, term), Session(1, 1)))
    return target


def once() -> None:
    story = told()
    story.checkers.applied(given(story, 3, b"b"))


def order() -> None:
    story = told()
    story.checkers.applied(given(story, 1))


def none_lost() -> None:
    story = told()
    story.append("x2", "t1=a")
    story.checkers.applied(given(story, 5))


def one_history() -> None:
    story = told()
    story.restore(2)
    story.append("t1=c")  # At 3 again: the target has the other one, and must not go on with what follows this one.
    story.append("t1=d")
    story.checkers.applied(given(story, 4, story.log.destinations[4]["t1"]))


def payload() -> None:
    story = told()
    story.append("t1=a")
    story.checkers.applied(given(story, 4, b"other"))


def quarantine() -> None:
    story = told()
    story.append("t1=a")
    story.checkers.applied(given(story, 4, aside=True))


def fenced() -> None:
    story = told()
    story.append("t1=a")
    story.checkers.applied(given(story, 4, term=0))


def digest() -> None:
    story = told()
    story.targets["t1"].position = story.targets["t1"].position.__class__(3, Session(1, 1), 77, "simulated")
    story.checkers.final()


def memory_bound() -> None:
    story = told()
    story.hosts[0].core.queues["t1"].messages.extend([Delivery(4, b""), Delivery(5, b""), Delivery(6, b"")])
    story.checkers.stepped(story.hosts[0])


def ack_soundness() -> None:
    story = told()
    story.hosts[0].core.queues["t1"].acked = 99
    story.checkers.stepped(story.hosts[0])


def trim() -> None:
    told().trim(4)


def one_writer() -> None:
    story = told()
    story.hosts[0].links["t1"].writing = True
    story.checkers.sent(SendBatch("t1", Session(1, 1), 3, 4, []), story.hosts[0].links["t1"])


def drain() -> None:
    story = told()
    story.hosts[0].links["t1"].to_target.append(Batch(3, 4))
    story.checkers.stopped(story.hosts[0])


def false_reseed() -> None:
    told().checkers.reported(Report("t1", "RESEED: stands at 0"))


def false_block() -> None:
    story = told()
    story.targets["t1"].lies.add(("FENCED", 9))
    story.checkers.reported(Report("t1", "FENCED: by 9"))
    story.checkers.reported(Report("t1", "DIVERGED: has 9"))


def step_down() -> None:
    story = told()
    story.checkers.stepped_down(story.hosts[0], StepDown("epoch 9 has taken over", 9))


def fresh_session() -> None:
    story = told()
    story.checkers.opened(story.hosts[0], "t1", Session(1, 1))


def stable() -> None:
    story = told()
    sessions: Iterator[list[object]] = iter([["before"], ["after"], ["after"]])
    story.checkers.sessions = lambda: next(sessions)  # type: ignore[method-assign]
    story._stay()


def progress() -> None:
    world = Simulation(options_for(1))
    heal = world._heal

    def heal_badly() -> None:
        heal()
        world._append_data()
        for target in world.targets.values():
            target.frozen = True

    world._heal = heal_badly  # type: ignore[method-assign]
    world.run()


SPEAK: dict[str, Callable[[], None]] = {
    "once": once,
    "order": order,
    "none lost": none_lost,
    "one history": one_history,
    "payload": payload,
    "quarantine": quarantine,
    "fenced": fenced,
    "digest": digest,
    "memory bound": memory_bound,
    "ack soundness": ack_soundness,
    "trim": trim,
    "one writer": one_writer,
    "drain": drain,
    "false re-seed": false_reseed,
    "false block": false_block,
    "step down": step_down,
    "fresh session": fresh_session,
    "stable": stable,
    "progress": progress,
}


def test_the_table_in_the_docstring_is_complete() -> None:
    raised = set(re.findall(r'Violation\(\s*"([a-z -]+)"', Path(checkers.__file__).read_text()))
    assert raised | {"stable", "progress"} == NAMES == set(SPEAK)


@pytest.mark.parametrize("name", sorted(SPEAK))
def test_a_checker_can_fail(name: str) -> None:
    with pytest.raises(Violation) as caught:
        SPEAK[name]()
    assert caught.value.checker == name


def test_a_sound_world_makes_nobody_speak() -> None:
    story = told()
    story.checkers.applied(story.targets["t1"])
    story.checkers.stepped(story.hosts[0])
    story.checkers.final()

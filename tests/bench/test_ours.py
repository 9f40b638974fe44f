"""Our contestants: every transaction reaches every target that it is for, and the stamps are in order."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import pytest

from bench import ours
from bench.actor import Actor, ActorFailed
from bench.contest import Contestant, Workload
from bench.logs import make_host
from logplayer.errors import UserError

SMALL = Workload(targets=3, keys=4, rate=200, count=30, warm_up=5)


def contestants(log: str) -> Iterator[Contestant]:
    for scheme in ours.SCHEMES:
        yield ours.Ours(scheme, make_host(log))
        yield ours.Bare(scheme, make_host(log))


@pytest.mark.parametrize("contestant", list(contestants("file")), ids=lambda contestant: contestant.name)
def test_a_sample_for_every_transaction_and_target(contestant: ours.Ours) -> None:
    contestant.open()
    try:
        samples = contestant.run(SMALL)
        expected = {(number, target) for number in SMALL.counted() for target in SMALL.parts(number)}
        assert {(sample.transaction, sample.target) for sample in samples} == expected
        assert len(samples) == len(expected)
        for sample in samples:
            assert sample.asked_ns < sample.dispatch_ns < sample.apply_ns
            assert sample.asked_ns < sample.commit_ns
        result = contestant.flat_out(SMALL)
        assert result.bytes > SMALL.count * SMALL.keys * 1000
        assert result.seconds > 0
    finally:
        contestant.close()
        contestant.close()


def test_the_replicated_log_is_played_too() -> None:
    contestant = ours.Ours("tcp", make_host("nats"))
    contestant.open()
    try:
        assert len(contestant.run(SMALL)) == sum(len(SMALL.parts(number)) for number in SMALL.counted())
    finally:
        contestant.close()


def test_the_floor_is_measured_per_transaction() -> None:
    floor = ours.Fdatasync()
    floor.open()
    samples = floor.run(SMALL)
    floor.close()
    assert [sample.transaction for sample in samples] == list(SMALL.counted())
    assert all(sample.apply_ns > sample.asked_ns for sample in samples)


SENT = array("q", [n for number in range(1, 31) for n in (number, number + 2, 10, 20)])


def applied(leave_out: tuple[int, int] | None = None, repeat: bool = False) -> Iterator[tuple[int, int, int]]:
    for number in range(1, 31):
        for target in SMALL.parts(number):
            if (number, target) != leave_out:
                yield target, number, 40
            if repeat:
                yield target, number, 41


def test_what_is_lost_or_doubled_is_no_result() -> None:
    _, asked, committed = ours.split_sent(SENT)
    dispatched = dict.fromkeys(range(1, 31), 30)
    assert ours._joined(SMALL, applied(), dispatched, asked, committed)
    last = (30, next(iter(SMALL.parts(30))))
    with pytest.raises(ActorFailed, match="transaction 30 was not applied"):
        ours._joined(SMALL, applied(last), dispatched, asked, committed)
    with pytest.raises(ActorFailed, match="twice"):
        ours._joined(SMALL, applied(repeat=True), dispatched, asked, committed)


class Troubled:
    """An actor that cannot do what it is asked."""

    def mistake(self) -> None:
        raise UserError("write it so")

    def break_down(self) -> None:
        raise ValueError("broken")

    def die(self) -> None:
        raise SystemExit(3)

    async def close(self) -> None:
        """Nothing is open."""


def test_an_actor_tells_what_went_wrong() -> None:
    actor = Actor(Troubled)
    with pytest.raises(UserError, match="write it so"):
        actor.ask("mistake")
    with pytest.raises(ActorFailed, match="ValueError: broken"):
        actor.ask("break_down")
    with pytest.raises(ActorFailed, match="ended"):
        actor.ask("die")
    actor.stop()
    actor.stop()


class Talkative:
    """An actor with a long answer."""

    def tell_all(self, count: int) -> bytes:
        return bytes(count)

    async def close(self) -> None:
        """Nothing is open."""


def test_an_answer_may_be_long() -> None:
    actor = Actor(Talkative)
    assert len(actor.ask("tell_all", 20_000_000)) == 20_000_000
    assert actor.ask("tell_all", 1) == b"\0"
    actor.stop()

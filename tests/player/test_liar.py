"""One target that claims nonsense: it is blocked and shown, and the others get everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from logplayer.core.entry import Refusal, Session, Takeover
from logplayer.core.fence import Position, TargetRefusal
from logplayer.log import control_chain as chain
from logplayer.player.ended import STOPPED
from logplayer.target.protocol import Change, Rejected
from logplayer.target.server import TargetServer
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.target.unfence import FenceEvidence, Unfence, plan
from tests.player.player_support import House, Seat, until

NOBODYS = 2**63 - 1
AHEAD = 1_000_000


class Fencer:
    """A store that refuses every session, as if a player of an epoch that nobody has had opened it."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def position(self) -> Position:
        return Position()

    def apply(self, change: Change) -> Position:
        raise Rejected(TargetRefusal(Refusal.FENCED, f"epoch {self.epoch} has taken over", 0, self.epoch))


class Boaster:
    """A store that accepts every session, and claims to have entries that the log does not have."""

    def position(self) -> Position:
        return Position(AHEAD)

    def apply(self, change: Change) -> Position:
        return Position(AHEAD, change.session, log_id=change.log_id)


class LiarSeat(Seat):
    """A target of which the server is real and the store is not."""

    def __init__(self, directory: Path, store: Fencer | Boaster) -> None:
        super().__init__(directory, "liar", "tcp")
        self._store = store

    async def up(self) -> Seat:
        self.server = TargetServer({self.name: self._store})
        [address] = await self.server.start(tcp=f"127.0.0.1:{self.port}")
        self.port = int(address.rpartition(":")[2])
        return self


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with House(tmp_path) as house:
        yield house


async def seat_liar(house: House, store: Fencer | Boaster) -> None:
    house.seats["liar"] = await LiarSeat(house.directory, store).up()


@pytest.mark.parametrize("epoch", [NOBODYS, 2, 0])
async def test_a_target_that_says_fenced_by_nobody_is_blocked_alone(house: House, epoch: int) -> None:
    """An epoch beyond the log's end, the index of an entry that is no takeover, and none at all."""
    await house.targets("ab")
    await seat_liar(house, Fencer(epoch))
    playing = await house.play()
    await house.delivered(await house.append(50), "a", "b")
    await until(lambda: playing.state("liar") == "BLOCKED", "the liar is blocked")
    error = playing.target("liar").error
    assert error.startswith(f"FENCED: the target says that epoch {epoch} has taken over")
    assert "unfence" in error
    await house.delivered(await house.append(50), "a", "b")
    assert await house.problems("a", "b") == []
    assert not playing.task.done()
    assert playing.live("a", "b")
    assert await playing.stop() == STOPPED


async def test_a_target_that_a_senseless_open_has_taken_is_freed_by_an_operator(house: House) -> None:
    await house.targets("ab")
    playing = await house.play()
    await house.delivered(await house.append(10))
    thief = SqliteTarget(house.seats["b"].path, "b")
    thief.apply(Change(Session(NOBODYS, 1), log_id=playing.shell.log_id))
    last = await house.append(10)
    await house.delivered(last, "a")
    await until(lambda: playing.state("b") == "BLOCKED", "the target is blocked")
    before, after, why = plan(thief, FenceEvidence(await house.log.info()), force=False)
    assert "past the log's end" in why
    thief.apply(Unfence(before, after))
    thief.close()
    playing.shell.retry("b")
    await house.delivered(last)
    assert await house.problems() == []
    assert not playing.task.done()


@pytest.mark.parametrize("shown", [True, False])
async def test_while_the_log_is_away_a_fenced_target_waits(house: House, shown: bool) -> None:
    """The claim is judged when the log is back: a true one ends the player, a lie does not."""
    await house.targets("a")
    old = await house.play()
    await until(old.live, "the player feeds its target")
    await house.delivered(await house.append(5))
    old.shell._fetched = lambda records: None  # type: ignore[method-assign]  # Deaf to the main stream.
    epoch = (await chain.append(house.log, Takeover(), None))[0] if shown else NOBODYS
    await house.log_down()
    thief = SqliteTarget(house.seats["a"].path, "a")
    thief.apply(Change(Session(epoch, 1), log_id=old.shell.log_id))
    thief.close()
    await house.seats["a"].down()
    await house.seats["a"].up()
    await until(lambda: "cannot be asked" in old.target("a").error, "the player asks the log in vain")
    assert old.state("a") == "SUSPENDED"
    assert not old.task.done()
    await house.log_up()
    if shown:
        ended = await asyncio.wait_for(old.task, 120)
        assert (ended.superseded, ended.epoch) == (True, epoch)
    else:
        await until(lambda: old.state("a") == "BLOCKED", "the lie is found")
        assert not old.task.done()


async def test_a_target_ahead_of_the_log_is_blocked_and_says_so(house: House) -> None:
    await house.targets("a")
    await seat_liar(house, Boaster())
    playing = await house.play()
    last = await house.append(20)
    await house.delivered(last, "a")
    await until(lambda: playing.state("liar") == "BLOCKED", "the liar is blocked")
    status = playing.target("liar")
    assert status.error.startswith(f"DIVERGED: it has index {AHEAD}, the log ends at ")
    assert "backup" in status.error
    assert status.index != AHEAD
    assert status.lag_entries > 0
    assert await house.problems("a") == []

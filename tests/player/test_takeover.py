"""Two players at once, takeovers that race, and decisions of several players: the log orders them; nothing is lost."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from logplayer.core.entry import HashMap, Quarantined, Takeover, TargetAdded, TargetRemoved
from logplayer.log import control_chain as chain
from logplayer.log.protocol import Kind, NewEntry
from logplayer.player.ended import STOPPED, Ended, EndKind
from logplayer.player.shell import Shell
from tests.player.player_support import House, load, until

pytestmark = pytest.mark.asyncio
BOTH = pytest.mark.parametrize("scheme", ["grpc", "tcp"])
MAP = HashMap(("a", "b"))


@BOTH
async def test_the_older_of_two_players_steps_down(house: House, scheme: str) -> None:
    await house.targets("ab", scheme)
    players = []
    async with load(house, 1000):
        for _ in range(3):
            players.append(await house.play())
            await until(players[-1].live, "the newest player feeds both targets")
        for older in players[:-1]:
            assert (await asyncio.wait_for(older.task, 120)).superseded
    await house.delivered(await house.append(1))
    assert await house.problems() == []
    assert not players[-1].task.done()


@BOTH
async def test_a_player_that_cannot_read_the_log_is_fenced_by_its_targets(house: House, scheme: str) -> None:
    await house.targets("ab", scheme)
    old = await house.play()
    await until(old.live, "the first player feeds both targets")
    shell = old.shell

    async def deaf(records: object) -> None:
        """Only the targets can tell."""

    shell._take = deaf  # type: ignore[method-assign]
    new = await house.play()
    ended = await asyncio.wait_for(old.task, 120)
    epoch = new.shell.core.epoch
    assert ended == Ended(EndKind.SUPERSEDED, epoch, f"epoch {epoch} has taken over ({new.shell.config.player})")
    await house.delivered(await house.append(100))
    assert await house.problems() == []
    assert not new.task.done()


async def test_a_player_without_reachable_targets_still_sees_the_takeover_right_behind_its_own(house: House) -> None:
    for seat in await house.targets("ab"):
        await seat.down()
    await house.append(10)
    old = Shell(await house.client(), house.config())
    append = chain.append

    async def append_and_be_late(*args: object) -> object:
        """Between the takeover and the look at the log, a rival takes over too."""
        taken = await append(*args)  # type: ignore[arg-type]
        await append(house.file, Takeover("", "rival"), MAP)
        return taken

    chain.append = append_and_be_late  # type: ignore[assignment]
    try:
        ended = await asyncio.wait_for(old.run(), 120)
    finally:
        chain.append = append
    assert ended.superseded


async def test_players_that_start_at_the_same_time_agree_on_one(house: House) -> None:
    await house.targets("abc")
    shells = [Shell(await house.client(), house.config()) for _ in range(5)]
    tasks = [asyncio.create_task(shell.run()) for shell in shells]
    async with load(house, 500):
        await until(lambda: sum(task.done() for task in tasks) == 4, "four have stepped down")
        await until(lambda: any(shell.running for shell in shells), "one plays")
    [winner] = [shell for shell, task in zip(shells, tasks, strict=True) if not task.done()]
    assert winner.core.epoch == max(shell.core.epoch for shell in shells)
    await house.delivered(await house.append(1))
    assert await house.problems() == []
    winner.request_stop()
    assert (await asyncio.gather(*tasks)).count(STOPPED) == 1


async def test_decisions_of_rivals_all_survive(house: House) -> None:
    clients = [await house.client() for _ in range(4)]
    await chain.append(house.file, Takeover("", "first"), MAP, (("a", "tcp://127.0.0.1:1"), ("b", "tcp://127.0.0.1:2")))
    decisions = [TargetAdded(f"n{number}", number, f"tcp://127.0.0.1:{number + 10}") for number in range(20)]
    decisions += [Quarantined("a", number) for number in range(1, 11)]  # type: ignore[misc]
    taken = await asyncio.gather(
        *(chain.append(clients[nth % 4], decision, MAP) for nth, decision in enumerate(decisions))
    )
    assert len({index for index, _ in taken}) == len(decisions)
    control = (await chain.load(house.file)).control(MAP)
    assert set(control.members) == {"a", "b", *(f"n{number}" for number in range(20))}
    assert control.quarantined == {"a": set(range(1, 11))}
    assert control.members["n7"] == TargetAdded("n7", 7, "tcp://127.0.0.1:17")


async def test_a_decision_whose_answer_is_a_rivals_record_is_made_again_on_top(house: House) -> None:
    await chain.append(house.file, Takeover("", "first"), MAP, (("a", ""), ("b", "")))
    log = await house.client()
    real, rivals = log.append, 0

    async def overtaken(entries: list[NewEntry]) -> list[int]:
        nonlocal rivals
        if rivals < 3:
            rivals += 1
            await chain.append(house.file, TargetAdded(f"rival{rivals}", 0), MAP)
        return await real(entries)

    log.append = overtaken  # type: ignore[method-assign,assignment]
    index, control = await chain.append(log, TargetRemoved("b"), MAP)
    assert rivals == 3
    assert set(control.members) == {"a", "rival1", "rival2", "rival3"}
    assert (await house.file.info()).control == index


async def test_the_newest_decision_may_be_repeated_and_trimmed_while_it_is_read(house: House) -> None:
    await chain.append(house.file, Takeover("", "first"), MAP, (("a", ""), ("b", "")))
    log = await house.client()
    real, moved = log.info, 0

    async def outrun() -> object:
        nonlocal moved
        info = await real()
        if moved < 2:
            moved += 1
            await chain.append(house.file, TargetAdded(f"n{moved}", 0), MAP)
            await house.file.trim((await house.file.info()).control - 1)
        return info

    log.info = outrun  # type: ignore[method-assign,assignment]
    head = await chain.load(log)
    assert moved == 2
    assert set(head.control(MAP).members) == {"a", "b", "n1", "n2"}


async def test_a_rival_may_trim_the_log_while_a_player_takes_over(house: House) -> None:
    began = time.monotonic()
    await house.targets("ab")
    await house.append(3000, value=b"v" * 1000)
    player = await house.play()
    await house.delivered(await house.append(1))
    await player.stop()
    client = await house.client()
    real = client.info

    async def trimmed_at_once() -> object:
        """What info() tells is no longer true when it is told."""
        info = await real()
        await house.file.trim(min(2500, info.control - 1))
        return info

    client.info = trimmed_at_once  # type: ignore[method-assign,assignment]
    shell = Shell(client, house.config())
    task = asyncio.create_task(shell.run())
    await house.delivered(await house.append(100))
    # What was trimmed has no time of its own, and must not count from 1970.
    assert all(target.lag_seconds <= time.monotonic() - began for target in shell.status().targets)
    shell.request_stop()
    assert await task == STOPPED


async def test_a_decision_that_nobody_can_read_ends_the_player_loudly(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No log of this version takes one; an older log server would."""
    await house.targets("ab")
    player = await house.play()
    sequence = (await chain.load(house.file)).sequence
    monkeypatch.setattr("logplayer.log.control_rules.Guard.admit", lambda *_: None)
    await house.file.append([NewEntry(chain.PRODUCER, sequence + 1, b"\xff\xff\xff", Kind.CONTROL)])
    with pytest.raises(Exception, match="control record"):
        await asyncio.wait_for(player.task, 120)


async def test_a_newer_player_of_an_application_names_it_in_its_takeover(house: House) -> None:
    await house.targets("ab")
    old = await house.play()
    await until(old.live, "the first player feeds both targets")
    epoch, _ = await chain.append(house.file, Takeover("", "spark host:1", application=7), MAP)
    ended = await asyncio.wait_for(old.task, 120)
    assert (ended.kind, ended.epoch, ended.application) == (EndKind.SUPERSEDED, epoch, 7)


async def test_what_is_appended_while_it_ends_is_left_to_the_next_player(house: House) -> None:
    """It takes no more entries, so the ones that it passes over are not a gap in the log."""
    _, slow = await house.targets("ab")
    await slow.down()
    slow.gate = threading.Event()
    slow.gate.set()
    await slow.up()
    player = await house.play()
    await until(player.live, "both are LIVE")
    slow.gate.clear()
    first = await house.append(20)
    await until(lambda: player.shell.core.current >= first, "the slow target's part is queued, and held there")
    player.shell.request_stop()
    for _ in range(5):
        last = await house.append(10)
        await asyncio.sleep(0.02)
    assert not player.task.done(), "it still waits for the slow target"
    slow.gate.set()
    assert await asyncio.wait_for(player.task, 120) == STOPPED
    await house.play()
    await house.delivered(last)
    assert await house.problems() == []

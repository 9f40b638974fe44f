"""Entries reach their targets exactly once and in order, over real sockets, whatever comes and goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from logplayer.core.entry import ExplicitMap
from logplayer.core.events import StopRequested, Ticked
from logplayer.errors import TargetError
from logplayer.log.protocol import NewEntry
from logplayer.player.ended import STOPPED
from logplayer.target.client import consistent_cut, position, wait_for
from logplayer.wire.entries import encode_mutation
from logplayer.wire.turn import Turn
from tests.campaign.proxy import Proxy
from tests.player.player_support import QUICK, House, load, until

pytestmark = pytest.mark.asyncio
BOTH = pytest.mark.parametrize("scheme", ["grpc", "tcp"])


@BOTH
async def test_two_targets_get_what_the_log_holds(house: House, scheme: str) -> None:
    await house.targets("ab", scheme)
    await house.append(300)
    player = await house.play()
    last = await house.append(700)
    await house.delivered(last)
    assert await house.problems() == []
    await until(player.live, "both targets are LIVE")
    assert await player.stop() == STOPPED


@BOTH
async def test_twenty_targets(house: House, scheme: str) -> None:
    await house.targets([f"s{number}" for number in range(20)], scheme)
    await house.play()
    last = await house.append(2000)
    await house.delivered(last)
    assert await house.problems() == []


async def test_one_player_plays_over_both_transports(house: House) -> None:
    await house.targets("ab", "grpc")
    await house.targets("cd", "tcp")
    await house.play()
    await house.delivered(await house.append(500))
    assert await house.problems() == []


@BOTH
async def test_a_restarted_player_goes_on_where_the_targets_stand(house: House, scheme: str) -> None:
    await house.targets("ab", scheme)
    for _ in range(3):
        player = await house.play()
        async with load(house):
            await asyncio.sleep(0.3)
        assert await player.stop() == STOPPED
    player = await house.play()
    await house.delivered(await house.append(1))
    assert await house.problems() == []


async def test_a_player_that_is_dropped_without_a_word_costs_nothing(house: House) -> None:
    await house.targets("ab", "tcp")
    for _ in range(3):
        player = await house.play()
        async with load(house, 2000):
            await asyncio.sleep(0.2)
            player.task.cancel()
    await house.play()
    await house.delivered(await house.append(1))
    assert await house.problems() == []


@BOTH
async def test_a_target_that_is_down_at_the_start_catches_up_and_joins(house: House, scheme: str) -> None:
    _, late = await house.targets("ab", scheme)
    await late.down()
    player = await house.play()
    last = await house.append(3000)
    await house.delivered(last, "a")
    assert player.target("b").state == "SUSPENDED"
    assert player.target("b").index == -1
    # A refused connection is known at once, over either transport, and told with the address.
    await until(lambda: player.target("b").attempts >= 3, "the player tries again and again")
    assert f"no connection to {late.address}" in player.target("b").error
    async with load(house):
        await late.up()
        await until(lambda: player.live("a", "b"), "b has joined under load")
    await house.delivered(await house.append(1))
    assert await house.problems() == []


@BOTH
async def test_a_target_that_goes_and_comes_back_joins_again(house: House, scheme: str) -> None:
    _, wavering = await house.targets("ab", scheme)
    player = await house.play()
    async with load(house, 1000):
        for _ in range(3):
            await until(lambda: player.live("a", "b"), "both are LIVE")
            await wavering.down()
            await until(lambda: player.target("b").state == "SUSPENDED", "the player has noticed")
            await asyncio.sleep(0.2)
            await wavering.up()
        await until(lambda: player.live("a", "b"), "both are LIVE again")
    await house.delivered(await house.append(1))
    assert await house.problems() == []


@BOTH
async def test_cut_connections_lose_and_repeat_nothing(house: House, scheme: str) -> None:
    seats = await house.targets("ab", scheme)
    proxies = [Proxy(0, seat.port) for seat in seats]
    for proxy in proxies:
        await proxy.start()
    through = {seat.name: f"{scheme}://127.0.0.1:{proxy.port}" for seat, proxy in zip(seats, proxies, strict=True)}
    await house.play(targets=through)
    async with load(house, 3000):
        for turn in range(10):
            await asyncio.sleep(0.1)
            proxies[turn % 2].cut()
    await house.delivered(await house.append(1))
    assert await house.problems() == []
    for proxy in proxies:
        await proxy.stop()


@BOTH
async def test_a_silent_target_is_found_and_the_others_go_on(house: House, scheme: str) -> None:
    seats = await house.targets("ab", scheme)
    proxy = Proxy(0, seats[1].port)
    await proxy.start()
    addresses = {"a": seats[0].address, "b": f"{scheme}://127.0.0.1:{proxy.port}"}
    player = await house.play(targets=addresses)
    await house.delivered(await house.append(10))
    proxy.stall()
    last = await house.append(500)
    await house.delivered(last, "a")
    await until(lambda: player.target("b").state == "SUSPENDED", "the silence was noticed")
    assert "ms" in player.target("b").error
    proxy.flow()
    await until(lambda: player.live("a", "b"), "b is back")
    await house.delivered(await house.append(1))
    assert await house.problems() == []
    await proxy.stop()


async def test_overflow_of_a_slow_target_costs_the_others_nothing(house: House) -> None:
    fast, slow = await house.targets("ab", "tcp")
    await slow.down()
    slow.slow = 0.05
    await slow.up()
    small = replace(QUICK, queue_count_max=50, batch_count_max=20, flight_batches_max=2)
    player = await house.play(limits=small)
    await until(lambda: player.live("a", "b"), "both are LIVE")
    last = await house.append(2000)
    await house.delivered(last, "a")
    assert fast.index >= last
    assert player.target("b").queued <= 50
    assert slow.index < last
    await house.delivered(last, "b", seconds=40)
    assert await house.problems() == []


async def test_a_graceful_stop_delivers_what_was_dispatched(house: House) -> None:
    _, slow = await house.targets("ab", "tcp")
    await slow.down()
    slow.slow = 0.02
    await slow.up()
    player = await house.play()
    await until(lambda: player.live("a", "b"), "both are LIVE")
    last = await house.append(500)
    await until(lambda: player.shell.core.current >= last, "all is dispatched")
    assert await player.stop() == STOPPED
    assert min(seat.index for seat in house.seats.values()) >= last - 1
    assert await house.problems() == []


async def test_a_stop_does_not_wait_for_ever_for_a_frozen_target(house: House) -> None:
    seats = await house.targets("ab", "tcp")
    proxy = Proxy(0, seats[1].port)
    await proxy.start()
    patient = replace(QUICK, silence_ms_max=60_000, progress_ms_max=60_000)
    addresses = {"a": seats[0].address, "b": f"tcp://127.0.0.1:{proxy.port}"}
    player = await house.play(targets=addresses, limits=patient, drain_ms_max=300)
    await until(player.live, "both are LIVE")
    proxy.stall()
    await house.append(100)
    assert await player.stop() == STOPPED
    await proxy.stop()


async def test_the_log_server_may_restart_while_a_player_plays(house: House) -> None:
    seats = await house.targets("ab", "tcp")
    player = await house.play()
    await house.delivered(await house.append(200))
    await house.log_down()
    await asyncio.sleep(0.3)
    await house.log_up()
    last = await house.append(200)
    await house.delivered(last)
    assert await house.problems() == []
    assert not player.task.done()
    # A target that comes back meanwhile reads the log on its own.
    await seats[1].down()
    await house.log_down()
    await seats[1].up()
    await house.log_up()
    await house.delivered(await house.append(200))
    assert await house.problems() == []


async def test_what_is_no_transaction_is_reported_once_and_passed_over(house: House) -> None:
    _, late = await house.targets("ab", "tcp")
    await late.down()
    player = await house.play()
    await house.append(10)
    for payload in (b"hello", b"\xff\xff", b'{"json": true}'):
        await house.append_raw(payload)
    last = await house.append(10)
    await house.delivered(last, "a")
    await late.up()
    await house.delivered(last, "b")
    assert player.shell.status().unroutable == 3
    assert await house.problems() == []


@BOTH
async def test_readers_wait_for_what_they_wrote_and_find_a_consistent_cut(house: House, scheme: str) -> None:
    first, second = await house.targets("ab", scheme)
    waiting = asyncio.create_task(wait_for(first.address, "a", 50, timeout=120))
    await house.play()
    last = await house.append(100)
    assert (await waiting).index >= 50
    await house.delivered(last)
    both = {"a": first.address, "b": second.address}
    assert await consistent_cut(both) >= last
    assert (await position(first.address, "a")).digest == first.position.digest
    with pytest.raises(TargetError, match=r"did not reach index"):
        await wait_for(second.address, "b", last + 1000, timeout=0.2)
    await second.down()
    with pytest.raises(TargetError):
        await consistent_cut(both, timeout=0.5)


async def test_what_is_for_nobody_is_counted_and_told(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """A typing error in a target's name, or a key without an owner, must not vanish in silence."""
    await house.targets("ab")
    player = await house.play(map=ExplicitMap())
    good = encode_mutation(b"k", b"v", "a").encoded
    payloads = [good, encode_mutation(b"k", b"v", "typo").encoded + good, encode_mutation(b"k", b"v").encoded]
    entries = [NewEntry("someone", number, payload) for number, payload in enumerate(payloads, 1)]
    await house.delivered((await house.log.append(entries))[-1])
    assert player.shell.status().unroutable == 2
    assert "typo: unknown target" in caplog.text
    assert "its key has no owner" in caplog.text


class FailingTurn(Turn):
    def end(self) -> None:
        raise RuntimeError("no such luck")


@pytest.mark.parametrize("what", ["an effect", "the end of the turn"])
async def test_a_step_that_fails_half_way_ends_the_player(house: House, what: str) -> None:
    """Its state cannot be trusted any more, and the event loop would only log it."""
    await house.targets("ab")
    playing = await house.play()
    await until(playing.live, "both targets are fed")

    def fail(*_: object) -> None:
        raise RuntimeError("no such luck")

    fact: StopRequested | Ticked
    if what == "an effect":
        playing.shell._perform, fact = fail, StopRequested()  # type: ignore[assignment, method-assign]
    else:
        playing.shell._connections._turn, fact = FailingTurn(), Ticked(0)
    asyncio.get_running_loop().call_soon(playing.shell._tell, fact)
    with pytest.raises(RuntimeError, match="no such luck"):
        await asyncio.wait_for(playing.task, 120)

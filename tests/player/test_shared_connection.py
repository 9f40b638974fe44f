"""A player has one TCP connection for the targets of one process, also after one of them has refused an entry."""

from __future__ import annotations

import asyncio

import pytest

from logplayer.core.entry import HashMap
from logplayer.core.fence import Position
from logplayer.core.limits import Limits
from logplayer.errors import Poison
from logplayer.player.ended import STOPPED
from logplayer.target import tcp_server
from logplayer.target.protocol import Change
from logplayer.target.server import TargetServer
from logplayer.target.stores.memory import MemoryTarget
from logplayer.wire import tcp_link
from tests.player.player_support import House, until

NAMES = ("a", "b", "c", "d")


class Picky(MemoryTarget):
    """Refuses entries until it is told to take them."""

    picky = False
    refused = 0

    def apply(self, change: Change) -> Position:
        if self.picky and change.messages:
            self.refused += 1
            raise Poison("not now", change.messages[0].index)
        return super().apply(change)


async def test_a_player_shares_one_connection_among_the_targets_of_an_address(house: House) -> None:
    stores = {name: Picky() for name in NAMES}
    server = TargetServer(stores)
    [address] = await server.start(tcp="127.0.0.1:0")
    peers = server._servers[0]._peers  # type: ignore[union-attr]

    async def delivered(index: int, *names: str) -> None:
        for name in names:
            await until(lambda name=name: stores[name].position().index >= index, f"{name} reaches {index}")

    player = await house.play(targets=dict.fromkeys(NAMES, address), map=HashMap(NAMES))
    await delivered(await house.append(50, targets=NAMES), *NAMES)
    assert len(peers) == 1
    stores["a"].picky = True
    await delivered(await house.append(50, targets=NAMES), *NAMES[1:])
    await until(lambda: stores["a"].refused > 1, "a has refused in more than one session")
    stores["a"].picky = False
    player.shell.retry("a")
    await delivered(await house.append(50, targets=NAMES), *NAMES)
    assert len(peers) == 1
    assert await player.stop() == STOPPED
    await until(lambda: not peers, "the connection is closed")
    await server.stop()


async def test_the_streams_rest_after_a_small_write_until_the_next_entry(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((tcp_link, "REST_SECONDS"), (tcp_server, "ACK_SECONDS")):
        monkeypatch.setattr(module, name, 600.0)  # So that neither time nor an ack can end it.
    stores = {name: MemoryTarget() for name in ("a", "b")}
    server = TargetServer(stores)
    [address] = await server.start(tcp="127.0.0.1:0")
    player = await house.play(
        targets=dict.fromkeys(stores, address),
        map=HashMap(tuple(stores)),
        limits=Limits(heartbeat_ms=300_000, silence_ms_max=600_000, progress_ms_max=600_000, idle_ms_max=600_000),
        drain_ms_max=1,
        tick_ms=600_000,  # Whatever the player does ends it, a tick too.
    )
    for _ in range(5):
        last = await house.append(1, targets=stores)
        await until(lambda: all(store.position().index >= last for store in stores.values()), f"{last} is delivered")  # noqa: B023
        await asyncio.sleep(0.01)
        assert not any(queue.writable for queue in player.shell.core.queues.values()), "they rest"
    await player.stop()
    await server.stop()

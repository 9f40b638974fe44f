"""A player has one TCP connection for the targets of one process, also after one of them has refused an entry."""

from __future__ import annotations

from player_support import House, until

from logplayer.core.entry import HashMap
from logplayer.core.fence import Position
from logplayer.errors import Poison
from logplayer.target.memory import MemoryTarget
from logplayer.target.protocol import Change
from logplayer.target.server import TargetServer

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
    assert await player.stop() == "stopped"
    await until(lambda: not peers, "the connection is closed")
    await server.stop()

"""Which shards a transaction touches, and waiting until they have it: what the log's own records say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

from logplayer.core.control_state import ControlState
from logplayer.core.entry import Entry
from logplayer.core.fence import Position
from logplayer.core.routing import NO_OWNER
from logplayer.errors import TargetError
from logplayer.log import control_chain
from logplayer.log.protocol import Log
from logplayer.target.agreement import agreed_position
from logplayer.target.client import wait_for
from logplayer.wire.entries import route_transaction
from logplayer.wire.security import Security

LOOK_SECONDS = 0.2  # Between two looks for a player that has not taken over yet.


class Shards:
    """The members and maps of one log, read again when a newer control record is there."""

    def __init__(self, log: Log, security: Security) -> None:
        self._log = log
        self._security = security
        self._control: ControlState | None = None
        self.told: dict[str, str] = {}  # Addresses that win over the recorded ones, as they do for a player.

    async def wait(self, index: int, payload: bytes, timeout: float) -> None:
        """Return once every shard that gets a part of the entry has it, of the history that the log has now."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        control = await self._decisions()
        while not control.members or control.router.versions()[0][1] is None:
            if loop.time() >= deadline:
                raise TargetError(
                    f"no player has taken over this log in {timeout:g} s, so entry {index} is nowhere yet"
                )
            await asyncio.sleep(LOOK_SECONDS)
            control = await self._decisions()
        places = {name: self._address(control, name, index) for name in touched(control, index, payload)}

        def has(name: str, address: str) -> Awaitable[Position]:
            return wait_for(address, name, index, max(0.1, deadline - loop.time()), self._security)

        await asyncio.gather(
            *(agreed_position(self._log, name, partial(has, name, address)) for name, address in places.items())
        )
        quarantined = (await self._decisions()).quarantined  # Decided while we waited, perhaps.
        for name in places:
            if index in quarantined.get(name, ()):
                raise TargetError(
                    f"entry {index} is quarantined at {name!r}, so its part is missing there; once what refused it is "
                    f"repaired, apply it with 'logplayer target redrive {name} --index {index}'"
                )

    async def _decisions(self) -> ControlState:
        newest = (await self._log.info()).control
        if self._control is None or self._control.through < newest:
            self._control = (await control_chain.load(self._log)).control(None)
        return self._control

    def _address(self, control: ControlState, name: str, index: int) -> str:
        if name not in control.members:
            raise TargetError(f"entry {index} has rows for {name!r}, which is not a member of this log")
        address = self.told.get(name) or control.members[name].address
        if not address:
            raise TargetError(
                f"the log does not say where {name!r} is; record it with 'logplayer target add {name} ADDRESS', or "
                "wait with lp.wait_for(address, target, index)"
            )
        return address


def touched(control: ControlState, index: int, payload: bytes) -> list[str]:
    """The targets that get a part of the entry."""
    entry = Entry(index, payload)
    parts = control.router.split(entry, route_transaction)
    if entry.malformed:
        raise TargetError(f"entry {index} reaches no target: {entry.malformed}")
    if NO_OWNER in parts:
        raise TargetError(
            f"the log does not say who gets a key of entry {index} that names no target: its map is explicit, or the "
            "player has a function of its own; wait with lp.wait_for(address, target, index)"
        )
    return list(parts)

"""A player that stands by: it watches the log and the targets, and returns when nobody plays any more.

It decides nothing: :mod:`logplayer.core.standby` does, and says why this needs no protocol of its own. What is kept
warm is the process, the connection to the log, and what the log says about members and addresses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from logplayer.config import Config
from logplayer.core.alive import TargetSeen
from logplayer.core.standby import Standby
from logplayer.errors import LogError
from logplayer.log import control_chain as chain
from logplayer.log.protocol import Log
from logplayer.player.maps import check_start
from logplayer.player.start import ask_targets, seen_of

logger = logging.getLogger("logplayer.player")

LOOK_SECONDS = 0.25


class StandbyWatch:
    """The looks of one standby. It outlives its own takeovers, so that it knows how they went."""

    def __init__(self, log: Log, config: Config, standby: Standby | None = None) -> None:
        self._log = log
        self._config = config
        self._standby = standby or Standby()
        self._addresses: dict[str, str] = {}
        self._control = -1
        self._can_tell = True

    async def check(self) -> None:
        """Raise ConfigError if what this player would play, it would deliver nowhere."""
        await self._read_members()

    async def until_gone(self, stop: Callable[[], bool]) -> bool:
        """Return True once nobody plays, False once ``stop()`` is true.

        Raises:
            ConfigError: What it would play, it would deliver nowhere.
        """
        while not stop():
            began = time.monotonic()
            try:
                if await self._look():
                    return True
            except (LogError, OSError) as error:
                logger.debug("the standby cannot read the log: %s", error)  # Nor could it take over.
            await asyncio.sleep(max(0.0, LOOK_SECONDS - (time.monotonic() - began)))
        return False

    async def _look(self) -> bool:
        control = (await self._log.info()).control
        if control != self._control or not self._addresses:
            await self._read_members()
            self._control = control
        wanted = self._standby.ask(self._addresses)
        answers = await ask_targets({name: self._addresses[name] for name in wanted}, self._config.security)
        seen = seen_of(answers)
        self._tell(seen)
        return self._standby.looked(int(time.monotonic() * 1000), control, seen)

    async def _read_members(self) -> None:
        config = self._config
        head = await chain.load(self._log)
        decided = chain.begin(head, config.map, tuple(config.targets.items()))
        check_start(decided, config.map, config.targets, head.state is not None)
        members = decided.members.items()
        self._addresses = {name: config.targets.get(name) or member.address for name, member in members}

    def _tell(self, seen: Mapping[str, TargetSeen]) -> None:
        """Once, when it can see nobody: it does not take over then, and an operator should know."""
        if self._can_tell and not seen:
            logger.warning("no target answers this standby, so it cannot tell whether anybody plays: it waits")
        self._can_tell = bool(seen)

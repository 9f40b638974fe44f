"""``lp.Player``: a player inside your own process, as a context manager with a typed end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from logplayer.api.opened import OpenedLog
from logplayer.config import Config
from logplayer.core.entry import HashMap, ShardMap
from logplayer.core.routing import owner_of
from logplayer.errors import UserError
from logplayer.log.protocol import Log
from logplayer.player.ended import Ended
from logplayer.player.shell import Shell
from logplayer.player.status import PlayerStatus
from logplayer.wire.security import NONE


def HashShards(*targets: str, by: str = "") -> HashMap:
    """A shard map that gives each key to one of the targets, by its hash.

    Args:
        targets: Their names. The order matters: the same names in another order are another map.
        by: What is hashed, so that keys that belong together live together: ``tag`` for what stands in the first pair
            of braces of the key, ``prefix /`` for what stands before its first ``/`` (or another separator). Empty: the
            whole key.

    Raises:
        ConfigError: There is no target, or keys cannot be hashed by this.

    Example:
        >>> HashShards("a", "b", by="tag")  # order/{7} and line/{7}/1 have the same shard.
        HashMap(targets=('a', 'b'), by='tag')
    """
    owner_of(HashMap(targets, by))  # It says what is wrong with it.
    return HashMap(targets, by)


class EmbeddedPlayer:
    """Plays a log into targets: each entry reaches each of its targets exactly once and in order.

    Inside ``async with`` it plays; at the end of the block it delivers what is queued, and stops. ``run()`` does the
    same without a block.

    Args:
        log: An open log. Close it yourself, after the player has ended.
        config: All settings, if the defaults are not yours.
        targets: Name and address of each target. They become the members of a log that has none yet; later on
            ``logplayer target add`` and ``remove`` decide.
        shards: The first shard map of such a log. Without one, keys are hashed over all targets.

    Raises:
        ConfigError: Nothing would be delivered with this map and these targets.
        LogError: The log cannot be read, or its decisions cannot.

    Example:
        >>> async with lp.Player(log, targets={"a": address}) as player:  # doctest: +SKIP
        ...     ended = await player.wait()
    """

    def __init__(
        self,
        log: Log,
        config: Config | None = None,
        *,
        targets: Mapping[str, str] | None = None,
        shards: ShardMap | None = None,
    ) -> None:
        made = config or Config()
        if targets is not None:
            made = replace(made, targets=dict(targets))
        if shards is not None:
            made = replace(made, map=shards)
        if made.security == NONE and isinstance(log, OpenedLog):
            made = replace(made, security=log.security)
        if isinstance(log, OpenedLog):
            log.targets.update(made.targets)
        self.config = made
        self.ended: Ended | None = None
        self._shell = Shell(log, made)
        self._playing: asyncio.Task[Ended] | None = None

    async def run(self) -> Ended:
        """Take over, and play until stopped or superseded by a newer player.

        Returns:
            How it ended: ``ended.kind`` is ``lp.EndKind.STOPPED`` or ``lp.EndKind.SUPERSEDED``.

        Raises:
            LogPlayerError: What ended it otherwise.

        Example:
            >>> ended = await lp.Player(log, targets={"a": address}).run()  # doctest: +SKIP
        """
        self.ended = await self._shell.run()
        return self.ended

    async def wait(self) -> Ended:
        """Wait until it has ended by itself: superseded, or stopped from elsewhere. Inside ``async with``.

        Returns:
            How it ended, as ``run`` does.

        Raises:
            LogPlayerError: What ended it otherwise.

        Example:
            >>> (await player.wait()).superseded  # doctest: +SKIP
            True
        """
        if self._playing is None:
            raise UserError("the player does not play; use it with 'async with', or await its run()")
        return await asyncio.shield(self._playing)

    def request_stop(self) -> None:
        """Deliver what is queued, then end. Safe to call more than once, and from a signal handler.

        Example:
            >>> player.request_stop()  # doctest: +SKIP
        """
        self._shell.request_stop()

    def status(self) -> PlayerStatus:
        """What ``logplayer status`` shows: where the main stream and every target are.

        Example:
            >>> [target.state for target in player.status().targets]  # doctest: +SKIP
            ['LIVE', 'LIVE']
        """
        return self._shell.status()

    def retry(self, target: str) -> None:
        """Try a blocked or waiting target again at once.

        Args:
            target: The target's name.

        Raises:
            ConfigError: This player has no such target.

        Example:
            >>> player.retry("a")  # doctest: +SKIP
        """
        self._shell.retry(target)

    async def __aenter__(self) -> EmbeddedPlayer:
        """Returns once it has taken over."""
        started = asyncio.Event()
        self._shell.on_started = started.set
        self._playing = asyncio.create_task(self.run())
        starting = asyncio.create_task(started.wait())
        try:
            await asyncio.wait([self._playing, starting], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._playing.cancel()
            raise
        finally:
            starting.cancel()
        if self._playing.done():
            self._playing.result()
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        assert self._playing is not None
        self.request_stop()
        if kind is None:
            await self._playing
        else:
            await asyncio.wait([self._playing])
            if not self._playing.cancelled():
                self._playing.exception()  # The block's own error is the one to raise.

"""Trims what all targets of all groups have: what one player does by itself when it has them all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing

from logplayer.core.entry import ShardMap
from logplayer.core.unroutable import Unroutable
from logplayer.log import control_chain as chain
from logplayer.log.chain import chain_at
from logplayer.log.protocol import History, Info, Log
from logplayer.log.refusals import other_history
from logplayer.player.survey import read_back
from logplayer.wire.entries import route_transaction

TRIM_ENTRIES_MIN = 10_000


class Trimmer:
    """One for the life of a driver: it remembers how far it has looked for entries that reach nobody."""

    def __init__(self, log: Log, first_map: ShardMap | None, trims_unroutable: bool = False) -> None:
        self._log = log
        self._first_map = first_map
        self._trims_unroutable = trims_unroutable
        self._unroutable = Unroutable()
        self._looked = 0

    async def trim(
        self, indexes: Mapping[str, int], members: Collection[str], histories: Sequence[History] = ()
    ) -> int:
        """Trim up to the index that every member reports as durable; returns how far, 0 if it is not worth it.

        A member that was not heard of holds everything, and an unroutable entry what comes after it. The log keeps its
        newest control record: if that is in the way, it is repeated further on. ``histories`` is what the groups have
        read: nothing is trimmed if the log does not have that any more, nor what one of them has not read.
        """
        if not members or any(name not in indexes for name in members):
            return 0
        point = min(indexes[name] for name in members)
        info = await self._log.info()
        for history in histories:
            if history.index >= info.first - 1 and await chain_at(self._log, history.index) != history.chain:
                raise other_history(history)
            point = min(point, history.index)
        if point - (info.first - 1) < TRIM_ENTRIES_MIN:
            return 0
        if not self._trims_unroutable:
            point = await self._routed(info, point)
            if point < info.first:
                return 0
        trimmed, _ = await chain.trim(
            self._log,
            point,
            histories[0] if histories else None,
            first_map=self._first_map,
            repeat_after=chain.CHECKPOINT_ENTRIES,
        )
        return trimmed if trimmed >= info.first else 0

    async def _routed(self, info: Info, point: int) -> int:
        """The last entry up to ``point`` before the first one that reaches nobody."""
        control = (await chain.load(self._log)).control(self._first_map)
        first = max(info.first, self._looked + 1)
        async with aclosing(read_back(self._log, first, point)) as entries:  # type: ignore[type-var]
            async for some in entries:
                for entry in some:
                    self._unroutable.look_at(entry, control, route_transaction)
                self._looked = some[-1].index
        for name in control.members:
            self._unroutable.forgive(name)
        kept = self._unroutable.first()
        return point if kept is None else min(point, kept - 1)

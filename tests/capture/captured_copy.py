"""A store of tables that gets what captures have put into a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logplayer.core.entry import Delivery, Session
from logplayer.target.protocol import Store
from logplayer.target.stores.open import open_store
from logplayer.wire.entries import split_transaction
from tests.capture.capture_support import entries
from tests.target.store_places import Place, opening, playing, run_sql

S1 = Session(1, 1)


class Copy:
    """A store of tables with the captured tables, and every entry of the log applied in a commit of its own."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.store: Store | None = None

    def make(self, *statements: str) -> None:
        run_sql(self.place, *statements)
        self.store = open_store(self.place.kind, self.place.name, path=self.place.path, url=self.place.url)
        self.store.apply(opening(S1))

    async def play(self, directory: Path) -> None:
        """What is new in the log."""
        assert self.store is not None
        at = self.store.position().index
        for index, _, _, payload in await entries(directory):
            if index > at:
                self.store.apply(playing(S1, at, index, Delivery(index, self._share(payload))))
                at = index

    def _share(self, payload: bytes) -> bytes:
        return b"".join(one.encoded for one in split_transaction(payload) if one.target in ("", self.place.name))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return run_sql(self.place, query)

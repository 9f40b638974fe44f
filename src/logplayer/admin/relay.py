"""A face that shows another process: the page for a player that a browser cannot reach, or that comes and goes.

A browser shows no client certificate and may not know the player's CA; whoever runs the relay does. In the demo the
player itself is killed, and the page has to tell that, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from logplayer.admin.app import Action, Face, Facts
from logplayer.admin.exposition import Samples, add_player
from logplayer.admin.http_client import ask
from logplayer.admin.status_client import ask_status
from logplayer.errors import LogPlayerError, Unavailable
from logplayer.observe.timeline import SESSION, Timeline
from logplayer.wire.security import NONE, Security

EVERY_SECONDS = 0.3
ACTIONS = ("retry", "suspend", "resume", "quarantine", "redrive", "add", "remove")


class Relay:
    """Follows the player at ``address``. ``more`` is added to what it says of itself."""

    def __init__(self, address: str, security: Security = NONE) -> None:
        self._address = address
        self._security = security
        self.timeline = Timeline()
        self.more: dict[str, Any] = {}
        self._newest: dict[str, Any] | None = None
        self._error = f"the player at {address} was not reached yet"
        self._whose = ""  # The player whose time line is read, and how far.
        self._read = 0

    async def follow(self) -> None:
        """For ever: ask for the status, and for what is new in the time line."""
        while True:
            try:
                status = await ask_status(self._address, self._security)
                items = await ask(self._address, f"/timeline?since={self._read}", security=self._security)
            except LogPlayerError as error:
                self._lost(str(error))
            else:
                if not self._heard(status, items):
                    continue  # What another player said first is asked for at once.
            await asyncio.sleep(EVERY_SECONDS)

    def face(self) -> Face:
        """What is shown, and let do."""
        actions: dict[str, Action] = {name: self._relayed(name) for name in ACTIONS}
        return Face("dashboard", self._status, self._not_ready, self._metrics, actions, self.timeline, page=True)

    def _heard(self, status: dict[str, Any], items: Mapping[str, Any]) -> bool:
        """Take what is new. False if the items are the later ones of a time line of which nothing was read yet."""
        self._newest, self._error = status, ""
        if items["of"] != self._whose:
            asked_after, self._whose, self._read = self._read, items["of"], 0  # A time line begins at 1.
            if asked_after:
                return False
        for item in items["items"]:
            if item["number"] > self._read:
                self._read = item["number"]
                self.timeline.take(item)
        return True

    def _lost(self, error: str) -> None:
        if not self._error and self._newest is not None:
            self.timeline.say(logging.ERROR, SESSION, "the player does not answer")
        self._error = error

    async def _status(self) -> Facts:
        if self._newest is None:
            raise Unavailable(self._error)
        told = {key: value for key, value in self._newest.items() if key not in ("version", "kind")}
        if self._error:
            told |= {"state": "away", "log_error": "the player does not answer", "entries_per_second": 0.0}
        return {**told, **self.more}

    async def _not_ready(self) -> str:
        return self._error

    async def _metrics(self, into: Samples) -> None:
        add_player(into, await self._status())

    def _relayed(self, name: str) -> Action:
        async def act(question: Facts) -> Facts:
            done: Facts = await ask(self._address, f"/actions/{name}", question, self._security)
            return done

        return act


@contextlib.asynccontextmanager
async def following(relay: Relay) -> Any:
    """Follow inside the block."""
    task = asyncio.create_task(relay.follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

"""The shell of a feed: one target, the sessions to it, and a clock. It decides nothing: see ``core.feed``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from logplayer.core import effects
from logplayer.core.effects import SendBatch
from logplayer.core.events import Ticked
from logplayer.core.feed import AskFailed, AskSession, Fed, Feed, FeedEffect, FeedEvent, Stood
from logplayer.core.invariants import InvariantViolation
from logplayer.errors import LogPlayerError, TargetError
from logplayer.observe.logs import about
from logplayer.player.session import TargetSession
from logplayer.target.client import position
from logplayer.wire.connections import Connections
from logplayer.wire.security import Security

logger = logging.getLogger("logplayer.feed")

TICK_SECONDS = 0.05


class Feeding:
    """One feed under way, on one event loop."""

    def __init__(
        self, feed: Feed, address: str, log_id: str, security: Security, read: Callable[[effects.ReadCatchUp], None]
    ) -> None:
        """``read`` begins a read of the source, and must not wait; ``tell`` takes its answer."""
        self._feed = feed
        self._address = address
        self._log_id = log_id
        self._security = security
        self._read = read
        self._session: TargetSession | None = None
        self._connections = Connections(security)
        self._inbox: deque[FeedEvent] = deque()
        self._stepping = False
        self._ask: asyncio.Task[None] | None = None
        self._ending: asyncio.Future[Fed]

    async def run(self) -> Fed:
        """Feed the target until the feed has ended; returns how."""
        self._ending = asyncio.get_running_loop().create_future()
        clock = asyncio.create_task(self._tick())
        try:
            return await self._ending
        finally:
            for task in (clock, self._ask):
                if task is not None:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, LogPlayerError):
                        await task
            if self._session is not None:
                self._session.close()

    def tell(self, fact: FeedEvent) -> None:
        """One event for the feed, and its effects. An effect that leads to another event waits its turn."""
        if self._ending.done():
            return
        if self._stepping:
            self._inbox.append(fact)
            return
        try:
            with self._connections.turn():  # Its beginning may tell of a stream that is ready, in a step of its own.
                self._step(fact)
        except (InvariantViolation, Exception) as error:  # noqa: BLE001
            # The step may be half done, and the loop would log and swallow the error: run() raises it.
            self._fail(error)

    def _step(self, fact: FeedEvent) -> None:
        self._stepping = True
        try:
            self._feed.take(fact, self._perform)
            while self._inbox:
                self._feed.take(self._inbox.popleft(), self._perform)
        finally:
            self._stepping = False

    def _fail(self, error: BaseException) -> None:
        if not self._ending.done():
            self._ending.set_exception(error)

    # --- What the feed asks for ---

    def _perform(self, request: FeedEffect) -> None:
        if type(request) is SendBatch:  # Nearly all of them.
            if self._session is not None:
                self._session.send(request)
        else:
            self._performers[type(request)](self, request)

    def _ask_session(self, request: AskSession) -> None:
        self._ask = asyncio.create_task(self._tell_session(request.target))

    async def _tell_session(self, target: str) -> None:
        try:
            stood = await position(self._address, target, security=self._security)
        except (TargetError, OSError) as error:
            self.tell(AskFailed(str(error) or type(error).__name__))
        except Exception as error:  # noqa: BLE001
            self._fail(error)  # The address or the security is wrong, and stays so: the caller gets the error.
        else:
            self.tell(Stood(stood.session))

    def _open(self, request: effects.OpenSession) -> None:
        self._session = TargetSession(
            request.target, request.session, self._address, self._log_id, self._connections, self.tell
        )

    def _close(self, request: effects.CloseSession) -> None:
        if self._session is not None and self._session.session == request.session:
            self._session.close()
            self._session = None

    def _probe(self, request: effects.SendProbe) -> None:
        if self._session is not None:
            self._session.probe()

    def _read_source(self, request: effects.ReadCatchUp) -> None:
        self._read(request)

    def _report(self, request: effects.Report) -> None:
        if not request.blocked:  # The caller gets to know how the feed ended.
            feed = self._feed
            known = about(target=request.target, log_id=self._log_id, epoch=feed.epoch, index=feed.has)
            logger.warning("target %s: %s", request.target, request.what, extra=known)

    def _stop(self, request: effects.Stop) -> None:
        if self._feed.ended is not None and not self._ending.done():
            self._ending.set_result(self._feed.ended)

    _performers: dict[type, Callable[[Feeding, Any], None]] = {  # noqa: RUF012
        AskSession: _ask_session,
        effects.OpenSession: _open,
        effects.CloseSession: _close,
        effects.SendProbe: _probe,
        effects.ReadCatchUp: _read_source,
        effects.Report: _report,
        effects.Stop: _stop,
    }

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self.tell(Ticked(int(loop.time() * 1000)))
            await asyncio.sleep(TICK_SECONDS)

"""Before a player plays: it waits for its log, looks whether another player lives, and learns where to begin.

Whether another player lives is asked of the targets; :mod:`logplayer.core.alive` judges their answers. The sockets of
a process that was killed are closed by its kernel, so a restart is not held up by the player that it follows; the
streams of one that is frozen, cut off or on a machine that is gone are open, but quiet, and it is replaced as soon as
they have been quiet for long enough. Two newcomers that look at the same time may both find nobody: then the log orders
their takeovers, as it always does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from logplayer.core.alive import Presence, TargetSeen, presence
from logplayer.core.entry import Takeover
from logplayer.core.player import Player
from logplayer.core.target_queue import State
from logplayer.errors import ConfigError, LogPlayerError, LogUnavailable
from logplayer.log import control_chain as chain
from logplayer.log.open import open_log
from logplayer.log.protocol import Locked, Log
from logplayer.target.client import standing
from logplayer.wire.codec import PositionAnswer
from logplayer.wire.entries import decode_control
from logplayer.wire.security import Security

logger = logging.getLogger("logplayer.player")

ASK_SECONDS = 1.0  # How long the start waits for the targets' positions; they are only a hint.
MEET_SECONDS = 0.005
AGAIN_SECONDS = 0.1
OPEN_SECONDS = 0.5  # One look for a log server.
RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)


async def ask_targets(addresses: Mapping[str, str], security: Security) -> dict[str, PositionAnswer]:
    """The positions of the targets that answer in time."""
    asked = [
        standing(address, name, timeout=ASK_SECONDS, security=security)
        for name, address in addresses.items()
        if address
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    names = [name for name, address in addresses.items() if address]
    return {name: one for name, one in zip(names, answers, strict=True) if isinstance(one, PositionAnswer)}


async def leave_alone(
    log: Log, addresses: Mapping[str, str], standings: Mapping[str, PositionAnswer], security: Security
) -> None:
    """Raise ConfigError if another player feeds one of the targets now, and goes on doing so."""
    began, watched_ms = time.monotonic(), 0
    while (found := presence(watched_ms, seen := seen_of(standings))) is not Presence.NOBODY:
        if found is Presence.ALIVE:
            fed = [(one.position.session, name) for name, one in standings.items() if seen[name].fed]
            session, name = max(fed)
            who = await _player_of(log, session.epoch)
            raise ConfigError(
                f"{who} plays to {name} and goes on undisturbed; a second player of the same targets would end it. To "
                "replace it, add --take-over"
            )
        await asyncio.sleep(AGAIN_SECONDS)
        watched_ms = int((time.monotonic() - began) * 1000)
        standings = await ask_targets(addresses, security)


def seen_of(answers: Mapping[str, PositionAnswer]) -> dict[str, TargetSeen]:
    """What the answers say about a player."""
    return {name: TargetSeen(one.connected, one.quiet_ms) for name, one in answers.items()}


async def _player_of(log: Log, epoch: int) -> str:
    """Whose epoch it is, as far as the log still tells."""
    with contextlib.suppress(LogPlayerError):
        record = await chain.first_record(log, epoch, epoch)
        taken = decode_control(record.payload)
        if isinstance(taken, Takeover):
            since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.committed_at_us / 1e6))
            return f"{taken.player or 'another player'} (epoch {epoch}, since {since})"
    return f"another player (epoch {epoch})"


async def meet_targets(core: Player) -> None:
    """Let the targets open before the first entry, so that those at the start join the main stream at once.

    Otherwise it would run ahead of them while they connect, and each would have to read the same entries for itself.
    Not for long: a target that is down must not hold the others up.
    """
    for _ in range(round(ASK_SECONDS / MEET_SECONDS)):
        if all(
            queue.state is not State.SUSPENDED or queue.reconnect.attempts or queue.reconnect.blocked
            for queue in core.queues.values()
        ):
            return
        await asyncio.sleep(MEET_SECONDS)


class Waiting:
    """The wait of a player for its log: reported once per reason, and shown as the player's status."""

    def __init__(self, player: str, group: str, address: str) -> None:
        self._player = player
        self._group = group
        self._address = address
        self._since = time.monotonic()
        self.reason = ""
        self.standby = False  # It has its log, and waits for the death of the player that plays.

    def stands_by(self, yes: bool) -> None:
        """It begins to stand by, or has ended to."""
        self.standby, self.reason, self._since = yes, "", time.monotonic()

    def note(self, error: Exception) -> None:
        """The log was looked for in vain."""
        if not self.reason:
            logger.warning("waiting for the log at %s: %s", self._address, error)
        self.reason = str(error)

    def status(self) -> dict[str, Any]:
        """In the shape that ``logplayer status`` shows."""
        return {
            "group": self._group,
            "player": self._player,
            "log_id": "",  # Not known yet.
            "epoch": 0,
            "current": 0,
            "chain": "",
            "log_first": 0,
            "log_last": 0,
            "log_bytes": 0,
            "trim_point": 0,
            "consistent_cut": 0,
            "entries_per_second": 0.0,
            "unroutable": 0,
            "state": "standby" if self.standby else "waiting",
            "targets": [],
            "log_error": ""
            if self.standby
            else f"waiting for the log at {self._address}: {self.reason or 'not opened yet'}",
            "stuck_seconds": 0.0 if self.standby else round(time.monotonic() - self._since, 1),
            "delay_p50_ms": 0.0,
            "delay_p90_ms": 0.0,
            "delay_p99_ms": 0.0,
            "producers": [],
        }


def worth_waiting(error: Exception, *, locked: bool = False) -> bool:
    """Whether time alone may mend it. A log that another process has may be its own for ever: that is an error.

    Not for a standby (``locked``): that process is the player whose death it waits for.
    """
    return isinstance(error, LogUnavailable) and (locked or not isinstance(error, Locked))


async def open_patiently(
    address: str, security: Security, stop: asyncio.Event, note: Callable[[Exception], None], *, locked: bool = False
) -> Log | None:
    """Open the log, however long it is away; None if ``stop`` is set first. The user's mistakes are raised.

    ``locked``: wait also for a log that another process has.
    """
    attempt = 0
    wanted = asyncio.ensure_future(stop.wait())
    try:
        while not stop.is_set():
            opening = asyncio.ensure_future(open_log(address, security=security, open_seconds=OPEN_SECONDS))
            await asyncio.wait({opening, wanted}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
                return None
            error = opening.exception()
            if error is None:
                return opening.result()
            if not isinstance(error, Exception) or not worth_waiting(error, locked=locked):
                raise error
            note(error)
            await asyncio.wait({wanted}, timeout=RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
            attempt += 1
        return None
    finally:
        wanted.cancel()

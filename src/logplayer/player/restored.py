"""What the targets have, compared with a log that was just restored: which of them its players will block."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from logplayer.core.claims import judge, lacks
from logplayer.core.effects import LookUp
from logplayer.core.events import LookUpFailed
from logplayer.core.fence import Position
from logplayer.errors import LogPlayerError
from logplayer.log import control_chain
from logplayer.log.protocol import Info, Log
from logplayer.player.look_up import look_up
from logplayer.target.client import position
from logplayer.wire.security import NONE, Security

ANSWER_SECONDS = 5.0
FITS, UNKNOWN = "FITS", "UNKNOWN"


class RestoredTarget(NamedTuple):
    """``verdict``: FITS, the reason for which players will block it (DIVERGED, RESEED, FENCED, WRONG_LOG), or UNKNOWN.

    ``index`` is what the target has, None if it could not be asked.
    """

    target: str
    address: str
    verdict: str
    index: int | None  # type: ignore[assignment]  # Hides tuple's own method.
    detail: str


async def compare_targets(log: Log, given: Mapping[str, str], security: Security = NONE) -> list[RestoredTarget]:
    """Ask the members that the log knows, and those that are ``given`` (name, address); these addresses count more."""
    addresses: dict[str, str] = {}
    trouble = ""
    try:
        members = (await control_chain.load(log)).control(None).members
        addresses = {name: member.address for name, member in members.items()}
    except LogPlayerError as error:
        trouble = f"the log's decisions cannot be read: {error}"
    addresses |= given
    answers = await asyncio.gather(*(_compare(log, name, where, security) for name, where in addresses.items()))
    return [*answers, RestoredTarget("", "", UNKNOWN, None, trouble)] if trouble else list(answers)


async def _compare(log: Log, name: str, address: str, security: Security) -> RestoredTarget:
    if not address:
        why = f"the log has no address of it: give --target {name}=ADDRESS"
        return RestoredTarget(name, address, UNKNOWN, None, why)
    try:
        found = await position(address, name, timeout=ANSWER_SECONDS, security=security)
        info = await log.info()
        verdict, detail = await _judge(log, info, name, found)
    except (LogPlayerError, OSError) as error:
        return RestoredTarget(name, address, UNKNOWN, None, str(error))
    return RestoredTarget(name, address, verdict, found.index, detail)


async def _judge(log: Log, info: Info, name: str, found: Position) -> tuple[str, str]:
    if found.log_id and found.log_id != info.log_id:
        return "WRONG_LOG", f"filled from log {found.log_id!r}, not {info.log_id!r}"
    fact = await look_up(log, LookUp(name, found.index))
    if isinstance(fact, LookUpFailed):
        return UNKNOWN, fact.error
    blocked = judge(fact, found.chain)
    if blocked is None and found.index < info.first - 1:
        blocked = lacks(found.index, info.first - 1, info.first - 1)
    if blocked is not None:
        return blocked.kind, blocked.detail
    epoch = found.session.epoch
    if epoch > info.last:
        return "FENCED", (
            f"epoch {epoch} owns it, and the log has lost that takeover: free its store with 'logplayer target unfence'"
        )
    if found.index == info.last:
        return FITS, "it has all that the log has"
    return FITS, f"it gets entries {found.index + 1} to {info.last}"

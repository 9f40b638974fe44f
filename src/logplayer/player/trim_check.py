"""Which members still need what a trim by hand would take: they are asked, because nobody else knows."""

from __future__ import annotations

import asyncio

from logplayer.core.entry import TargetAdded
from logplayer.errors import ConfigError, LogPlayerError, TargetUnavailable
from logplayer.log import control_chain
from logplayer.log.protocol import Log
from logplayer.target.client import position
from logplayer.wire.security import NONE, Security

ANSWER_SECONDS = 5.0


async def check_trim(log: Log, up_to: int, security: Security = NONE) -> None:
    """Return if every member of the log has index ``up_to``.

    Raises ConfigError if one has less, and TargetUnavailable if one cannot be asked; nothing is changed either way.
    """
    short, silent = await _holding(log, up_to, security)
    if short:
        has = ", ".join(f"{name} has index {index}" for name, index in short.items())
        raise ConfigError(
            f"a trim up to {up_to} takes entries that targets do not have yet: {has} (nothing was trimmed); give "
            f"--up-to {min(short.values())} or less, or --force, and backfill these targets from an archive"
        )
    if silent:
        why = "; ".join(f"{name} cannot be asked whether it has them: {why}" for name, why in silent.items())
        raise TargetUnavailable(
            f"a trim up to {up_to} may take entries that targets do not have yet: {why} (nothing was trimmed); start "
            "them, or remove those that are gone with 'logplayer target remove', or give --force"
        )


async def spared_by_all(log: Log, up_to: int, security: Security = NONE) -> tuple[int, str]:
    """How far up to ``up_to`` every member has the log, and what keeps the rest: empty if nothing does.

    A member that cannot be asked keeps everything.
    """
    short, silent = await _holding(log, up_to, security)
    reasons = [f"{name} has index {index}" for name, index in short.items()]
    reasons += [f"{name} cannot be asked what it has: {why}" for name, why in silent.items()]
    return 0 if silent else min(short.values(), default=up_to), "; ".join(reasons)


async def _holding(log: Log, up_to: int, security: Security) -> tuple[dict[str, int], dict[str, str]]:
    """The members that have less than ``up_to``, with their indexes, and those that cannot be asked, with reasons."""
    members = (await control_chain.load(log)).control(None).members.values()
    answers = await asyncio.gather(*(_index_of(member, security) for member in members))
    short = {name: index for name, index in answers if isinstance(index, int) and index < up_to}
    return short, {name: why for name, why in answers if not isinstance(why, int)}


async def _index_of(member: TargetAdded, security: Security) -> tuple[str, int | str]:
    """The member's name and its index, or why it cannot be asked."""
    if not member.address:
        return member.target, "the log has no address of it"
    try:
        found = await position(member.address, member.target, timeout=ANSWER_SECONDS, security=security)
    except (LogPlayerError, OSError) as error:
        return member.target, str(error)
    return member.target, found.index

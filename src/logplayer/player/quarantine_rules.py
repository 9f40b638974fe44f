"""Whether an entry may be quarantined at a target, and whether that may be taken back: for commands and the page.

An entry that is quarantined is missing at its target from then on, so the decision is made about the entry that blocks
the target right now, as its player says. Anything else must be forced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from logplayer.core.control_state import ControlState
from logplayer.errors import ConfigError


class QuarantineFacts(NamedTuple):
    """What is known of a target when an operator decides about it."""

    log_last: int
    control: ControlState
    target: Mapping[str, Any] | None  # Its part of the player's status; None if no player could tell.
    index: int  # type: ignore[assignment]  # What the target has; -1 if nobody could tell. Hides tuple.index.
    why_not: str = ""


def check_quarantine(name: str, index: int, seen: QuarantineFacts, force: bool) -> str:
    """Refuse what would leave out a healthy entry. Returns what to warn of if ``force`` is what lets it pass."""
    if index > seen.log_last:
        raise ConfigError(
            f"entry {index} is not in the log, which ends at {seen.log_last}: quarantine an entry once it blocks {name}"
        )
    if index <= seen.index:
        raise ConfigError(f"{name} has index {seen.index}: entry {index} is already applied or in its quarantine")
    if seen.target is None:
        told = f"nobody can tell whether entry {index} blocks {name}: {seen.why_not}"
        helps = "give --player HOST:PORT of the player that plays to it"
    else:
        blocked = seen.target["blocked"] or {}
        poisoned = blocked.get("index") if blocked.get("kind") == "POISON" else None
        if poisoned == index:
            return ""
        told = f"{name} is {seen.target['state']} and has index {seen.index}: entry {index} does not block it"
        helps = "quarantine an entry when 'logplayer status' shows POISON for it"
        if poisoned is not None:
            told = f"{name} is blocked by entry {poisoned}, not by entry {index}"
            helps = f"use --index {poisoned}"
    if not force:
        raise ConfigError(f"{told}; {helps}, or add --force if {name} shall never get entry {index}")
    return f"warning: {told}. Entry {index} will be missing at {name}: it goes to its quarantine and is not applied"


def check_revocation(name: str, index: int, seen: QuarantineFacts, force: bool) -> None:
    """Refuse to take back what nobody decided, or what has happened."""
    decided = sorted(seen.control.quarantined.get(name, ()))
    if index not in decided:
        known = ", ".join(str(one) for one in decided) or "none"
        raise ConfigError(f"entry {index} is not decided to be quarantined at {name}; decided are: {known}")
    if seen.index >= index:
        raise ConfigError(
            f"{name} has index {seen.index}: entry {index} is in its quarantine, and stays there. To apply it, append "
            "its changes as a new transaction"
        )
    if seen.index < 0 and not force:
        raise ConfigError(
            f"nobody can tell which index {name} has: {seen.why_not or 'its player has not heard from it'}; start it, "
            f"or add --force (if {name} has passed entry {index} already, that changes nothing)"
        )

"""What an operator wants to know of a target that is not well: why, and whether it will catch up by itself."""

from __future__ import annotations

import enum

from logplayer.wording import duration, plural

ON_THE_WAY_SECONDS = 1.0  # What a LIVE target lacks for less than this is on its way, not a lag.
STALLED_SECONDS = 5.0  # A target that does not gain on the log for as long as rates are counted over is stalled.
ETA_SECONDS_MAX = 30 * 86_400.0  # What would take longer than this does not get anywhere.


class Outlook(enum.Enum):
    """What becomes of a target if nobody acts."""

    FINE = "fine"  # It has what the log has, or gets it at this moment.
    CATCHES_UP = "catches up"  # It gains on the log.
    STARTS = "too early to say"  # It lags since a moment; how fast it gains is not known yet.
    FALLS_BEHIND = "falls behind"  # The log grows faster than it takes entries.
    IS_TRIED = "is tried again"  # It is away; the player tries again by itself.
    NEEDS_YOU = "needs you"  # Time alone does not mend it.


def outlook_of(
    state: str, lag_entries: int, lag_seconds: float, eta_seconds: float | None, state_seconds: float
) -> Outlook:
    """See :class:`Outlook`."""
    if state == "BLOCKED":
        return Outlook.NEEDS_YOU
    if state == "SUSPENDED":
        return Outlook.IS_TRIED
    if lag_entries == 0 or (state == "LIVE" and lag_seconds < ON_THE_WAY_SECONDS):
        return Outlook.FINE
    if eta_seconds is not None and eta_seconds <= ETA_SECONDS_MAX:
        return Outlook.CATCHES_UP
    return Outlook.FALLS_BEHIND if state_seconds >= STALLED_SECONDS else Outlook.STARTS


def why(outlook: Outlook, state: str, error: str, lag_entries: int, rate: float, log_rate: float) -> str:
    """One sentence; empty for a target that is well."""
    if outlook is Outlook.FINE:
        return ""
    if outlook in (Outlook.NEEDS_YOU, Outlook.IS_TRIED):
        return error or "it has not answered yet"
    if error:
        return f"its part of the log cannot be read: {error}"
    left = f"{plural(lag_entries, 'entry', 'entries')} to go"
    if outlook is Outlook.FALLS_BEHIND:
        return f"it takes {rate:.0f} entries/s, the log grows by {log_rate:.0f}/s; {left}"
    return (
        f"it was away or too slow and reads the log; {left}" if state == "CATCHING_UP" else f"it is slow to ack; {left}"
    )


def whether(outlook: Outlook, eta_seconds: float | None, retry_seconds: float | None) -> str:
    """The outlook in words, with the time where it is known."""
    if outlook is Outlook.CATCHES_UP and eta_seconds is not None:
        return f"catches up in {duration(max(1.0, eta_seconds))}"
    if outlook is Outlook.IS_TRIED and retry_seconds:
        return f"tried again in {duration(max(1.0, retry_seconds))}"
    return outlook.value

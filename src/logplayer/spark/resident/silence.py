"""What is shown of the targets of a group that nobody is heard to play.

The last heartbeat of a group says what was true then. A target that was LIVE with lag 0 may lack anything by now, so it
is shown as SILENT, with the index that it was last known to have and the lag that follows from where the log ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from logplayer.player.outlook import Outlook
from logplayer.player.status import TargetStatus
from logplayer.spark.resident.group_run import GroupRun, GroupState
from logplayer.wording import duration

if TYPE_CHECKING:
    from logplayer.spark.resident.machine import Machine

SILENT = "SILENT"
_WHY = {
    GroupState.STARTING: "its player starts",
    GroupState.WAITING: "its job waits for a slot in Spark",
    GroupState.PAUSING: "Spark gave its job up, and the next one starts in a moment",
    GroupState.SILENT: "its player is not heard",
}


def why_silent(number: int, run: GroupRun, now: int) -> str:
    """Why nothing is known of the targets of group ``number``; empty if its player is heard."""
    state, silence = run.state(now), run.silence_ms(now)
    if state is GroupState.PLAYING:
        return ""
    since = f", for {duration(silence / 1000)}" if silence is not None else ""
    return f"nobody is heard to play group {number}{since}: {_WHY[state]}"


def why_not_ready(machine: Machine, now: int) -> str:
    """Why the application does not do its work now; empty if every group is heard to play."""
    if not machine.application:
        return "it stands by: another player plays"
    return "; ".join(filter(None, (why_silent(number, run, now) for number, run in enumerate(machine.runs))))


def unheard_row(target: str, why: str) -> dict[str, Any]:
    """A target that no player has spoken of yet."""
    empty = TargetStatus(
        target=target,
        address="",
        state=SILENT,
        session="",
        index=-1,
        lag_entries=0,
        lag_bytes=0,
        lag_seconds=0.0,
        queued=0,
        in_flight=0,
        entries_per_second=0.0,
        eta_seconds=None,
        attempts=0,
        digest="",
        error=why,
        state_seconds=0.0,
        blocked=None,
        quarantined=0,
        quarantined_ahead=0,
        quarantined_indexes=(),
        queue_fill=0.0,
        window_fill=0.0,
        sessions=0,
        retry_seconds=None,
        outlook=Outlook.IS_TRIED.value,
        why=why,
        whether=Outlook.IS_TRIED.value,
    )
    return asdict(empty)


def silent_row(row: Mapping[str, Any], had: int, log_last: int, silence_ms: int, why: str) -> dict[str, Any]:
    """A target as it was last spoken of. ``had``: where it was when it last had everything; -1 if that is not known."""
    lag = max(0, log_last - max(row["index"], had))
    return {
        **row,
        "state": SILENT,
        "lag_entries": lag,
        # It may lack an entry from the moment when its player was last heard on.
        "lag_seconds": round(row["lag_seconds"] + silence_ms / 1000, 3) if lag else 0.0,
        "entries_per_second": 0.0,
        "eta_seconds": None,
        "state_seconds": round(silence_ms / 1000, 1),
        "error": why,
        "outlook": Outlook.IS_TRIED.value,
        "why": why,
        "whether": Outlook.IS_TRIED.value,
    }

"""A player's status as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logplayer.player.outlook import ETA_SECONDS_MAX, STALLED_SECONDS
from logplayer.wording import duration, plural, size

COLUMNS = ("TARGET", "STATE", "INDEX", "LAG", "AGE", "BYTES", "RATE/S", "ETA", "ERROR")


def status_table(status: Mapping[str, Any]) -> str:
    """The player's line, one line per target, and what an operator should know beside them."""
    rows = [COLUMNS, *(_row(target) for target in status["targets"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS) - 1)]
    lines = [headline(status)]
    lines += stuck_lines(status)
    for row in rows:
        lines.append("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False)) + "  " + row[-1])
    lines += trouble_lines(status)
    return "\n".join(line.rstrip() for line in lines)


def headline(status: Mapping[str, Any]) -> str:
    """The player in one line."""
    return (
        f"player {status['player']}, epoch {status['epoch']}, {status['state']}: at entry {status['current']} of "
        f"{status['log_last']}, {status['entries_per_second']:.0f} entries/s, "
        f"all targets have {status['consistent_cut']}"
    )


def stuck_lines(status: Mapping[str, Any]) -> list[str]:
    """Why the log cannot be read, and since when; nothing while it can."""
    if not status.get("log_error"):
        return []
    return [f"{status['log_error']} (for {duration(status.get('stuck_seconds', 0.0))})"]


def trouble_lines(status: Mapping[str, Any]) -> list[str]:
    """Quarantined and unroutable entries."""
    lines = [_quarantined(target) for target in status["targets"] if target.get("quarantined")]
    if status["unroutable"]:
        lost = plural(status["unroutable"], "entry is", "entries are")
        lines.append(f"{lost} unroutable: see the player's log")
    return lines


def target_cells(target: Mapping[str, Any]) -> tuple[str, ...]:
    """A target as the live view shows it: why it lags, and whether it will catch up. As the page, in parts.js."""
    name, state, index, lag, age, _, rate, _, _ = _row(target)
    if is_held(target):
        return name, "HELD", index, lag, age, rate, "waits for you to resume it", ""
    return name, state, index, lag, age, rate, target["whether"], target["why"]


def is_held(target: Mapping[str, Any]) -> bool:
    """Whether an operator has suspended it: that is meant, so it is not trouble."""
    blocked = target.get("blocked")
    return blocked is not None and blocked["kind"] == "HELD"


def _row(target: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        target["target"],
        target["state"],
        str(target["index"]) if target["index"] >= 0 else "?",
        str(target["lag_entries"]),
        f"{target['lag_seconds']:.1f} s",
        size(target["lag_bytes"]),
        f"{target['entries_per_second']:.0f}",
        _eta(target),
        target["error"],
    )


def _eta(target: Mapping[str, Any]) -> str:
    """``-`` if there is nothing to wait for or nothing is known; ``stalled`` if it has been too slow for a while."""
    eta = target["eta_seconds"]
    if eta is not None and eta <= ETA_SECONDS_MAX:
        return duration(eta) if eta else "-"
    moving = target["state"] in ("LIVE", "CATCHING_UP")
    return "stalled" if moving and target.get("state_seconds", 0.0) >= STALLED_SECONDS else "-"


def _quarantined(target: Mapping[str, Any]) -> str:
    count, ahead = target["quarantined"], target["quarantined_ahead"]
    text = f"{target['target']}: {plural(count, 'quarantined entry', 'quarantined entries')}"
    listed = ", ".join(str(index) for index in target["quarantined_indexes"])
    more = ", …" if count > len(target["quarantined_indexes"]) else ""
    return f"{text}{f', {ahead} of them ahead' if ahead else ''}: {listed}{more}"

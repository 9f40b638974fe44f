"""A player's status as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COLUMNS = ("target", "state", "index", "lag", "behind", "bytes", "rate/s", "caught up in", "error")


def status_table(status: Mapping[str, Any]) -> str:
    """The player's line and one line per target."""
    rows = [COLUMNS, *(_row(target) for target in status["targets"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS) - 1)]
    lines = [
        f"player {status['player']} epoch {status['epoch']} {status['state']}: at {status['current']} of "
        f"{status['log_last']}, {status['entries_per_second']:.0f} entries/s, "
        f"all targets have {status['consistent_cut']}"
    ]
    for row in rows:
        lines.append("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False)) + "  " + row[-1])
    if status["unroutable"]:
        lines.append(f"{status['unroutable']} entries are for nobody: see the player's log")
    return "\n".join(line.rstrip() for line in lines)


def _row(target: Mapping[str, Any]) -> tuple[str, ...]:
    eta = target["eta_seconds"]
    return (
        target["target"],
        target["state"],
        str(target["index"]) if target["index"] >= 0 else "?",
        str(target["lag_entries"]),
        f"{target['lag_seconds']:.1f} s",
        _bytes(target["lag_bytes"]),
        f"{target['entries_per_second']:.0f}",
        "will not catch up" if eta is None else f"{eta:.0f} s" if eta else "-",
        target["error"],
    )


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            break
        size /= 1024
    return f"{size:.0f} {unit}"

"""The face of a capture."""

from __future__ import annotations

import time
from typing import Any

from logplayer.admin.app import Face, Facts
from logplayer.admin.exposition import Samples, add_capture
from logplayer.observe.instruments import CaptureCounts, CaptureStage


def capture_face(slot: str, producer: str, tables: tuple[str, ...], counts: CaptureCounts) -> Face:
    """``counts`` are those of the capture with this slot."""

    async def status() -> Facts:
        return {"slot": slot, "producer": producer, "tables": list(tables), **_facts(counts)}

    async def not_ready() -> str:
        if counts.why:
            return counts.why
        return "" if counts.stage is CaptureStage.STREAMING else f"the capture is {counts.stage.value}"

    async def metrics(into: Samples) -> None:
        add_capture(into, await status(), counts)

    return Face("capture", status, not_ready, metrics)


def _facts(counts: CaptureCounts) -> dict[str, Any]:
    lsns = {
        name: _lsn(getattr(counts, name)) for name in ("source_lsn", "received_lsn", "durable_lsn", "confirmed_lsn")
    }
    return {
        "state": counts.stage.value,
        "why": counts.why,
        **lsns,
        "lag_bytes": counts.lag_bytes,
        "lag_seconds": round(counts.lag_seconds(time.time()), 3),
        "unanswered_bytes": counts.unanswered_bytes,
        "transactions": counts.transactions,
        "rows": counts.rows,
        "entries": counts.entries,
        "reconnects": counts.reconnects,
        "stops": dict(counts.stops),
        "snapshot": [
            {"table": table, "rows": rows, "of_about": about} for table, (rows, about) in counts.snapshot.items()
        ],
    }


def _lsn(value: int) -> str:
    return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"

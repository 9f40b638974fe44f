"""What the groups report, put together: one place that shows all of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from logplayer.log.protocol import History
from logplayer.observe.timeline import DECISION, EPOCH, STATE, Timeline
from logplayer.spark.resident.heartbeat import Beat

SILENT_SECONDS = 3.0


class Overview:
    """The last heartbeat of each group. Written by the heartbeat server, read by whoever asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[int, tuple[float, Beat]] = {}
        self.notes: list[str] = []
        self.timeline = Timeline(logging.getLogger("logplayer.spark"))
        self.starts: dict[int, int] = {}  # How often a group was seen on a new worker.

    def note(self, text: str) -> None:
        with self._lock:
            self.notes = [*self.notes[-19:], text]
            self.timeline.say(logging.INFO, DECISION, "%s", text)

    def heard(self, beat: Beat) -> None:
        with self._lock:
            before = self._groups.get(beat.group)
            if before is None or before[1].worker != beat.worker:
                self.starts[beat.group] = self.starts.get(beat.group, 0) + 1
                self.timeline.say(logging.INFO, EPOCH, "group %d is played by %s", beat.group, beat.worker)
            self._tell_changes(before[1].status if before is not None else None, beat.status)
            if beat.status is not None or before is None:
                self._groups[beat.group] = (time.monotonic(), beat)

    def _tell_changes(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        """Each target whose state is another than in the group's last heartbeat."""
        states = {target["target"]: target["state"] for target in (before or {}).get("targets", ())}
        for target in (after or {}).get("targets", ()):
            name, state = target["target"], target["state"]
            if states.get(name) != state:
                level = logging.INFO if state in ("LIVE", "CATCHING_UP") else logging.WARNING
                why = f": {target['error']}" if target["error"] else f", has index {target['index']}"
                self.timeline.say(level, STATE, "target %s: %s%s", name, state, why, target=name, state=state)

    def workers(self) -> dict[int, str]:
        """The worker that plays each group."""
        with self._lock:
            return {group: beat.worker for group, (_, beat) in self._groups.items()}

    def indexes(self) -> dict[str, int]:
        """What each target that was heard of has durably."""
        return {target["target"]: target["index"] for target in self._targets() if target["index"] >= 0}

    def histories(self) -> list[History]:
        """What each group has read: its index, and the chain value there."""
        with self._lock:
            read = [beat.status for _, beat in self._groups.values() if beat.status]
        return [History(status["current"], bytes.fromhex(status["chain"])) for status in read]

    def status(self, groups: int, state: str) -> dict[str, Any]:
        """All groups as one player; ``groups`` holds each of them."""
        with self._lock:
            beats = {number: beat for number, beat in self._groups.items() if number < groups and beat[1].status}
        now = time.monotonic()
        parts = [beat.status for _, beat in beats.values() if beat.status]
        stuck = [part for part in parts if part.get("log_error")]
        silent = [n for n in range(groups) if n not in beats or now - beats[n][0] > SILENT_SECONDS]
        targets = [{**target, "group": part["group"]} for part in parts for target in part["targets"]]
        return {
            "group": "",
            "player": f"spark, {groups} groups" + (f", no word from {silent}" if silent else ""),
            "log_id": next((part["log_id"] for part in parts), ""),
            "epoch": max((part["epoch"] for part in parts), default=0),
            "current": min((part["current"] for part in parts), default=0),
            "chain": min(parts, key=lambda part: part["current"], default={"chain": ""})["chain"],
            "log_first": max((part["log_first"] for part in parts), default=0),
            "log_bytes": max((part["log_bytes"] for part in parts), default=0),
            "trim_point": min((part["trim_point"] for part in parts), default=0),
            "log_last": max((part["log_last"] for part in parts), default=0),
            "consistent_cut": min((part["consistent_cut"] for part in parts), default=0),
            "entries_per_second": sum(part["entries_per_second"] for part in parts) / max(1, len(parts)),
            "unroutable": max((part["unroutable"] for part in parts), default=0),
            "state": "stuck" if stuck and state == "playing" else state,
            "log_error": next((str(part["log_error"]) for part in stuck), ""),
            "stuck_seconds": max((part["stuck_seconds"] for part in stuck), default=0.0),
            "delay_p50_ms": max((part["delay_p50_ms"] for part in parts), default=0.0),
            "delay_p90_ms": max((part["delay_p90_ms"] for part in parts), default=0.0),
            "delay_p99_ms": max((part["delay_p99_ms"] for part in parts), default=0.0),
            "producers": list(dict.fromkeys(name for part in parts for name in part["producers"])),
            "targets": sorted(targets, key=lambda target: str(target["target"])),
            "groups": [
                {
                    "group": number,
                    "worker": beat.worker,
                    "starts": self.starts.get(number, 0),
                    "seconds_since_heard": round(now - at, 1),
                }
                for number, (at, beat) in sorted(beats.items())
            ],
            "notes": list(self.notes),
        }

    def _targets(self) -> list[Mapping[str, Any]]:
        with self._lock:
            return [target for _, beat in self._groups.values() if beat.status for target in beat.status["targets"]]

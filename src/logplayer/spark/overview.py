"""What the groups report, put together: one place that shows all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

SILENT_SECONDS = 3.0


class Overview:
    """The last heartbeat of each group. Written by the heartbeat server, read by whoever asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._job = ""
        self._groups: dict[int, tuple[float, Mapping[str, Any]]] = {}
        self.notes: list[str] = []
        self.starts: dict[int, int] = {}  # How often a group was seen on a new worker.

    def begin(self, job: str) -> None:
        """A new job: what the groups of the one before said is kept until they are heard again."""
        with self._lock:
            self._job = job

    def note(self, text: str) -> None:
        with self._lock:
            self.notes = [*self.notes[-19:], text]

    def heard(self, group: int, beat: Mapping[str, Any]) -> None:
        with self._lock:
            before = self._groups.get(group)
            if before is None or before[1].get("worker") != beat.get("worker"):
                self.starts[group] = self.starts.get(group, 0) + 1
            if beat.get("status") is not None or before is None:
                self._groups[group] = (time.monotonic(), beat)

    def workers(self) -> dict[int, str]:
        """The worker that plays each group."""
        with self._lock:
            return {group: str(beat.get("worker", "")) for group, (_, beat) in self._groups.items()}

    def indexes(self) -> dict[str, int]:
        """What each target that was heard of has durably."""
        return {target["target"]: target["index"] for target in self._targets() if target["index"] >= 0}

    def status(self, groups: int, state: str) -> dict[str, Any]:
        """All groups as one player; ``groups`` holds each of them."""
        with self._lock:
            beats = {number: beat for number, beat in self._groups.items() if number < groups and beat[1].get("status")}
        now = time.monotonic()
        parts = [beat["status"] for _, beat in beats.values()]
        silent = [n for n in range(groups) if n not in beats or now - beats[n][0] > SILENT_SECONDS]
        targets = [{**target, "group": part["group"]} for part in parts for target in part["targets"]]
        return {
            "group": "",
            "player": f"spark, {groups} groups" + (f", no word from {silent}" if silent else ""),
            "epoch": max((part["epoch"] for part in parts), default=0),
            "current": min((part["current"] for part in parts), default=0),
            "log_last": max((part["log_last"] for part in parts), default=0),
            "consistent_cut": min((part["consistent_cut"] for part in parts), default=0),
            "entries_per_second": sum(part["entries_per_second"] for part in parts) / max(1, len(parts)),
            "unroutable": max((part["unroutable"] for part in parts), default=0),
            "state": state,
            "targets": sorted(targets, key=lambda target: str(target["target"])),
            "groups": [
                {
                    "group": number,
                    "worker": beat.get("worker", ""),
                    "starts": self.starts.get(number, 0),
                    "seconds_since_heard": round(now - at, 1),
                }
                for number, (at, beat) in sorted(beats.items())
            ],
            "notes": list(self.notes),
        }

    def _targets(self) -> list[Mapping[str, Any]]:
        with self._lock:
            return [
                target
                for _, beat in self._groups.values()
                if beat.get("status")
                for target in beat["status"]["targets"]
            ]

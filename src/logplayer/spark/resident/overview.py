"""What the groups report, put together: one place that shows all of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from logplayer.log.protocol import History
from logplayer.observe.timeline import DECISION, EPOCH, STATE, Timeline
from logplayer.spark.resident.counts import Tally
from logplayer.spark.resident.group_run import GroupRun, GroupState
from logplayer.spark.resident.heartbeat import Beat
from logplayer.spark.resident.silence import silent_row, unheard_row, why_silent
from logplayer.spark.resident.told import Hearing

if TYPE_CHECKING:
    from logplayer.spark.resident.machine import Machine


class Overview:
    """The last heartbeat of each group. Written by the heartbeat server, read by whoever asks."""

    def __init__(self, group: str = "spark") -> None:
        self.group = group
        self._lock = threading.Lock()
        self._groups: dict[int, Beat] = {}
        self.notes: list[str] = []
        self.timeline = Timeline(logging.getLogger("logplayer.spark"))
        self.starts: dict[int, int] = {}  # How often a group was seen on a new worker.
        self.tally = Tally()
        self._hearing = Hearing()

    def note(self, text: str) -> None:
        with self._lock:
            self.notes = [*self.notes[-19:], text]
            self.timeline.say(logging.INFO, DECISION, "%s", text)

    def heard(self, beat: Beat) -> None:
        if beat.counted is not None:
            self.tally.take(beat.group, beat.counted)
        with self._lock:
            before = self._groups.get(beat.group)
            if before is None or before.worker != beat.worker:
                self.starts[beat.group] = self.starts.get(beat.group, 0) + 1
                text = "group %d is played by %s"
                self.timeline.say(logging.INFO, EPOCH, text, beat.group, beat.worker, **self._about(beat))
            self._tell_changes(before.status if before is not None else None, beat)
            if beat.said is not None:
                self._hearing.take(beat.group, beat.said, self.timeline)
            if beat.status is not None or before is None:
                self._groups[beat.group] = beat
            elif beat.worker != before.worker:
                self._groups[beat.group] = replace(before, worker=beat.worker)  # What it knew of targets stays.

    def _about(self, beat: Beat) -> dict[str, Any]:
        """What lines about a group have as fields."""
        status = beat.status or {}
        known = {key: status[key] for key in ("log_id", "epoch") if key in status}
        return {"group": f"{self.group}/{beat.group}", **known}

    def _tell_changes(self, before: Mapping[str, Any] | None, beat: Beat) -> None:
        """Each target whose state is another than in the group's last heartbeat."""
        states = {target["target"]: target["state"] for target in (before or {}).get("targets", ())}
        for target in (beat.status or {}).get("targets", ()):
            name, state = target["target"], target["state"]
            if states.get(name) != state:
                level = logging.INFO if state in ("LIVE", "CATCHING_UP") else logging.WARNING
                why = f": {target['error']}" if target["error"] else f", has index {target['index']}"
                facts = {**self._about(beat), "target": name, "state": state, "index": target["index"]}
                self.timeline.say(level, STATE, "target %s: %s%s", name, state, why, **facts)

    def workers(self) -> dict[int, str]:
        """The worker that plays each group."""
        with self._lock:
            return {group: beat.worker for group, beat in self._groups.items()}

    def indexes(self) -> dict[str, int]:
        """What each target that was heard of has durably."""
        return {target["target"]: target["index"] for target in self._targets() if target["index"] >= 0}

    def histories(self) -> list[History]:
        """What each group has read: its index, and the chain value there."""
        with self._lock:
            read = [beat.status for beat in self._groups.values() if beat.status]
        return [History(status["current"], bytes.fromhex(status["chain"])) for status in read]

    def status(self, machine: Machine, now: int, log_last: int) -> dict[str, Any]:
        """All groups as one player; ``groups`` holds each of them. ``now`` is in the machine's milliseconds."""
        with self._lock:
            beats = {number: beat for number, beat in self._groups.items() if beat.status}
        parts = [beat.status for number, beat in beats.items() if number < machine.plan.groups and beat.status]
        stuck = [part for part in parts if part.get("log_error")]
        last = max([log_last, *(part["log_last"] for part in parts)])
        silent = [number for number, run in enumerate(machine.runs) if run.state(now) is not GroupState.PLAYING]
        targets = [self._target(name, machine, beats, now, last) for name in sorted(machine.members)]
        return {
            "group": "",
            "player": f"spark, {machine.plan.groups} groups" + (f", no word from {silent}" if silent else ""),
            "log_id": next((part["log_id"] for part in parts), ""),
            "epoch": max((part["epoch"] for part in parts), default=0),
            "current": min((part["current"] for part in parts), default=0),
            "chain": min(parts, key=lambda part: part["current"], default={"chain": ""})["chain"],
            "log_first": max((part["log_first"] for part in parts), default=0),
            "log_bytes": max((part["log_bytes"] for part in parts), default=0),
            "trim_point": min((part["trim_point"] for part in parts), default=0),
            "log_last": last,
            "consistent_cut": min((part["consistent_cut"] for part in parts), default=0),
            "entries_per_second": sum(part["entries_per_second"] for part in parts) / max(1, len(parts)),
            "unroutable": max((part["unroutable"] for part in parts), default=0),
            "state": self._state(machine, len(silent), bool(stuck)),
            "log_error": next((str(part["log_error"]) for part in stuck), ""),
            "stuck_seconds": max((part["stuck_seconds"] for part in stuck), default=0.0),
            "delay_p50_ms": max((part["delay_p50_ms"] for part in parts), default=0.0),
            "delay_p90_ms": max((part["delay_p90_ms"] for part in parts), default=0.0),
            "delay_p99_ms": max((part["delay_p99_ms"] for part in parts), default=0.0),
            "producers": list(dict.fromkeys(name for part in parts for name in part["producers"])),
            "targets": targets,
            "groups": [self._group(number, run, beats.get(number), now) for number, run in enumerate(machine.runs)],
            "slots": sum(machine.executors.values()),
            "notes": list(self.notes),
        }

    def _state(self, machine: Machine, silent: int, stuck: bool) -> str:
        if machine.stopping:
            return "stopping"
        if not machine.application:
            return "standby"
        if stuck:
            return "stuck"
        if silent < len(machine.runs):
            return "playing"
        return "silent" if any(run.has_played for run in machine.runs) else "starting"

    def _group(self, number: int, run: GroupRun, beat: Beat | None, now: int) -> dict[str, Any]:
        silence = run.silence_ms(now)
        return {
            "group": number,
            "state": run.state(now).value,
            "worker": beat.worker if beat is not None else "",
            "starts": self.starts.get(number, 0),
            "seconds_since_heard": None if silence is None else round(silence / 1000, 1),
        }

    def _target(
        self, name: str, machine: Machine, beats: Mapping[int, Beat], now: int, log_last: int
    ) -> dict[str, Any]:
        """The row of a target: its player's own, or if nobody is heard to play it, what is known."""
        number = machine.plan.group_of(name)
        run = machine.runs[number]
        group = {"group": f"{self.group}/{number}"}
        why = why_silent(number, run, now)
        for speaker in (number, *beats):  # After the targets were dealt out again, another group may know it.
            status = beats[speaker].status if speaker in beats else None
            for row in status["targets"] if status is not None else ():
                if row["target"] == name and status is not None:
                    if speaker == number and not why:
                        return {**row, **group}
                    had = status["current"] if row["state"] == "LIVE" and row["lag_entries"] == 0 else -1
                    silence = run.silence_ms(now) or 0
                    return silent_row(row, had, log_last, silence, why or "its player starts") | group
        return unheard_row(name, why or "its player starts") | group

    def _targets(self) -> list[Mapping[str, Any]]:
        with self._lock:
            return [target for beat in self._groups.values() if beat.status for target in beat.status["targets"]]

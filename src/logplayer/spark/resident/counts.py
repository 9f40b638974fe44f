"""What the players of all groups have counted, as one: for ``/metrics`` of the driver.

A group sends its counts with each heartbeat. The driver adds them up and exposes the sums, without a label for the
group: the series are those of a player in one process, so the same alert rules and panels read both. A worker that is
replaced begins at zero, which in a sum would look like a jump; so what ended players had counted stays in the sum, and
no series ever falls. Every group reads the whole log: ``entries`` are those that all main streams dispatched, and
``bytes`` are those of the one that is furthest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from logplayer.errors import Malformed
from logplayer.observe.instruments import BOUNDS, Delays, PlayerCounts

SUMS = ("batches", "entries", "trims")
DELAYS = ("acks", "dispatch", "delivery")
LABELS_MAX = 10_000
LABEL_CHARS_MAX = 500
COUNT_MAX = 2**63


class Counted(NamedTuple):
    """What one player has counted since it began."""

    player: str  # Another one has counted from zero on.
    counts: PlayerCounts


def as_json(counted: Counted) -> dict[str, Any]:
    """For a heartbeat."""
    player, counts = counted
    return {
        "player": player,
        **{name: getattr(counts, name) for name in (*SUMS, "bytes")},
        **{name: {"counts": getattr(counts, name).counts, "seconds": getattr(counts, name).seconds} for name in DELAYS},
        "refusals": [[target, reason, count] for (target, reason), count in counts.refusals.items()],
        "losses": [[target, count] for target, count in counts.losses.items()],
    }


def read_counted(value: object) -> Counted:
    """What :func:`as_json` has made. Raises Malformed."""
    if not isinstance(value, dict):
        raise Malformed("counts are not an object")
    counts = PlayerCounts()
    for name in (*SUMS, "bytes"):
        setattr(counts, name, _count(value.get(name), name))
    for name in DELAYS:
        _read_delays(getattr(counts, name), value.get(name), name)
    for target, reason, count in _rows(value, "refusals", 3):
        counts.refusals[_label(target), _label(reason)] = _count(count, "refusals")
    for target, count in _rows(value, "losses", 2):
        counts.losses[_label(target)] = _count(count, "losses")
    return Counted(_label(value.get("player")), counts)


class Tally:
    """The sum over all players that an application has had."""

    def __init__(self) -> None:
        self._ended = PlayerCounts()
        self._newest: dict[int, Counted] = {}

    def take(self, group: int, counted: Counted) -> None:
        """The newest counts of the group's player."""
        before = self._newest.get(group)
        if before is not None and before.player != counted.player:
            _add(self._ended, before.counts)
        self._newest[group] = counted

    def total(self) -> PlayerCounts:
        """All of them."""
        total = PlayerCounts()
        _add(total, self._ended)
        for counted in self._newest.values():
            _add(total, counted.counts)
        return total


def _add(into: PlayerCounts, more: PlayerCounts) -> None:
    for name in SUMS:
        setattr(into, name, getattr(into, name) + getattr(more, name))
    into.bytes = max(into.bytes, more.bytes)
    for name in DELAYS:
        delays, added = getattr(into, name), getattr(more, name)
        delays.counts = [one + other for one, other in zip(delays.counts, added.counts, strict=True)]
        delays.seconds += added.seconds
    into.refusals.update(more.refusals)
    into.losses.update(more.losses)


def _read_delays(into: Delays, value: object, name: str) -> None:
    counts = value.get("counts") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(counts, list) or len(counts) != len(BOUNDS) + 1:
        raise Malformed(f"counts.{name} is not a histogram of this version")
    seconds = value.get("seconds")
    if type(seconds) not in (int, float) or not 0 <= seconds < COUNT_MAX:  # type: ignore[operator]
        raise Malformed(f"counts.{name}.seconds is not a number from 0 on")
    into.counts = [_count(count, name) for count in counts]
    into.seconds = float(seconds)  # type: ignore[arg-type]


def _rows(value: Mapping[str, Any], name: str, width: int) -> list[list[Any]]:
    rows = value.get(name)
    if not isinstance(rows, list) or len(rows) > LABELS_MAX:
        raise Malformed(f"counts.{name} is not a list of at most {LABELS_MAX} rows")
    if not all(isinstance(row, list) and len(row) == width for row in rows):
        raise Malformed(f"counts.{name} has rows that are not {width} values")
    return rows


def _label(value: object) -> str:
    if not isinstance(value, str) or len(value) > LABEL_CHARS_MAX:
        raise Malformed("a name in the counts is not text")
    return value


def _count(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value < COUNT_MAX:
        raise Malformed(f"counts.{name} is not a count")
    return value

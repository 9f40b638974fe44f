"""What the players of the groups say, on its way into the driver's time line: sessions, fences, faults, decisions.

A heartbeat brings the items that the driver has not answered yet, some at a time. One that was heard comes again if its
answer got lost, so the driver takes each number of a player once. It tells takeovers and states itself, by what it
hears: nobody else could say that a player is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from logplayer.errors import Malformed
from logplayer.observe.timeline import DECISION, FAULT, FENCE, LOG, SESSION, Timeline

ITEMS_MAX = 50  # In one heartbeat.
TEXT_CHARS_MAX = 4000
KINDS = frozenset((DECISION, FAULT, FENCE, LOG, SESSION))
LEVELS = frozenset(("debug", "info", "warning", "error", "critical"))
FACTS: Mapping[str, type] = {"target": str, "state": str, "group": str, "log_id": str, "index": int, "epoch": int}


class Said(NamedTuple):
    """Some items of a player's time line, in their order."""

    player: str  # Another one begins at 1 again.
    items: tuple[Mapping[str, Any], ...]


class Telling:
    """At the player: what the driver has heard of it."""

    def __init__(self) -> None:
        self._through = 0
        self._sent = 0

    def next(self, timeline: Timeline) -> dict[str, Any]:
        """For a heartbeat: what comes after everything that was heard."""
        items = timeline.since(self._through)[:ITEMS_MAX]
        self._sent = items[-1]["number"] if items else self._through
        return {"player": timeline.name, "items": items}

    def heard(self) -> None:
        """The driver has answered."""
        self._through = self._sent


class Hearing:
    """At the driver: everything once, whatever comes again."""

    def __init__(self) -> None:
        self._through: dict[int, tuple[str, int]] = {}

    def take(self, group: int, said: Said, timeline: Timeline) -> None:
        """Append what is new and for everybody."""
        player, through = self._through.get(group, ("", 0))
        if player != said.player:
            through = 0
        for item in said.items:
            if item["number"] > through:
                through = item["number"]
                if item["kind"] in KINDS:
                    timeline.take(item)
        self._through[group] = said.player, through


def read_said(value: object, is_mine: Callable[[str], bool]) -> Said:
    """What :meth:`Telling.next` has made, less what is about the targets of other groups. Raises Malformed."""
    if not isinstance(value, dict) or not isinstance(value.get("player"), str) or len(value["player"]) > 100:
        raise Malformed("timeline is not an object with a player")
    items = value.get("items")
    if not isinstance(items, list) or len(items) > ITEMS_MAX:
        raise Malformed(f"timeline.items is not a list of at most {ITEMS_MAX}")
    read = [_read_item(item) for item in items]
    mine = [item for item in read if "target" not in item or is_mine(item["target"])]
    return Said(value["player"], tuple(mine))


def _read_item(value: object) -> dict[str, Any]:
    """Only the fields that an item has; the page shows nothing else."""
    if not isinstance(value, dict):
        raise Malformed("an item of the timeline is not an object")
    number, at, text = value.get("number"), value.get("at"), value.get("text")
    if type(number) is not int or not 0 < number < 2**63:
        raise Malformed("an item's number is not a number from 1 on")
    if type(at) not in (int, float) or not 0 <= at < 2**40:  # type: ignore[operator]
        raise Malformed("an item's time is not a number of seconds")
    if not isinstance(text, str) or not isinstance(value.get("kind"), str) or value.get("level") not in LEVELS:
        raise Malformed("an item of the timeline has no text, kind and level")
    facts = {name: value[name] for name, kind in FACTS.items() if type(value.get(name)) is kind}
    known = {"number": number, "at": at, "level": value["level"], "kind": value["kind"][:20]}
    return {**known, "text": text[:TEXT_CHARS_MAX], **facts}

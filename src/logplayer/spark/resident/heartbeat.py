"""Heartbeats as the driver takes them: whatever arrives at its port is looked at before anything is done with it.

The driver shows what the groups say, and trims by it. So every field has the type and the range that a player's status
has, and a group speaks for its own targets only.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from logplayer.core.chain import VALUE_BYTES
from logplayer.errors import Malformed
from logplayer.player.ended import Ended
from logplayer.player.status import PlayerStatus
from logplayer.spark.resident.counts import Counted, read_counted
from logplayer.spark.resident.groups import GroupPlan
from logplayer.spark.resident.told import Said, read_said

# What decisions rest on; -1 is the index of a target that was not heard yet. The others are only shown.
INDEXES = frozenset(("index", "epoch", "current", "log_last", "consistent_cut"))
_CHAIN = re.compile(rf"([0-9a-f]{{{2 * VALUE_BYTES}}})?")


@dataclass(frozen=True, slots=True)
class Beat:
    """What a group says of itself. ``status`` is None while its player starts."""

    group: int
    worker: str
    status: Mapping[str, Any] | None
    ended: Ended | None
    counted: Counted | None = None
    said: Said | None = None


def read_beat(question: Mapping[str, Any], plan: GroupPlan, members: Collection[str]) -> Beat:
    """The heartbeat; rows of targets that are not members, or another group's, are left out. Raises Malformed."""
    group = whole_number(question, "group", plan.groups)
    status = question.get("status")
    if status is not None:
        check(status, PlayerStatus, "status")
        mine = [row for row in status["targets"] if row["target"] in members and plan.group_of(row["target"]) == group]
        status = {**status, "targets": mine}
    ended = Ended.from_json(question["ended"]) if question.get("ended") is not None else None
    counted = read_counted(question["counts"]) if question.get("counts") is not None else None
    said = None
    if question.get("timeline") is not None:
        said = read_said(question["timeline"], lambda target: plan.group_of(target) == group)
    return Beat(group, _text(question, "worker"), status, ended, counted, said)


def whole_number(question: Mapping[str, Any], name: str, below: int = 2**63) -> int:
    """The number ``name`` of a question, from 0 on and less than ``below``."""
    value = question.get(name)
    if type(value) is not int or not 0 <= value < below:
        raise Malformed(f"{name} is not a number from 0 to {below - 1}")
    return value


def _text(question: Mapping[str, Any], name: str) -> str:
    value = question.get(name, "")
    if not isinstance(value, str):
        raise Malformed(f"{name} is not text")
    return value


def check(value: Any, kind: Any, place: str) -> None:
    """Raise Malformed unless ``value``, which came as JSON, has the shape of ``kind``."""
    options = get_args(kind) if get_origin(kind) is types.UnionType else (kind,)
    if value is None and type(None) in options:
        return
    [kind] = [option for option in options if option is not type(None)]
    if is_dataclass(kind):
        _check_fields(value, kind, place)
    elif get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise Malformed(f"{place} is not a list")
        for item in value:
            check(item, get_args(kind)[0], place)
    elif not _fits(value, kind):
        raise Malformed(f"{place} is not {'text' if kind is str else 'a number that it can be'}")


def _check_fields(value: Any, kind: Any, place: str) -> None:
    if not isinstance(value, dict):
        raise Malformed(f"{place} is not an object")
    for field, hint in _hints(kind).items():
        if field not in value:
            raise Malformed(f"{place} has no {field}")
        check(value[field], hint, f"{place}.{field}")
        if field in INDEXES and value[field] < -1:
            raise Malformed(f"{place}.{field} is {value[field]}, and no index is negative")
        if field == "chain" and not _CHAIN.fullmatch(value[field]):
            raise Malformed(f"{place}.{field} is not a chain value in hexadecimal")


def _fits(value: Any, kind: Any) -> bool:
    if kind is str:
        return isinstance(value, str)
    small = type(value) is int and -(2**63) <= value < 2**63
    return small if kind is int else kind is float and (small or (type(value) is float and math.isfinite(value)))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}

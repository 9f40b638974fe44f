"""Turns a recorded trace into the TLA+ module ``TraceData`` that ``spec/TraceLogPlayer.tla`` replays.

A trace is lines of JSON. The first is the config line; each other line is one step of one node, a player
(``P<epoch>``) or a target (``T<name>``), and only the order of each node's own lines matters::

    {"ev": "config", "entries": [[5, ["a"]], [7, ["a", "b"]]], "targets": ["a", "b"],
     "queue_count_max": 4, "window_batches_max": 2, "batch_count_max": 2}
    {"node": "P5", "ev": "open", "target": "a", "epoch": 5, "term": 1}
    {"node": "Ta", "ev": "accept", "target": "a", "epoch": 5, "term": 1, "index": 0}

TLC's numbers have 32 bits and its log has no gaps, so an index becomes its place among all indexes that the log
or any line names. Thereby two indexes stay different and in order, and one that holds no entry stays empty.
Epochs and terms are numbered in the same way, and targets are renamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logplayer.errors import UserError

TraceLine = Mapping[str, Any]

_SESSION = ("target", "epoch", "term")
# What each kind of line holds besides its node.
PLAYER_FIELDS: dict[str, tuple[str, ...]] = {
    "start": ("epoch", "current"),
    "open": _SESSION,
    "opened": (*_SESSION, "index"),
    "dispatch": ("epoch", "index", "demoted"),
    "jump": ("epoch", "current", "demoted"),
    "read": (*_SESSION, "after", "through"),
    "join": _SESSION,
    "send": (*_SESSION, "prev", "to", "indexes"),
    "ack": (*_SESSION, "index"),
    "suspend": _SESSION,
    "stepdown": ("epoch",),
    "trim": ("epoch", "to"),
}
TARGET_FIELDS: dict[str, tuple[str, ...]] = {
    "accept": (*_SESSION, "index"),
    "refuse": _SESSION,
    "apply": (*_SESSION, "index"),
    "reject": _SESSION,
    "crash": ("target", "index"),
}
FIELDS = PLAYER_FIELDS | TARGET_FIELDS
CONFIG_NUMBERS = ("queue_count_max", "window_batches_max", "batch_count_max")
_INDEXES = frozenset({"current", "index", "after", "through", "prev", "to"})


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace whose form is right; whether it tells a legal run is for TLC to say."""

    config: TraceLine
    nodes: dict[str, list[TraceLine]]  # In the order in which the nodes first appear.

    @property
    def total(self) -> int:
        return sum(map(len, self.nodes.values()))


def read_lines(lines: Iterable[str | TraceLine]) -> list[TraceLine]:
    """Lines of JSON, or what they stand for, as mappings; blank lines are left out."""
    found: list[TraceLine] = []
    for number, line in enumerate(lines, 1):
        if isinstance(line, str):
            if not line.strip():
                continue
            try:
                line = json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"trace line {number} is not JSON: {error}") from None
        if not isinstance(line, Mapping):
            raise UserError(f"trace line {number} is not a JSON object: {line!r}")
        found.append(line)
    return found


def parse(lines: Iterable[str | TraceLine]) -> Trace:
    """Check the form of a trace: one config line first, and in each line the fields that its kind needs."""
    rows = read_lines(lines)
    if not rows or rows[0].get("ev") != "config":
        raise UserError("a trace begins with its config line; the first line here is another")
    config = rows[0]
    _check_config(config)
    nodes: dict[str, list[TraceLine]] = {}
    for number, row in enumerate(rows[1:], 2):
        _check_row(number, row, config)
        nodes.setdefault(row["node"], []).append(row)
    return Trace(config, nodes)


def _check_config(config: TraceLine) -> None:
    for name in ("entries", "targets", *CONFIG_NUMBERS):
        if name not in config:
            raise UserError(f"the trace's config line lacks {name!r}")
    for name in CONFIG_NUMBERS:
        if not isinstance(config[name], int) or config[name] < 1:
            raise UserError(f"{name} in the trace's config line is {config[name]!r}; it must be at least 1")
    last = 0
    for index, names in config["entries"]:
        if index <= last:
            raise UserError(f"the entries in the trace's config line do not rise: {index} follows {last}")
        unknown = set(names) - set(config["targets"])
        if unknown:
            raise UserError(f"entry {index} in the trace's config line is for {sorted(unknown)}, not among its targets")
        last = index


def _check_row(number: int, row: TraceLine, config: TraceLine) -> None:
    kind = row.get("ev")
    if kind not in FIELDS:
        raise UserError(f"trace line {number} has ev {kind!r}; known are {', '.join(FIELDS)}")
    missing = [name for name in ("node", *FIELDS[kind]) if name not in row]
    if missing:
        raise UserError(f"trace line {number} ({kind}) lacks {', '.join(missing)}")
    for name in FIELDS[kind]:
        value = row[name]
        items = value if name in ("indexes", "demoted") else [value]
        if not isinstance(items, list | tuple) or not all(_well_typed(name, item) for item in items):
            raise UserError(f"trace line {number} ({kind}) has {name} {value!r}")
    named = {row["target"]} if "target" in row else set(row.get("demoted", ()))
    if not named <= set(config["targets"]):
        raise UserError(f"trace line {number} ({kind}) names {sorted(named)}; the config line's targets are others")
    owner = f"P{row['epoch']}" if kind in PLAYER_FIELDS else f"T{row['target']}"
    if row["node"] != owner:
        raise UserError(f"trace line {number} ({kind}) is of node {row['node']!r} and tells of {owner!r}")


def _well_typed(name: str, item: object) -> bool:
    if name in ("target", "demoted"):
        return isinstance(item, str)
    return isinstance(item, int) and not isinstance(item, bool) and item >= 0


class _Numbering:
    """Numbers a set of rising values 1, 2, ...; 0 stays 0."""

    def __init__(self, values: Iterable[int]) -> None:
        self.values = sorted(set(values) - {0})
        self._places = {value: place for place, value in enumerate(self.values, 1)}

    def __getitem__(self, value: int) -> int:
        return self._places[value] if value else 0


def module_text(trace: Trace) -> str:
    """The module ``TraceData``: the log, the limits, and the lines of each node."""
    config, rows = trace.config, [row for lines in trace.nodes.values() for row in lines]
    entries = dict(config["entries"])
    indexes = _Numbering([*entries, *_named_indexes(rows)])
    epochs = _Numbering(row["epoch"] for row in rows if "epoch" in row)
    terms = _Numbering(row["term"] for row in rows if "term" in row)
    names = {name: f"t{number}" for number, name in enumerate(config["targets"], 1)}
    translate = _Translator(indexes, epochs, terms, names)
    dest = [_set(_text(names[name]) for name in entries.get(index, ())) for index in indexes.values]
    absent = [str(indexes[index]) for index in indexes.values if index not in entries]
    nodes = [_sequence((translate.row(row) for row in lines), ",\n    ") for lines in trace.nodes.values()]
    numbers = [f"Trace_{name} == {config[name]}" for name in CONFIG_NUMBERS]
    return "\n".join(
        [
            "---- MODULE TraceData ----",
            "EXTENDS Integers",
            f"TracePlayers == 1..{max(1, len(epochs.values))}",
            f"TraceTargets == {_set(map(_text, names.values()))}",
            f"TraceDest == {_sequence(dest, ', ')}",
            f"TraceAbsent == {_set(absent)}",
            *numbers,
            f"Lines == {_sequence(nodes, ',' + chr(10))}",
            "====",
            "",
        ]
    )


def _named_indexes(rows: Iterable[TraceLine]) -> Iterable[int]:
    for row in rows:
        for name in FIELDS[row["ev"]]:
            if name in _INDEXES:
                yield row[name]
            elif name == "indexes":
                yield from row[name]


@dataclass(frozen=True, slots=True)
class _Translator:
    indexes: _Numbering
    epochs: _Numbering
    terms: _Numbering
    names: Mapping[str, str]

    def row(self, row: TraceLine) -> str:
        facts = [f"ev |-> {_text(row['ev'])}"]
        facts += [f"{name} |-> {self._value(name, row[name])}" for name in FIELDS[row["ev"]]]
        return "[" + ", ".join(facts) + "]"

    def _value(self, name: str, value: Any) -> str:
        if name == "target":
            return _text(self.names[value])
        if name == "demoted":
            return _set(_text(self.names[item]) for item in value)
        if name == "indexes":
            return _sequence((str(self.indexes[item]) for item in value), ", ")
        numbering = {"epoch": self.epochs, "term": self.terms}.get(name, self.indexes)
        return str(numbering[value])


def _text(value: str) -> str:
    return f'"{value}"'


def _set(items: Iterable[str]) -> str:
    return "{" + ", ".join(items) + "}"


def _sequence(items: Iterable[str] | Sequence[str], between: str) -> str:
    return "<<" + between.join(items) + ">>"

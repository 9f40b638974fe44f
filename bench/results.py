"""From the raw material of a run to its result, and to the ratios that the claims are made of."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench import percentiles
from bench.raw import Raw
from logplayer.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = dict[str, Any]
Found = tuple[float, str]  # A ratio, and at which rate.
STEADY = 2.0  # A delay that more than doubles within a run measures a backlog, one that halves a cold start.
QUICK = 0.25  # A delay of more than this share of a turn may be a backlog from its first moment on.
REACHED = 0.9  # Who asks for less than this share of the rate, because it waits for itself, is measured at its limit.
ROUNDS_MIN = 3  # Of fewer, the median is no more robust than the mean.
SUMMARY = "summary.json"


class Ratio(NamedTuple):
    """A claim: what is divided by what, and what it should be."""

    name: str
    text: str
    goal: str
    holds: Callable[[float], bool]
    find: Callable[[Result], Found]


class Absent(Exception):
    """A ratio cannot be computed from this run; the message says why."""


def build(raw: Raw, spark: SparkSession) -> Result:
    """Everything that a run has found."""
    pieces = [piece | {"commit": piece["versions"].get("commit", "")} for piece in raw.pieces()]
    result: Result = {
        "run": raw.run,
        "machine": pieces[-1]["machine"] if pieces else {},
        "versions": pieces[-1]["versions"] if pieces else {},
        "pieces": [
            {key: value for key, value in piece.items() if key not in ("machine", "versions")} for piece in pieces
        ],
        "guarantees": {name: text for piece in pieces for name, text in piece.get("guarantees", {}).items()},
        "delays": [],
        "backlog": [],
        "measures": raw.measures(),
        "missing": raw.missing(),
        "failed": {step: why for piece in pieces for step, why in piece.get("failed", {}).items()},
    }
    frame = percentiles.load(spark, raw.samples_folder)
    if frame is not None:
        frame = frame.cache()
        result["delays"] = percentiles.delays(frame)
        result["backlog"] = percentiles.over_time(frame, "backlog")
        frame.unpersist()
    return result


def write(result: Result, raw: Raw, out: Path) -> Path:
    """The result, its profiles, and the summary of its ratios."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{raw.run}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    for profile in sorted(raw.folder.glob("profile-*.txt")):
        shutil.copy(profile, out / f"{raw.run}.{profile.name}")
    found, missing = _ratios(result)
    summary = {
        "run": raw.run,
        "result": path.name,
        "ratios": {name: value for name, (value, _) in found.items()},
        "rates": {name: rate for name, (_, rate) in found.items()},
        "missing": missing,
        "goals": GOALS,
    }
    (out / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")
    return path


def read(folder: Path) -> tuple[Result, dict[str, Any]]:
    """The result that the summary in a folder is about, and the summary."""
    path = folder / SUMMARY
    if not path.exists():
        raise UserError(f"{folder} holds no {SUMMARY}: run `python -m bench run --out {folder}` first")
    summary = json.loads(path.read_text())
    return json.loads((folder / summary["result"]).read_text()), summary


# --- Ratios ---


def ratios_of(result: Result) -> tuple[dict[str, float], dict[str, str]]:
    """What can be computed, and why the rest cannot."""
    found, missing = _ratios(result)
    return {name: value for name, (value, _) in found.items()}, missing


def _ratios(result: Result) -> tuple[dict[str, Found], dict[str, str]]:
    found, missing = {}, {}
    for ratio in RATIOS:
        try:
            value, rate = ratio.find(result)
            found[ratio.name] = round(value, 3), rate
        except Absent as absent:
            missing[ratio.name] = str(absent)
    return found, missing


def kept_up(row: Result) -> bool:
    """Whether a contestant was measured at the rate that was wanted: not at its own limit, with a backlog, or cold."""
    reached = statistics.median(part["reached_rate"] or 0 for part in row["rounds"])
    steady = row["growth"] is None or 1 / STEADY <= row["growth"] <= STEADY
    seconds = statistics.median(part["seconds"] for part in row["rounds"])
    return bool(steady and row["apply"]["p90"] / 1000 <= QUICK * seconds and reached >= REACHED * row["rate"])


def delays_of(result: Result, contestant: str, experiment: str, targets: int, keys: int = 10) -> dict[float, Result]:
    """The rows of one contestant and workload, by rate."""
    wanted = (experiment, contestant, targets, keys)
    found = {
        row["rate"]: row
        for row in result["delays"]
        if (row["experiment"], row["contestant"], row["targets"], row["keys"]) == wanted
    }
    if not found:
        why = result["missing"].get(contestant, "this run did not measure it")
        raise Absent(f"{contestant} with {targets} targets: {why}")
    return found


def pair_of(
    result: Result, one: str, other: str, experiment: str, targets: int, keys: int = 10
) -> tuple[Result, Result]:
    """The rows of two contestants at the highest rate with which both kept up."""
    above = delays_of(result, one, experiment, targets, keys)
    below = delays_of(result, other, experiment, targets, keys)
    for rate in sorted(above.keys() & below.keys(), reverse=True):
        if kept_up(above[rate]) and kept_up(below[rate]):
            return above[rate], below[rate]
    tried = ", ".join(f"{rate:g}" for rate in sorted(above.keys() | below.keys()))
    raise Absent(f"{one} and {other} with {targets} targets: at {tried}/s they did not both keep up; try a lower rate")


def measured(result: Result, experiment: str, contestant: str, what: str, **point: Any) -> list[float]:
    """The values of one figure, of all rounds."""
    return [
        line[what]
        for line in result["measures"]
        if line["experiment"] == experiment
        and line["contestant"] == contestant
        and what in line
        and all(line.get(key) == value for key, value in point.items())
    ]


def _delays(theirs: str, ours: str, targets: int, kind: str, share: str) -> Callable[[Result], Found]:
    """One delay of one contestant over another's, both of the experiment ``targets`` at 10 KB."""

    def find(result: Result) -> Found:
        above, below = pair_of(result, theirs, ours, "targets", targets)
        return float(above[kind][share] / below[kind][share]), f"{above['rate']:g} transactions/s"

    return find


def _typical(ours: str, theirs: str, share: str) -> Callable[[Result], Found]:
    """One player delay of one contestant over another's, at 20 targets and 10 KB: each the median of its rounds'.

    Of the rounds', and not of all samples: now and then the log stands still for some tenths of a second, and the round
    that it happens in would decide the p99 of a contestant.
    """

    def find(result: Result) -> Found:
        above, below = pair_of(result, ours, theirs, "targets", 20)
        fewest = min(len(above["rounds"]), len(below["rounds"]))
        if fewest < ROUNDS_MIN:
            raise Absent(f"{ours} and {theirs} with 20 targets: {fewest} rounds; a typical one needs {ROUNDS_MIN}")
        value, by = (statistics.median(part["player"][share] for part in row["rounds"]) for row in (above, below))
        return float(value / by), f"{above['rate']:g} transactions/s"

    return find


def _throughput(ours: str, bare: str, targets: int) -> Callable[[Result], Found]:
    def find(result: Result) -> Found:
        values = []
        for name in (ours, bare):
            found = measured(result, "throughput", name, "mb_s", targets=targets)
            if not found:
                raise Absent(f"throughput of {name} with {targets} targets: this run did not measure it")
            values.append(statistics.median(found))
        return values[0] / values[1], "as fast as it goes"

    return find


def _at_least(limit: float) -> Callable[[float], bool]:
    return lambda value: value >= limit


def _at_most(limit: float) -> Callable[[float], bool]:
    return lambda value: value <= limit


def _make() -> list[Ratio]:
    """The plain names are over gRPC, as in the paper; the same over framed TCP ends in ``_tcp``."""
    made = []
    for scheme, tail in (("grpc", ""), ("tcp", "_tcp")):
        ours, bare, via = f"ours_{scheme}", f"bare_{scheme}", {"grpc": "gRPC", "tcp": "framed TCP"}[scheme]
        rows: list[tuple[str, str, str, Callable[[float], bool], Callable[[Result], Found]]] = [
            ("kafka_eos_mean", "mean apply delay, 10 targets, 10 KB: Kafka with transactions over ours", ">= 10",
             _at_least(10), _delays("kafka_eos", ours, 10, "apply", "mean")),
            ("kafka_eos_p99", "p99 of it", ">= 8", _at_least(8), _delays("kafka_eos", ours, 10, "apply", "p99")),
            ("kafka_plain_p99", "p99 apply delay, 20 targets, 10 KB: Kafka without transactions over ours", ">= 1.5",
             _at_least(1.5), _delays("kafka_plain", ours, 20, "apply", "p99")),
            ("player_vs_bare_p50", "p50 player delay, 10 targets, 10 KB: ours over bare streams", "<= 1.3",
             _at_most(1.3), _delays(ours, bare, 10, "player", "p50")),
            ("player_vs_bare_p99", "p99 of it", "<= 1.3", _at_most(1.3), _delays(ours, bare, 10, "player", "p99")),
            ("player_vs_bare_20_p50", "p50 player delay of a typical round, 20 targets, 10 KB: ours over bare streams",
             "<= 1.3", _at_most(1.3), _typical(ours, bare, "p50")),
            ("player_vs_bare_20_p99", "p99 of it", "<= 1.3", _at_most(1.3), _typical(ours, bare, "p99")),
            ("throughput_vs_bare", "MB/s from a full log, 10 targets: ours over bare streams", ">= 0.7",
             _at_least(0.7), _throughput(ours, bare, 10)),
        ]  # fmt: skip
        made += [Ratio(name + tail, f"{text} ({via})", goal, holds, find) for name, text, goal, holds, find in rows]
    text = "mean player delay of a typical round, 20 targets, 10 KB: ours over framed TCP by ours over gRPC"
    made.append(Ratio("tcp_vs_grpc_mean", text, "<= 0.4", _at_most(0.4), _typical("ours_tcp", "ours_grpc", "mean")))
    return made


RATIOS = _make()
GOALS = {ratio.name: ratio.goal for ratio in RATIOS}

"""From the raw material of a run to its result, and to the ratios that the claims are made of."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from logplayer.bench import percentiles
from logplayer.bench.raw import Raw
from logplayer.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = dict[str, Any]
STEADY = 2.0  # A delay that more than doubles within a run measures the backlog, not the system.
SUMMARY = "summary.json"


class Ratio(NamedTuple):
    """A claim: what is divided by what, and what it should be."""

    name: str
    text: str
    goal: str
    holds: Callable[[float], bool]
    find: Callable[[Result], float]


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
    ratios, missing = ratios_of(result)
    summary = {"run": raw.run, "result": path.name, "ratios": ratios, "missing": missing, "goals": GOALS}
    (out / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")
    return path


def read(folder: Path) -> tuple[Result, dict[str, Any]]:
    """The result that the summary in a folder is about, and the summary."""
    path = folder / SUMMARY
    if not path.exists():
        raise UserError(f"{folder} holds no {SUMMARY}: run `logplayer bench run --out {folder}` first")
    summary = json.loads(path.read_text())
    return json.loads((folder / summary["result"]).read_text()), summary


# --- Ratios ---


def ratios_of(result: Result) -> tuple[dict[str, float], dict[str, str]]:
    """What can be computed, and why the rest cannot."""
    ratios, missing = {}, {}
    for ratio in RATIOS:
        try:
            ratios[ratio.name] = round(ratio.find(result), 3)
        except Absent as absent:
            missing[ratio.name] = str(absent)
    return ratios, missing


def delay_of(result: Result, contestant: str, experiment: str, targets: int, keys: int = 10) -> Result:
    """The row of one contestant and workload; with several rates, the one that was measured last."""
    for row in reversed(result["delays"]):
        if (row["experiment"], row["contestant"], row["targets"], row["keys"]) == (
            experiment,
            contestant,
            targets,
            keys,
        ):
            found: Result = row
            return found
    why = result["missing"].get(contestant, "this run did not measure it")
    raise Absent(f"{contestant} with {targets} targets: {why}")


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


def _delays(theirs: str, ours: str, targets: int, kind: str, share: str) -> Callable[[Result], float]:
    """One delay of one contestant over another's, both of the experiment ``targets`` at 10 KB."""

    def find(result: Result) -> float:
        above = delay_of(result, theirs, "targets", targets)
        below = delay_of(result, ours, "targets", targets)
        for row in (above, below):
            if row["growth"] is not None and row["growth"] > STEADY:
                raise Absent(
                    f"{row['contestant']} did not keep up with {row['rate']:g} transactions/s at {targets} targets: "
                    f"its delay grew by {row['growth']:g} within a run; measure it at a lower rate"
                )
        return float(above[kind][share] / below[kind][share])

    return find


def _throughput(ours: str, bare: str, targets: int) -> Callable[[Result], float]:
    def find(result: Result) -> float:
        values = []
        for name in (ours, bare):
            found = measured(result, "throughput", name, "mb_s", targets=targets)
            if not found:
                raise Absent(f"throughput of {name} with {targets} targets: this run did not measure it")
            values.append(statistics.median(found))
        return values[0] / values[1]

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
        rows: list[tuple[str, str, str, Callable[[float], bool], Callable[[Result], float]]] = [
            ("kafka_eos_mean", "mean apply delay, 10 targets, 10 KB: Kafka with transactions over ours", ">= 10",
             _at_least(10), _delays("kafka_eos", ours, 10, "apply", "mean")),
            ("kafka_eos_p99", "p99 of it", ">= 8", _at_least(8), _delays("kafka_eos", ours, 10, "apply", "p99")),
            ("kafka_plain_p99", "p99 apply delay, 20 targets, 10 KB: Kafka without transactions over ours", ">= 1.5",
             _at_least(1.5), _delays("kafka_plain", ours, 20, "apply", "p99")),
            ("player_vs_bare_p50", "p50 player delay, 10 targets, 10 KB: ours over bare streams", "<= 1.3",
             _at_most(1.3), _delays(ours, bare, 10, "player", "p50")),
            ("player_vs_bare_p99", "p99 of it", "<= 1.3", _at_most(1.3), _delays(ours, bare, 10, "player", "p99")),
            ("throughput_vs_bare", "MB/s from a full log, 10 targets: ours over bare streams", ">= 0.7",
             _at_least(0.7), _throughput(ours, bare, 10)),
        ]  # fmt: skip
        made += [Ratio(name + tail, f"{text} ({via})", goal, holds, find) for name, text, goal, holds, find in rows]
    return made


RATIOS = _make()
GOALS = {ratio.name: ratio.goal for ratio in RATIOS}

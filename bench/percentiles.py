"""Spark computes the percentiles from the raw samples: exact ones, over every sample of all rounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
# What is measured, in milliseconds: from where to where.
DELAYS = {
    "player": ("dispatch_ns", "apply_ns"),
    "apply": ("asked_ns", "apply_ns"),
    "commit": ("asked_ns", "commit_ns"),
}
KEYS = ["experiment", "contestant", "targets", "keys", "rate"]


def load(spark: SparkSession, folder: Path) -> DataFrame | None:
    """The samples with their delays; None if there are none."""
    if not any(folder.glob("*.parquet")):
        return None
    frame = spark.read.parquet(str(folder))
    for name, (first, last) in DELAYS.items():
        frame = frame.withColumn(name, (frame[last] - frame[first]) / 1e6)
    return frame


def delays(frame: DataFrame) -> list[dict[str, Any]]:
    """For each contestant and workload: mean, percentiles and number of each delay, over all rounds and per round."""
    from pyspark.sql import functions as f

    wanted = [f.expr(f"percentile({name}, array{tuple(SHARES.values())})").alias(f"{name}_p") for name in DELAYS]
    means = [f.avg(name).alias(f"{name}_mean") for name in DELAYS]
    # How the delay grows within a run: 1 when it is steady. Of medians: a single spike is no growth.
    first, last = (f.median(f.when(part, f.col("apply"))) for part in (f.col("share") <= 0.25, f.col("share") > 0.75))
    late = last / first
    totals = frame.groupBy(KEYS).agg(f.count("*").alias("n"), late.alias("growth"), *means, *wanted)
    # What was really asked for per second: a contestant that waits for its own commits may be slower than the rate.
    reached = (f.max("transaction") - f.min("transaction")) / f.max("at_s")
    asking = [reached.alias("reached"), f.max("at_s").alias("seconds")]
    rounds = frame.groupBy([*KEYS, "round"]).agg(f.count("*").alias("n"), *asking, *means, *wanted)
    by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rounds.orderBy("round").collect():
        reached_rate = row["reached"] and round(row["reached"], 1)
        told = {
            "round": row["round"],
            "reached_rate": reached_rate,
            "seconds": round(row["seconds"], 1),
            **{name: figures(row, name) for name in ("player", "apply")},
        }
        by_key.setdefault(tuple(row[key] for key in KEYS), []).append(told)
    found = []
    for row in totals.orderBy(KEYS).collect():
        line = {key: row[key] for key in KEYS} | {name: figures(row, name) for name in DELAYS}
        growth = row["growth"]
        line["growth"] = None if growth is None else round(growth, 3)
        line["rounds"] = by_key[tuple(row[key] for key in KEYS)]
        found.append(line)
    return found


def figures(row: Any, name: str) -> dict[str, float]:
    """One delay of a row, in milliseconds."""
    told = {"mean": round(row[f"{name}_mean"], 4)}
    told |= {share: round(value, 4) for share, value in zip(SHARES, row[f"{name}_p"], strict=True)}
    return {**told, "n": row["n"]}


def over_time(frame: DataFrame, experiment: str) -> list[dict[str, Any]]:
    """The mean apply delay of what was asked for in each second of a run, for each contestant."""
    from pyspark.sql import functions as f

    seconds = frame.where(f.col("experiment") == experiment).withColumn("second", f.floor("at_s"))
    grouped = seconds.groupBy("contestant", "targets", "keys", "rate", "second")
    rows = grouped.agg(f.avg("apply").alias("apply")).orderBy("contestant", "second").collect()
    return [{**row.asDict(), "apply": round(row["apply"], 3)} for row in rows]

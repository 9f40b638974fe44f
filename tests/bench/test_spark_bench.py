"""The measurements of Spark run, every way of them, and report their ratios."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logplayer.spark.real_time import connector
from tests import ROOT
from tests.servers import IN_CI, missing


def measured(*words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", *words, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture
def kafka_of_spark() -> None:
    """Spark's connector for Kafka, and the brokers' jars."""
    from bench.rivals import jars

    for rival in ("kafka", "spark-kafka"):
        if not jars.fetched(rival):
            if not IN_CI:
                missing(f"the jars of {rival} are not fetched; `tools/rivals fetch` does it")
            jars.fetch(rival)
    if not Path(connector.__file__).with_name("logplayer-realtime.jar").exists():
        missing("the connector for Spark's real-time mode is not built; `tools/jvm` does it")


def test_the_ways_of_delivery(kafka_of_spark: None) -> None:
    ways = ("in-process", "resident", "real-time", "kafka-real-time")
    how = ("--only", "delay", "--ways", ",".join(ways), "--count", "30", "--rate", "30", "--rounds", "1")
    found = measured("bench.parts.spark_bench", *how)["delay"]
    for way in ways:
        assert (found[way]["count"], found[way]["missing"]) == (30, 0)
        assert 0 < found[way]["p50_ms"] <= found[way]["p99_ms"]
    for ratio in ("resident_to_in_process", "real_time_to_resident", "kafka_real_time_to_real_time"):
        assert found[f"{ratio}_p50"] > 0


def test_bulk_work() -> None:
    found = measured("bench.parts.spark_bench", "--only", "backfill", "--rows", "2000", "--rounds", "1")["backfill"]
    assert found["rows"] == 2000
    assert all(found[name] > 0 for name in found)


def test_the_sinks() -> None:
    how = ("--rows", "2000", "--batches", "2", "--rounds", "1", "--in-memory")
    found = measured("bench.parts.sink_bench", *how)
    assert {"sink", "once", "collect"} <= set(found)

"""What is computed from raw samples: by Spark, exactly; and ratios that are there or say why they are not."""

from __future__ import annotations

import json
import random
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench import percentiles, results
from bench.contest import Sample, Workload
from bench.figures import fair_rate
from bench.raw import Raw
from bench.report import write_report
from bench.tables import result_text
from logplayer.errors import UserError

Filled = tuple[Raw, dict[str, Any], list[list[Sample]]]
LOAD = Workload(targets=2, keys=2, rate=100, count=220, warm_up=20)


def samples(seed: int) -> list[Sample]:
    """As a contestant would return them, with delays that are far from normal."""
    dice, made = random.Random(seed), []
    for number in LOAD.counted():
        asked = number * 10_000_000
        commit = asked + dice.randrange(500_000, 2_000_000)
        for target in LOAD.parts(number):
            dispatch = commit + dice.randrange(1000, 300_000)
            made.append(Sample(number, target, commit, dispatch, dispatch + int(dice.expovariate(1e-6)) + 1, asked))
    return made


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Filled:
    """Two rounds of one contestant, and what Spark makes of them."""
    raw = Raw(tmp_path_factory.mktemp("raw"), "small")
    rounds = [samples(1), samples(2)]
    for nth, made in enumerate(rounds, 1):
        raw.note_samples("targets", "ours_grpc", nth, LOAD, made)
        raw.note_samples("backlog", "ours_grpc", nth, LOAD, made)
    raw.note_measure("throughput", "ours_grpc", 1, targets=10, mb_s=60.0)
    (raw.folder / "profile-ours_grpc.txt").write_text("main;send 3\nmain;read 7\n")
    told = {"at": "now", "seconds": 1.0, "load_before": [0], "load_after": [1], "failed": {}, "guarantees": {}}
    raw.note_piece(
        {"machine": {"cores": 2}, "versions": {"python": "3", "commit": "c0ffee"}, "command": "made <up>", **told}
    )
    return raw, results.build(raw, spark), rounds


def test_percentiles_are_those_of_the_samples(filled: Filled) -> None:
    _, result, rounds = filled
    [row] = [row for row in result["delays"] if row["experiment"] == "targets"]
    for kind, (first, last) in percentiles.DELAYS.items():
        for found, part in (
            (row[kind], [sample for made in rounds for sample in made]),
            (row["rounds"][0].get(kind), rounds[0]),
            (row["rounds"][1].get(kind), rounds[1]),
        ):
            if found is None:
                continue
            values = [(getattr(sample, last) - getattr(sample, first)) / 1e6 for sample in part]
            cut = statistics.quantiles(values, n=1000, method="inclusive")
            expected = {
                "mean": statistics.fmean(values),
                "p50": cut[499],
                "p90": cut[899],
                "p99": cut[989],
                "p999": cut[998],
            }
            assert {key: found[key] for key in expected} == pytest.approx(expected, abs=1e-4)
            assert found["n"] == len(values)
    assert [part["reached_rate"] for part in row["rounds"]] == [100.0, 100.0]


def test_the_delay_over_time_is_told_per_second(filled: Filled) -> None:
    _, result, rounds = filled
    everything = [sample for made in rounds for sample in made]
    begun = min(sample.asked_ns for sample in everything)
    expected = [
        statistics.fmean((s.apply_ns - s.asked_ns) / 1e6 for s in everything if (s.asked_ns - begun) // 10**9 == second)
        for second in range(2)
    ]
    assert [line["apply"] for line in result["backlog"]] == pytest.approx(expected, abs=1e-3)


def test_a_result_is_written_and_read(filled: Filled, tmp_path: Path) -> None:
    raw, result, _ = filled
    path = results.write(result, raw, tmp_path)
    assert json.loads(path.read_text()) == result
    found, summary = results.read(tmp_path)
    assert found["run"] == summary["run"] == "small"
    assert summary["ratios"] == {}
    assert summary["missing"].keys() == results.GOALS.keys()
    assert "ours_grpc" in result_text(found)
    with pytest.raises(UserError, match="bench run"):
        results.read(tmp_path / "nowhere")


def test_the_page_needs_nothing_but_itself(filled: Filled, tmp_path: Path) -> None:
    raw, result, _ = filled
    results.write(result, raw, tmp_path)
    page = write_report(tmp_path, tmp_path / "page").read_text()
    assert page.count("<figure") == page.count("<svg") >= 3
    assert "http" not in re.sub(r'xmlns[:a-z]*="[^"]*"', "", page)
    assert "made &lt;up&gt;" in page
    assert "kafka_eos_mean" in page
    made = {path.name for path in (tmp_path / "page").iterdir()}
    assert {"player-targets.svg", "player-targets.png", "backlog.png", "flame-ours_grpc.svg"} <= made
    assert "plain-targets.svg" not in made, "a figure without data is left out"


# --- Ratios ---


def row(contestant: str, targets: int, *, player: float = 1.0, apply: float = 1.0, **more: Any) -> Any:
    shares = ("mean", "p50", "p90", "p99", "p999")
    told = {"experiment": "targets", "contestant": contestant, "targets": targets, "keys": 10, "rate": 100.0} | more
    told = {"growth": 1.0, "rounds": [{"reached_rate": told["rate"], "seconds": 3.0}]} | told
    delays = {"player": player, "apply": apply}
    figures = {kind: {share: each * nth for nth, share in enumerate(shares, 1)} for kind, each in delays.items()}
    return told | {kind: {**found, "n": 1} for kind, found in figures.items()}


def made(*rows: Any, **more: Any) -> dict[str, Any]:
    return {"delays": list(rows), "measures": [], "missing": {}} | more


def test_ratios_are_theirs_over_ours_and_ours_over_bare() -> None:
    throughput = [
        {"experiment": "throughput", "contestant": name, "targets": 10, "mb_s": value}
        for name, value in (("ours_grpc", 70.0), ("ours_grpc", 90.0), ("bare_grpc", 100.0))
    ]
    result = made(
        row("ours_grpc", 10, player=1.2, apply=2.0),
        row("bare_grpc", 10, player=1.0),
        row("kafka_eos", 10, apply=30.0),
        row("ours_grpc", 20, apply=2.0),
        row("kafka_plain", 20, apply=5.0),
        measures=throughput,
    )
    ratios, missing = results.ratios_of(result)
    assert ratios == {
        "kafka_eos_mean": 15.0,
        "kafka_eos_p99": 15.0,
        "kafka_plain_p99": 2.5,
        "player_vs_bare_p50": 1.2,
        "player_vs_bare_p99": 1.2,
        "throughput_vs_bare": 0.8,
    }
    own = {"player_vs_bare_20_p50", "player_vs_bare_20_p99", "tcp_vs_grpc_mean"}
    assert {name for name in missing if not name.endswith("_tcp")} == own
    lines = [line.split() for line in result_text(result | {"measures": throughput}).splitlines()]
    assert ["kafka_eos_mean", "15", ">=", "10", "holds"] in lines


def test_a_round_in_which_the_log_stood_still_decides_no_ratio_of_typical_rounds() -> None:
    def rounds(*players: float) -> list[dict[str, Any]]:
        shares = ("mean", "p50", "p99")
        return [{"reached_rate": 100.0, "seconds": 3.0, "player": dict.fromkeys(shares, player)} for player in players]

    ratios, missing = results.ratios_of(
        made(
            row("bare_grpc", 20, rounds=rounds(2.0, 2.0)),
            row("ours_tcp", 20, player=30.0, rounds=rounds(0.3, 0.6, 90.0)),
            row("bare_tcp", 20, rounds=rounds(0.4, 0.5, 0.5)),
            row("ours_grpc", 20, rounds=rounds(2.0, 1.0, 2.0)),
        )
    )
    assert "2 rounds" in missing["player_vs_bare_20_p50"]
    assert ratios == {"player_vs_bare_20_p50_tcp": 1.2, "player_vs_bare_20_p99_tcp": 1.2, "tcp_vs_grpc_mean": 0.3}


def test_a_ratio_that_cannot_be_is_absent_with_a_reason() -> None:
    rows = (row("ours_grpc", 10), row("kafka_eos", 10, apply=900.0, growth=7.0))
    ratios, missing = results.ratios_of(made(*rows, missing={"kafka_plain": "start it with make rivals"}))
    assert ratios == {}
    assert "did not both keep up" in missing["kafka_eos_mean"]
    assert "make rivals" in missing["kafka_plain_p99"]
    assert "did not measure" in missing["throughput_vs_bare"]


def test_a_ratio_is_of_the_highest_rate_with_which_both_keep_up() -> None:
    rates = [
        (900.0, 1.0, 900.0),
        (100.0, 7.0, 100.0),
        (70.0, 0.1, 70.0),
        (50.0, 1.0, 20.0),
        (20.0, 1.0, 20.0),
        (10.0, 1.0, 10.0),
    ]
    theirs = [
        row("kafka_eos", 10, apply=rate, rate=rate, growth=growth, rounds=[{"reached_rate": reached, "seconds": 3.0}])
        for rate, growth, reached in rates
    ]
    ours_ = [row("ours_grpc", 10, apply=1.0, rate=rate) for rate, _, _ in rates]
    ratios, _ = results.ratios_of(made(*theirs, *ours_))
    assert ratios["kafka_eos_mean"] == 20.0
    assert fair_rate(made(*theirs), "targets", "kafka_eos") == 20.0
    ratios, missing = results.ratios_of(made(*theirs[:4], *ours_))
    assert "at 10, 20, 50, 70, 100, 900/s they did not both keep up" in missing["kafka_eos_mean"]


def test_pieces_of_a_run_add_up(tmp_path: Path) -> None:
    first = Raw(tmp_path, "run")
    first.note_missing({"kafka_eos": "not started", "flink": "not started"}, set())
    first.note_piece({"command": "one"})
    second = Raw(tmp_path, "run")
    assert (first.piece, second.piece) == (1, 2)
    second.note_missing({}, {"kafka_eos"})
    assert second.missing() == {"flink": "not started"}
    second.note_measure("cost", "ours_tcp", 1, seconds=2.0)
    assert second.measures()[0]["round"] == "2.1"
    with pytest.raises(UserError, match="no name"):
        Raw(tmp_path, "../run")

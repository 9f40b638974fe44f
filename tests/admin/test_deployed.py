"""The alert rules and the dashboard that come with LogPlayer name only metrics that exist."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml  # type: ignore[import-untyped]

from logplayer.observe.metrics import METRICS, PROCESS, series_of
from tests import ROOT

KNOWN = {name for spec in METRICS.values() for name in series_of(spec)} | set(PROCESS)
LABELS = {name: {*spec.labels, "le", "instance", "job"} for spec in METRICS.values() for name in series_of(spec)}
SERIES = re.compile(r"\b(?:logplayer|process|python)_[a-z_]+\b")
SELECTED = re.compile(r"\b(logplayer_[a-z_]+)\{([^}]*)\}")


def alerts() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    board: dict[str, Any] = json.loads((ROOT / "deploy/grafana/logplayer.json").read_text())
    return list(board["panels"])


def unknown(expression: str) -> set[str]:
    """What the expression names that nobody exposes: a series, or a label of one."""
    found = set(SERIES.findall(expression)) - KNOWN
    for series, selectors in SELECTED.findall(expression):
        labels = {part.split("=")[0].split("!")[0].strip() for part in selectors.split(",")}
        found |= {f"{series}{{{label}}}" for label in labels - LABELS.get(series, set())}
    return found


def test_what_does_not_exist_is_found() -> None:
    assert unknown("rate(logplayer_nothing_total[1m])") == {"logplayer_nothing_total"}
    assert unknown('logplayer_target_state{colour="red"}') == {"logplayer_target_state{colour}"}
    assert unknown("logplayer_target_sessions") == {"logplayer_target_sessions"}  # A counter is scraped as _total.


def test_the_alerts_name_only_what_exists() -> None:
    rules = alerts()
    assert len(rules) >= 10
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert SERIES.findall(rule["expr"]), rule
        assert unknown(rule["expr"]) == set(), rule["alert"]
        assert rule["labels"]["severity"] in ("page", "ticket")
        spec_labels = {label for name in SERIES.findall(rule["expr"]) for label in LABELS.get(name, ())}
        shown = set(re.findall(r"\$labels\.([a-z_]+)", json.dumps(rule["annotations"])))
        assert shown <= spec_labels, rule["alert"]


def table() -> dict[str, tuple[str, str]]:
    """Severity and condition of each rule, as docs/operations.md lists them."""
    rows = re.findall(r"(?m)^\| `(LogPlayer\w+)` \| (\w+) \| (.*?) \|", (ROOT / "docs/operations.md").read_text())
    return {name: (severity, condition) for name, severity, condition in rows}


def stated(rule: dict[str, Any]) -> set[str]:
    """What a rule's row must say: its waits in words, and what it compares with."""
    waits = [*re.findall(r"\[(\d+)m\]", rule["expr"]), *re.findall(r"(\d+)m", rule.get("for", ""))]
    limits = re.findall(r"> ([\d.]+)$", rule["expr"]) if "increase(" not in rule["expr"] else []
    return {f"{count} minute" for count in waits} | set(limits)


def test_the_table_for_operators_has_every_rule() -> None:
    listed = table()
    assert set(listed) == {rule["alert"] for rule in alerts()}
    for rule in alerts():
        severity, condition = listed[rule["alert"]]
        assert severity == rule["labels"]["severity"], rule["alert"]
        assert {said for said in stated(rule) if said not in condition} == set(), rule["alert"]


def test_a_rule_that_changed_is_found() -> None:
    [rule] = [rule for rule in alerts() if rule["alert"] == "LogPlayerTargetLags"]
    assert stated(rule) == {"60", "5 minute"}
    assert stated({"expr": "increase(logplayer_store_failures_total[7m]) > 0"}) == {"7 minute"}


def test_the_dashboard_names_only_what_exists() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for panel in panels():
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert SERIES.findall(target["expr"]), panel["title"]
            assert unknown(target["expr"]) == set(), panel["title"]


def test_the_dashboard_shows_most_of_what_there_is() -> None:
    shown = {name for panel in panels() for target in panel["targets"] for name in SERIES.findall(target["expr"])}
    left = {spec.name for spec in METRICS.values() if not shown & set(series_of(spec))}
    assert left == {
        "logplayer_log_first_index",
        "logplayer_log_last_index",
        "logplayer_log_control_index",
        "logplayer_log_appended_bytes",
        "logplayer_player_info",
        "logplayer_player_epoch",
        "logplayer_player_stuck_seconds",
        "logplayer_player_dispatched_entries",
        "logplayer_player_dispatched_bytes",
        "logplayer_player_batches",
        "logplayer_player_trims",
        "logplayer_target_index",
        "logplayer_target_lag_bytes",
        "logplayer_target_queued_entries",
        "logplayer_target_in_flight_entries",
        "logplayer_group_playing",
        "logplayer_group_starts",
        "logplayer_store_index",
        "logplayer_store_epoch",
        "logplayer_store_connected",
        "logplayer_store_applied_entries",
        "logplayer_store_sessions",
        "logplayer_store_failures",
        "logplayer_capture_entries",
        "logplayer_capture_source_lsn_bytes",
        "logplayer_capture_durable_lsn_bytes",
        "logplayer_capture_confirmed_lsn_bytes",
    }


def test_the_scrape_configuration_loads() -> None:
    loaded = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yaml").read_text())
    assert loaded["rule_files"] == ["alerts.yaml"]
    assert loaded["scrape_configs"][0]["job_name"] == "logplayer"

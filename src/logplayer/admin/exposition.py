"""``/metrics``: what was counted and what the status says, in Prometheus' text format.

A counter by reason or error is there from the start, with 0 for each that is known: ``increase()`` over a series that
begins with its first event would miss that event, and so would the alert.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from logplayer import errors
from logplayer.capture.settings import STOP_REASONS
from logplayer.core.entry import Refusal
from logplayer.log.protocol import BadRequest
from logplayer.observe.instruments import (
    BOUNDS,
    AppendCounts,
    CaptureCounts,
    CaptureStage,
    Delays,
    KeeperCounts,
    PlayerCounts,
    ReplicaCounts,
    StoreCounts,
    WriterCounts,
)
from logplayer.observe.metrics import METRICS, MetricKind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = ("LIVE", "CATCHING_UP", "SUSPENDED", "BLOCKED", "SILENT")
REFUSALS = tuple(reason.name for reason in Refusal)
_APPEND_ERRORS = (
    errors.SequenceGap,
    errors.ProducerConflict,
    errors.EntryTooLarge,
    errors.ControlRefused,
    errors.ControlJammed,
    errors.LogFull,
    errors.LogUnavailable,
    errors.Superseded,
    errors.LogError,
    BadRequest,
)
APPEND_ERRORS = tuple(error.__name__ for error in _APPEND_ERRORS)
LOG_WAITS = (errors.LogUnavailable.__name__, errors.LogFull.__name__)
Labels = tuple[str, ...]


class Samples:
    """The samples of one scrape. What is not declared in :mod:`logplayer.observe.metrics` cannot be added."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def add(self, name: str, value: float | None, *labels: object) -> None:
        """A gauge or a counter; None is "not known"."""
        self._family(name).add_metric([str(label) for label in labels], math.nan if value is None else value)

    def add_delays(self, name: str, delays: Delays, *labels: object) -> None:
        """A histogram."""
        buckets, total = [], 0
        for bound, count in zip((*BOUNDS, math.inf), list(delays.counts), strict=True):
            total += count
            buckets.append(("+Inf" if bound == math.inf else repr(bound), total))
        self._family(name).add_metric([str(label) for label in labels], buckets, delays.seconds)

    def collect(self) -> Iterable[Metric]:
        return self._families.values()

    def _family(self, name: str) -> Any:
        if name not in self._families:
            spec = METRICS[name]
            kinds = {
                MetricKind.GAUGE: GaugeMetricFamily,
                MetricKind.COUNTER: CounterMetricFamily,
                MetricKind.HISTOGRAM: HistogramMetricFamily,
            }
            self._families[name] = kinds[spec.kind](name, spec.help, labels=spec.labels)
        return self._families[name]


_process = CollectorRegistry()
for _collector in (ProcessCollector, PlatformCollector, GCCollector):
    _collector(registry=_process)


class _Registry:
    """What ``generate_latest`` wants of a registry."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        yield from self._samples.collect()
        yield from _process.collect()


def exposition(samples: Samples) -> bytes:
    """The text that Prometheus reads."""
    return generate_latest(_Registry(samples))


def add_player(into: Samples, status: Mapping[str, Any], counts: PlayerCounts | None = None) -> None:
    """A player, or all groups of a Spark application as one, and its targets, from its status."""
    facts = (status["player"], status["group"], status["log_id"], status["state"])
    into.add("logplayer_player_info", 1, *facts)
    if status["epoch"]:  # Not before it has taken over: an alert asks whether any player has.
        into.add("logplayer_player_epoch", status["epoch"])
    for name, key in {
        "current_index": "current",
        "log_first_index": "log_first",
        "log_last_index": "log_last",
        "log_bytes": "log_bytes",
        "trim_point_index": "trim_point",
        "consistent_cut_index": "consistent_cut",
        "entries_per_second": "entries_per_second",
        "unroutable_entries": "unroutable",
        "stuck_seconds": "stuck_seconds",
    }.items():
        into.add(f"logplayer_player_{name}", status[key])
    for target in status["targets"]:
        _add_target(into, target)
    groups = status.get("groups", ())
    for group in groups if status["state"] != "standby" else ():  # A standby's groups play once it takes over.
        into.add("logplayer_group_heard_seconds", group["seconds_since_heard"], group["group"], group["worker"])
        into.add("logplayer_group_playing", float(group["state"] == "playing"), group["group"])
        into.add("logplayer_group_starts", group["starts"], group["group"])
    if counts is not None:
        _add_counts(into, counts, [target["target"] for target in status["targets"]])


def _add_target(into: Samples, target: Mapping[str, Any]) -> None:
    name = target["target"]
    for metric, key in {
        "index": "index",
        "lag_entries": "lag_entries",
        "lag_bytes": "lag_bytes",
        "lag_seconds": "lag_seconds",
        "catch_up_seconds": "eta_seconds",
        "entries_per_second": "entries_per_second",
        "queued_entries": "queued",
        "queue_fill_ratio": "queue_fill",
        "in_flight_entries": "in_flight",
        "window_fill_ratio": "window_fill",
        "quarantined_entries": "quarantined",
        "sessions": "sessions",
    }.items():
        into.add(f"logplayer_target_{metric}", target[key], name)
    for state in STATES:
        into.add("logplayer_target_state", float(target["state"] == state), name, state)
    if target["blocked"] is not None:
        into.add("logplayer_target_blocked", 1, name, target["blocked"]["kind"])


def _with_zeros(counts: Mapping[Any, int], known: Iterable[Any]) -> dict[Any, int]:
    """The counts, and 0 for what is known to be possible and has not happened."""
    return dict.fromkeys(known, 0) | dict(counts)


def _add_counts(into: Samples, counts: PlayerCounts, targets: Collection[str]) -> None:
    into.add("logplayer_player_dispatched_entries", counts.entries)
    into.add("logplayer_player_dispatched_bytes", counts.bytes)
    into.add("logplayer_player_batches", counts.batches)
    into.add("logplayer_player_trims", counts.trims)
    into.add_delays("logplayer_player_dispatch_seconds", counts.dispatch)
    into.add_delays("logplayer_player_ack_seconds", counts.acks)
    into.add_delays("logplayer_player_delivery_seconds", counts.delivery)
    refusals = _with_zeros(counts.refusals.copy(), ((target, reason) for target in targets for reason in REFUSALS))
    for (target, reason), count in refusals.items():
        into.add("logplayer_target_refusals", count, target, reason)
    for target, count in _with_zeros(counts.losses.copy(), targets).items():
        into.add("logplayer_target_lost_sessions", count, target)


def add_log(
    into: Samples,
    status: Mapping[str, Any],
    counts: AppendCounts,
    writer: WriterCounts | ReplicaCounts | None = None,
    keeper: KeeperCounts | None = None,
) -> None:
    """A log server; ``writer`` and ``keeper`` are those of the log that it serves."""
    for name, key in {
        "first_index": "first",
        "last_index": "last",
        "control_index": "control",
        "bytes": "bytes",
    }.items():
        into.add(f"logplayer_log_{name}", status[key])
    into.add("logplayer_log_appended_entries", counts.entries)
    into.add("logplayer_log_appended_bytes", counts.bytes)
    into.add_delays("logplayer_log_append_seconds", counts.appends)
    for error, count in _with_zeros(counts.refusals.copy(), APPEND_ERRORS).items():
        into.add("logplayer_log_refusals", count, error)
    if writer is not None:
        into.add_delays("logplayer_log_commit_seconds", writer.commits)
    if isinstance(writer, WriterCounts):
        into.add_delays("logplayer_log_sync_seconds", writer.syncs)
        into.add_delays("logplayer_log_checkpoint_seconds", writer.checkpoints)
    if isinstance(writer, ReplicaCounts):
        into.add("logplayer_log_conflicts", writer.conflicts)
    if keeper is not None:
        into.add_delays("logplayer_log_compaction_seconds", keeper.compactions)
        into.add_delays("logplayer_log_defragmentation_seconds", keeper.defragmentations)


def add_store(into: Samples, target: Mapping[str, Any], counts: StoreCounts) -> None:
    """One target of a target server."""
    name = target["target"]
    into.add("logplayer_store_index", target["index"], name)
    into.add("logplayer_store_epoch", target["epoch"], name)
    into.add("logplayer_store_connected", float(target["connected"]), name)
    into.add("logplayer_store_applied_entries", counts.entries, name)
    into.add("logplayer_store_sessions", counts.sessions, name)
    into.add("logplayer_store_failures", counts.failures, name)
    into.add_delays("logplayer_store_apply_seconds", counts.applies, name)
    for reason, count in _with_zeros(counts.refusals.copy(), REFUSALS).items():
        into.add("logplayer_store_refusals", count, name, reason)


def add_capture(into: Samples, status: Mapping[str, Any], counts: CaptureCounts) -> None:
    """A capture, from its status and what it has counted."""
    slot = status["slot"]
    for stage in CaptureStage:
        into.add("logplayer_capture_state", float(status["state"] == stage.value), slot, stage.value)
    for name in ("transactions", "rows", "entries", "lag_seconds", "lag_bytes", "unanswered_bytes", "reconnects"):
        into.add(f"logplayer_capture_{name}", status[name], slot)
    for name in ("source_lsn", "durable_lsn", "confirmed_lsn"):
        into.add(f"logplayer_capture_{name}_bytes", getattr(counts, name), slot)
    into.add_delays("logplayer_capture_commit_to_log_seconds", counts.delays, slot)
    for error, count in _with_zeros(counts.waits.copy(), LOG_WAITS).items():
        into.add("logplayer_capture_log_waits", count, slot, error)
    for reason, count in _with_zeros(counts.stops.copy(), STOP_REASONS).items():
        into.add("logplayer_capture_stops", count, slot, reason)
    for table in status["snapshot"]:
        into.add("logplayer_capture_snapshot_rows", table["rows"], slot, table["table"])
        into.add("logplayer_capture_snapshot_expected_rows", table["of_about"], slot, table["table"])

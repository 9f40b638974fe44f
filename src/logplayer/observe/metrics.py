"""Every metric, declared once: its name, kind, unit, help and labels. ``/metrics`` can give these and no others.

Names follow Prometheus: a base unit last (``seconds``, ``bytes``, ``ratio``), ``_total`` after a counter. The page,
the terminal and the gauges here are all made from one status, so they cannot disagree about the same moment.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class MetricKind(enum.Enum):
    """What a metric is to Prometheus."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class MetricSpec(NamedTuple):
    """One metric. A counter's name has no ``_total`` here."""

    name: str
    kind: MetricKind
    unit: str  # One of UNITS, the last of its name; empty for a number of events, an index and a flag.
    help: str
    labels: tuple[str, ...] = ()


UNITS = ("entries_per_second", "seconds", "bytes", "ratio", "entries", "rows")
G, C, H = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM

LOG = (
    MetricSpec("logplayer_log_first_index", G, "", "The oldest entry that can be read."),
    MetricSpec("logplayer_log_last_index", G, "", "The newest entry."),
    MetricSpec("logplayer_log_control_index", G, "", "The newest control record."),
    MetricSpec("logplayer_log_bytes", G, "bytes", "What the log takes on its disk; 0 if it does not know."),
    MetricSpec(
        "logplayer_log_appended_entries", C, "entries", "Entries that the log took, first tries and repetitions."
    ),
    MetricSpec("logplayer_log_appended_bytes", C, "bytes", "Bytes of the requests to append."),
    MetricSpec("logplayer_log_append_seconds", H, "seconds", "From a request to append to its answer."),
    MetricSpec(
        "logplayer_log_refusals", C, "", "Calls that the log refused, by the error: conflicts, gaps.", ("error",)
    ),
    MetricSpec(
        "logplayer_log_commit_seconds", H, "seconds", "A group commit: until it is on the disk, or at a majority."
    ),
    MetricSpec("logplayer_log_conflicts", C, "", "Batches of a replicated log that came after another writer's."),
    MetricSpec("logplayer_log_compaction_seconds", H, "seconds", "A compaction of etcd's store."),
    MetricSpec("logplayer_log_defragmentation_seconds", H, "seconds", "A defragmentation of one etcd member's file."),
    MetricSpec("logplayer_log_sync_seconds", H, "seconds", "The part of a commit that waits for the disk."),
    MetricSpec("logplayer_log_checkpoint_seconds", H, "seconds", "A checkpoint of a segment."),
)

PLAYER = (
    MetricSpec("logplayer_player_info", G, "", "1; which player this is.", ("player", "group", "log_id", "state")),
    MetricSpec("logplayer_player_epoch", G, "", "The index of its takeover record; none before it has taken over."),
    MetricSpec("logplayer_player_current_index", G, "", "The main stream has dispatched every entry up to here."),
    MetricSpec("logplayer_player_log_first_index", G, "", "The oldest entry of the log, as the player knows it."),
    MetricSpec("logplayer_player_log_last_index", G, "", "The newest entry of the log, as the player knows it."),
    MetricSpec("logplayer_player_log_bytes", G, "bytes", "What the log takes on its disk, as it says."),
    MetricSpec("logplayer_player_trim_point_index", G, "", "Nobody in this group needs entries up to here any more."),
    MetricSpec("logplayer_player_consistent_cut_index", G, "", "Every target has everything up to here."),
    MetricSpec(
        "logplayer_player_entries_per_second",
        G,
        "entries_per_second",
        "How fast the main stream moves, over a few seconds.",
    ),
    MetricSpec(
        "logplayer_player_unroutable_entries", G, "entries", "Entries that reach no target, in part or as a whole."
    ),
    MetricSpec(
        "logplayer_player_stuck_seconds", G, "seconds", "For how long the log could not be read; 0 while it can."
    ),
    MetricSpec("logplayer_player_dispatched_entries", C, "entries", "Entries that the main stream dispatched."),
    MetricSpec("logplayer_player_dispatched_bytes", C, "bytes", "Their payload bytes, and those before its start."),
    MetricSpec("logplayer_player_batches", C, "", "Batches that were sent."),
    MetricSpec("logplayer_player_trims", C, "", "Trims of the log."),
    MetricSpec(
        "logplayer_player_dispatch_seconds",
        H,
        "seconds",
        "From commit in the log to dispatch; one entry of each fetch.",
    ),
    MetricSpec(
        "logplayer_player_ack_seconds", H, "seconds", "From the write of a batch to its ack; one per session at a time."
    ),
    MetricSpec(
        "logplayer_player_delivery_seconds", H, "seconds", "From commit in the log to the ack of a LIVE target."
    ),
)

_T = ("target",)
TARGETS = (
    MetricSpec("logplayer_target_state", G, "", "1 for the state that the target is in.", ("target", "state")),
    MetricSpec("logplayer_target_index", G, "", "What the target has durably; -1 if it was not heard yet.", _T),
    MetricSpec("logplayer_target_lag_entries", G, "entries", "Indexes up to the log's end that it does not have.", _T),
    MetricSpec("logplayer_target_lag_bytes", G, "bytes", "The log's payload bytes after its index; an estimate.", _T),
    MetricSpec("logplayer_target_lag_seconds", G, "seconds", "The age of the oldest entry that it does not have.", _T),
    MetricSpec(
        "logplayer_target_catch_up_seconds", G, "seconds", "Until it has caught up; NaN: unknown, or never.", _T
    ),
    MetricSpec("logplayer_target_entries_per_second", G, "entries_per_second", "How fast its index moves.", _T),
    MetricSpec("logplayer_target_queued_entries", G, "entries", "Entries that wait for its stream.", _T),
    MetricSpec("logplayer_target_queue_fill_ratio", G, "ratio", "How full its queue is: 1 is full.", _T),
    MetricSpec("logplayer_target_in_flight_entries", G, "entries", "Entries that are sent and not acked.", _T),
    MetricSpec("logplayer_target_window_fill_ratio", G, "ratio", "How much of the window is taken: 1 is all.", _T),
    MetricSpec(
        "logplayer_target_blocked", G, "", "1 while it is blocked, by the kind, such as POISON.", ("target", "kind")
    ),
    MetricSpec(
        "logplayer_target_quarantined_entries", G, "entries", "Entries that are quarantined at it and not redriven.", _T
    ),
    MetricSpec("logplayer_target_sessions", C, "", "Sessions that this player has begun with it.", _T),
    MetricSpec("logplayer_target_lost_sessions", C, "", "Sessions that ended without our wish.", _T),
    MetricSpec(
        "logplayer_target_refusals", C, "", "What it refused, by reason; FENCED among them.", ("target", "reason")
    ),
)

SPARK = (
    MetricSpec("logplayer_group_playing", G, "", "1 while its player is heard to play; none at a standby.", ("group",)),
    MetricSpec(
        "logplayer_group_heard_seconds", G, "seconds", "The age of the group's last heartbeat.", ("group", "worker")
    ),
    MetricSpec("logplayer_group_starts", C, "", "How often the group was seen on a new worker.", ("group",)),
)

STORE = (
    MetricSpec("logplayer_store_index", G, "", "What the store has durably.", _T),
    MetricSpec("logplayer_store_epoch", G, "", "The epoch of the stored session.", _T),
    MetricSpec("logplayer_store_connected", G, "", "1 while a player's stream is open.", _T),
    MetricSpec("logplayer_store_apply_seconds", H, "seconds", "A commit of the store.", _T),
    MetricSpec("logplayer_store_applied_entries", C, "entries", "Deliveries that were applied.", _T),
    MetricSpec("logplayer_store_sessions", C, "", "Sessions that were accepted.", _T),
    MetricSpec("logplayer_store_refusals", C, "", "What was refused, by reason, such as POISON.", ("target", "reason")),
    MetricSpec("logplayer_store_failures", C, "", "Changes that the store could not make for another reason.", _T),
)

_S = ("slot",)
CAPTURE = (
    MetricSpec("logplayer_capture_state", G, "", "1 for what the capture does now.", ("slot", "state")),
    MetricSpec("logplayer_capture_transactions", C, "", "Transactions of the source that the log has durably.", _S),
    MetricSpec("logplayer_capture_rows", C, "rows", "Their row changes and outbox messages.", _S),
    MetricSpec(
        "logplayer_capture_entries", C, "entries", "Entries that were appended, those of the snapshot among them.", _S
    ),
    MetricSpec(
        "logplayer_capture_commit_to_log_seconds", H, "seconds", "From the source's commit to durable in the log.", _S
    ),
    MetricSpec(
        "logplayer_capture_lag_seconds", G, "seconds", "The age of the oldest received transaction not in the log.", _S
    ),
    MetricSpec("logplayer_capture_lag_bytes", G, "bytes", "What the source keeps of its log for the slot.", _S),
    MetricSpec("logplayer_capture_source_lsn_bytes", G, "bytes", "How far the source's log goes, as far as heard.", _S),
    MetricSpec("logplayer_capture_durable_lsn_bytes", G, "bytes", "The log has every transaction up to here.", _S),
    MetricSpec("logplayer_capture_confirmed_lsn_bytes", G, "bytes", "The source may forget everything up to here.", _S),
    MetricSpec("logplayer_capture_unanswered_bytes", G, "bytes", "Sent to the log and not durable there.", _S),
    MetricSpec("logplayer_capture_reconnects", C, "", "Connections to the source that were lost, or failed.", _S),
    MetricSpec(
        "logplayer_capture_log_waits", C, "", "How often the log took nothing, by the error.", ("slot", "error")
    ),
    MetricSpec("logplayer_capture_stops", C, "", "Stops that wait for an operator, by reason.", ("slot", "reason")),
    MetricSpec(
        "logplayer_capture_snapshot_rows",
        G,
        "rows",
        "Rows of the table that the snapshot has copied.",
        ("slot", "table"),
    ),
    MetricSpec(
        "logplayer_capture_snapshot_expected_rows", G, "rows", "About how many rows the table has.", ("slot", "table")
    ),
)

METRICS: dict[str, MetricSpec] = {spec.name: spec for spec in (*LOG, *PLAYER, *TARGETS, *SPARK, *STORE, *CAPTURE)}

PROCESS = (
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
    "python_info",
    "python_gc_objects_collected_total",
    "python_gc_objects_uncollectable_total",
    "python_gc_collections_total",
)
"""Of the process, by ``prometheus_client`` itself."""


def series_of(spec: MetricSpec) -> tuple[str, ...]:
    """The names under which a metric's samples are scraped."""
    if spec.kind is C:
        return (f"{spec.name}_total",)
    if spec.kind is H:
        return (f"{spec.name}_bucket", f"{spec.name}_sum", f"{spec.name}_count")
    return (spec.name,)

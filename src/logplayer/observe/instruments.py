"""Counts and delays, as cheap as they can be in a hot path.

Each instrument has one writer: a thread or an event loop. Whoever reads may be another thread and gets numbers that
were right a moment ago. ``prometheus_client``'s own instruments take a lock and about ten times as long; they are used
where nothing is hot, and to write what was counted here.
"""

from __future__ import annotations

import enum
import math
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

BOUNDS = (
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Upper bounds of a histogram's buckets, in seconds."""
WINDOW_SECONDS = 2.0
SAMPLES_MAX = 512


class Delays:
    """A histogram of seconds."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def note(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)


class Percentiles(NamedTuple):
    """Delays of the last few seconds, in milliseconds; zeros if there were none."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0


class RecentDelays(Delays):
    """A histogram that also knows the percentiles of the last whole window."""

    __slots__ = ("_began", "_samples", "_seen", "recent")

    def __init__(self) -> None:
        super().__init__()
        self._samples: list[float] = []
        self._seen = 0
        self._began = time.monotonic()
        self.recent = Percentiles()

    def note(self, seconds: float) -> None:
        Delays.note(self, seconds)
        samples = self._samples
        if len(samples) < SAMPLES_MAX:
            samples.append(seconds)
        else:  # Keep an even spread over the window, without random numbers.
            samples[self._seen * 7919 % SAMPLES_MAX] = seconds
        self._seen += 1

    def roll(self, now: float) -> None:
        """Called at every tick: begin the next window when this one is over."""
        if now - self._began >= WINDOW_SECONDS:
            self.recent = percentiles(self._samples)
            self._samples, self._seen, self._began = [], 0, now


def percentiles(seconds: Sequence[float]) -> Percentiles:
    """The nearest ranks."""
    ordered = sorted(seconds)
    if not ordered:
        return Percentiles()
    ranks = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.9, 0.99))
    return Percentiles(*(round(one * 1000, 3) for one in ranks))


class SessionCounts:
    """What a player's sessions count: how long acks take, and what targets refuse."""

    def __init__(self) -> None:
        self.acks = Delays()  # From the write of a batch to its ack; one batch per session at a time.
        self.batches = 0
        self.refusals: Counter[tuple[str, str]] = Counter()  # By target and reason.
        self.losses: Counter[str] = Counter()  # By target.


class PlayerCounts(SessionCounts):
    """What a player counts."""

    def __init__(self) -> None:
        super().__init__()
        self.dispatch = Delays()  # From commit in the log to dispatch.
        self.delivery = RecentDelays()  # From commit in the log to the ack of a LIVE target.
        self.entries = 0
        self.bytes = 0
        self.trims = 0


class AppendCounts:
    """What a log server counts."""

    def __init__(self) -> None:
        self.appends = Delays()  # From the call to its answer.
        self.entries = 0
        self.bytes = 0
        self.refusals: Counter[str] = Counter()  # By the error's class.


class WriterCounts:
    """What the writer of a file log counts."""

    def __init__(self) -> None:
        self.commits = Delays()  # A group: planned, written and synced.
        self.syncs = Delays()  # The part that waits for the disk.
        self.checkpoints = Delays()


class ReplicaCounts:
    """What the writer of a replicated log counts."""

    def __init__(self) -> None:
        self.commits = Delays()  # From sending a batch to its confirmation by a majority.
        self.conflicts = 0  # Batches whose position another writer took first; on Kafka: entries of another writer.


class KeeperCounts:
    """What is done to keep an etcd cluster's store below its quota."""

    def __init__(self) -> None:
        self.compactions = Delays()
        self.defragmentations = Delays()  # Of one member each, which answers nobody meanwhile.


class CaptureStage(enum.Enum):
    """What a capture does now."""

    STARTING = "starting"
    SNAPSHOT = "snapshot"  # It copies the rows that are there.
    STREAMING = "streaming"
    AWAY = "away"  # It has lost the source, and tries again.
    STOPPED = "stopped"


class Received(NamedTuple):
    """A transaction of the source that is not durable in the log yet."""

    lsn: int
    commit_time_us: int
    rows: int


class CaptureCounts:
    """What a capture counts. LSNs are byte positions in the source's log."""

    def __init__(self) -> None:
        self.stage = CaptureStage.STARTING
        self.why = ""  # It is away, waits for the log, or has stopped: the reason in words.
        self.transactions = 0
        self.rows = 0
        self.entries = 0
        self.delays = Delays()  # From the source's commit to durable in the log.
        self.reconnects = 0
        self.waits: Counter[str] = Counter()  # For the log, by the error's class.
        self.stops: Counter[str] = Counter()  # By reason.
        self.snapshot: dict[str, tuple[int, int]] = {}  # Each table's copied rows, and about how many there are.
        self.source_lsn = 0  # How far the source's log goes.
        self.received_lsn = 0
        self.durable_lsn = 0
        self.confirmed_lsn = 0
        self.unanswered_bytes = 0
        self._received: deque[Received] = deque()

    def receive(self, transaction: Received) -> None:
        """A transaction is on its way into the log."""
        self.received_lsn = transaction.lsn
        self._received.append(transaction)

    def make_durable(self, lsn: int, now: float) -> None:
        """The log has everything up to ``lsn``; ``now`` is the time of day."""
        self.durable_lsn = max(self.durable_lsn, lsn)
        waiting = self._received
        while waiting and waiting[0].lsn <= lsn:
            done = waiting.popleft()
            self.transactions += 1
            self.rows += done.rows
            self.delays.note(max(0.0, now - done.commit_time_us / 1e6))

    def find(self, confirmed: int, durable: int) -> None:
        """The source answers, and its stream begins."""
        self.stage, self.why = CaptureStage.STREAMING, ""
        self.confirmed_lsn, self.durable_lsn = max(confirmed, self.confirmed_lsn), max(durable, self.durable_lsn)

    def lose(self, why: str) -> None:
        """The source is away. What was received stays on its way into the log, and is not received again."""
        self.stage, self.why = CaptureStage.AWAY, why
        self.reconnects += 1

    @property
    def lag_bytes(self) -> int:
        """What the source keeps of its log for this capture."""
        return max(0, self.source_lsn - self.confirmed_lsn) if self.confirmed_lsn else 0

    def lag_seconds(self, now: float) -> float:
        """The age of the oldest transaction that was received and is not durable."""
        waiting = self._received
        return max(0.0, now - waiting[0].commit_time_us / 1e6) if waiting else 0.0


class StoreCounts:
    """What one target counts."""

    def __init__(self) -> None:
        self.applies = Delays()  # A commit of the store.
        self.entries = 0
        self.sessions = 0
        self.refusals: Counter[str] = Counter()  # By reason.
        self.failures = 0

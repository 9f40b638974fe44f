"""What an operator sees of resident players and does to them over HTTP: readiness, metrics, suspend and resume."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from logplayer.admin.app import serve
from logplayer.admin.http_client import ask
from logplayer.errors import UserError
from logplayer.spark import event_loop
from logplayer.spark.resident.driver import Resident
from tests.spark.spark_support import FileWal, Shards, until
from tests.spark.test_resident import NAMES, check, config, pid_of, puts


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    made = Shards(tmp_path, NAMES)
    yield made
    made.stop()


class Seen:
    """An application of two groups, with its HTTP port open before it starts."""

    def __init__(self, spark: SparkSession, wal: FileWal, shards: Shards) -> None:
        self.resident = Resident(spark, config(wal.serve(), shards.addresses, groups=2))
        self._server = serve(self.resident.face())
        self.at = event_loop.run(self._server.start("127.0.0.1:0"))

    def __enter__(self) -> Seen:
        return self

    def __exit__(self, *_: object) -> None:
        if self.resident.machine is not None:
            self.resident.stop()
        event_loop.run(self._server.stop())

    def ready(self) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.at}/readyz", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def silent(self) -> list[int]:
        """The groups that it names as the reason why it is not ready."""
        code, why = self.ready()
        return [group for group in range(2) if code == 503 and f"nobody is heard to play group {group}" in why]

    def act(self, name: str, **question: Any) -> None:
        event_loop.run(ask(self.at, f"/actions/{name}", question))

    def target(self, name: str) -> dict[str, Any]:
        return next(row for row in self.resident.status()["targets"] if row["target"] == name)

    def metric(self, name: str, **labels: str) -> float:
        """A sample; without labels, the sum of all of that name."""
        with urllib.request.urlopen(f"http://{self.at}/metrics", timeout=60) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        found = [sample.value for sample in samples if labels.items() <= sample.labels.items()]
        assert found, f"{name} is not there"
        return sum(found)


def test_an_application_is_ready_exactly_while_its_groups_play(
    spark: SparkSession, wal: FileWal, shards: Shards
) -> None:
    with Seen(spark, wal, shards) as seen:
        code, why = seen.ready()
        assert (code, why.strip()) == (503, "it waits for its log:")
        seen.resident.start()
        until(lambda: seen.ready() == (200, "ok\n"))
        workers = seen.resident.overview.workers().values()
        for worker in workers:  # Frozen, not killed: nobody comes in their place.
            os.kill(pid_of(worker), signal.SIGSTOP)
        try:
            until(lambda: seen.silent() == [0, 1])  # In whichever order they are found to be.
        finally:
            for worker in workers:
                os.kill(pid_of(worker), signal.SIGCONT)
        until(lambda: seen.ready()[0] == 200)


def test_the_driver_exposes_what_its_groups_count(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    with Seen(spark, wal, shards) as seen:
        seen.resident.start()
        shards.wait(puts(wal, 300))
        for name in ("dispatch", "ack", "delivery"):
            until(lambda name=name: seen.metric(f"logplayer_player_{name}_seconds_count") > 0)  # type: ignore[misc]
        until(lambda: seen.metric("logplayer_player_dispatched_entries_total") >= 600)  # Both groups read all.
        assert seen.metric("logplayer_player_batches_total") > 0
        for name in NAMES:
            assert seen.metric("logplayer_target_refusals_total", target=name, reason="POISON") == 0
        before = {name: seen.metric(f"logplayer_player_{name}") for name in ("batches_total", "ack_seconds_count")}
        workers = seen.resident.overview.workers()
        os.kill(pid_of(workers[0]), signal.SIGKILL)
        shards.wait(puts(wal, 300, 300))
        until(lambda: seen.resident.overview.workers()[0] != workers[0])
        for name, count in before.items():
            assert seen.metric(f"logplayer_player_{name}") >= count, "a new worker began at zero"


def test_a_target_is_suspended_and_resumed(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    """Also if the worker that plays it is replaced meanwhile."""
    with Seen(spark, wal, shards) as seen:
        seen.resident.start()
        shards.wait(puts(wal, 100))
        seen.act("suspend", target="b")
        until(lambda: (seen.target("b")["blocked"] or {}).get("kind") == "HELD")
        has = shards.index("b")
        last = puts(wal, 200, 100)
        until(lambda: all(seen.target(name)["index"] >= last for name in "acd"))
        assert shards.index("b") == has
        group = seen.resident.plan.group_of("b")
        workers = seen.resident.overview.workers()
        os.kill(pid_of(workers[group]), signal.SIGKILL)
        until(lambda: seen.resident.overview.workers()[group] != workers[group])
        until(lambda: (seen.target("b")["blocked"] or {}).get("kind") == "HELD")
        seen.act("resume", target="b")
        shards.wait(puts(wal, 50, 300))
        until(lambda: seen.target("b")["state"] == "LIVE")
        with pytest.raises(UserError, match="has no target 'nobody'; it has a, b, c, d"):
            seen.act("suspend", target="nobody")
    check(wal, shards)

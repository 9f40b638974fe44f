"""Delivery as a stream: receipts, worker kills, stop and restart."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from logplayer.config import load
from logplayer.core.entry import ExplicitMap, Takeover
from logplayer.errors import ConfigError
from logplayer.spark.options import parse_options
from logplayer.spark.resident.groups import GroupTask, deal
from logplayer.spark.resident.lease import Coordinator, LeaseReader
from logplayer.wire.entries import decode_control
from tests.spark.spark_support import FileWal, Shards, until
from tests.spark.test_resident import MAP, NAMES, check, puts


def takeovers(wal: FileWal) -> list[str]:
    """The workers that took a lease's groups over, in order."""
    records = [decode_control(record.payload) for record in wal.records() if record.kind]
    return [r.player for r in records if isinstance(r, Takeover) and r.group.startswith("lease/")]


def _next_lease_finds_the_players(query: StreamingQuery, wal: FileWal) -> bool:
    """Two more leases without a takeover. Early on, or on a busy machine, Spark may choose other workers."""
    leases, batches = len(takeovers(wal)), len(query.recentProgress)
    until(lambda: len(query.recentProgress) >= batches + 2)
    return len(takeovers(wal)) == leases > 0


def test_receipts_and_delivery_through_kills_and_a_restart(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    shards = Shards(tmp_path, NAMES)
    address = wal.serve()
    options = {"log": address, "mode": "play", "groups": "2", "leaseSeconds": "2", "addresses": shards.option}
    stream = spark.readStream.format("logplayer").options(**options, map="hash:" + ",".join(MAP.targets)).load()
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start(str(tmp_path / "receipts"))
    try:
        shards.wait(puts(wal, 100))
        until(lambda: _next_lease_finds_the_players(query, wal))
        shards.wait(puts(wal, 50, 100))
        os.kill(int(takeovers(wal)[-1].rpartition(":")[2]), signal.SIGKILL)
        shards.wait(puts(wal, 50, 150))
    finally:
        query.stop()
    query = writer.start(str(tmp_path / "receipts"))
    try:
        shards.wait(puts(wal, 50, 200))
        until(lambda: len(query.recentProgress) >= 1)
    finally:
        query.stop()
    shards.stop()
    check(wal, shards)
    receipts = spark.read.parquet(str(tmp_path / "receipts"))
    assert {row.target for row in receipts.select("target").distinct().collect()} == set(NAMES)
    assert receipts.where("state = 'LIVE' and log_index >= 100").count() > 0


def test_a_file_log_is_refused(spark: SparkSession, wal: FileWal) -> None:
    stream = spark.readStream.format("logplayer").options(log=wal.address, mode="play", addresses="a=tcp://127.0.0.1:1")
    with pytest.raises(PySparkException, match="log serve"):
        stream.load().writeStream.format("noop").start().awaitTermination()


def test_a_seat_keeps_its_group_when_its_worker_dies() -> None:
    """Its second worker must get the same group at once, though the coordinator has given all of them."""
    coordinator = Coordinator()
    try:
        lease = coordinator.begin(deal(NAMES, 2), 10.0)

        def ask(seat: int, worker: str, playing: int | None = None) -> object:
            question = {"do": "lease", "lease": lease, "seat": seat, "worker": worker, "playing": playing}
            return coordinator._answer(question)["group"]

        assert ask(0, "w1", playing=1) == 1
        assert ask(1, "w2") == 0
        assert ask(1, "w3") == 0
        lease = coordinator.begin(deal(NAMES, 2), 10.0)
        assert ask(0, "w3", playing=0) == 0
        assert ask(1, "w1", playing=1) == 1
    finally:
        coordinator.stop()


def test_a_coordinator_is_changed_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its questions come on the background loop, and what it knows is nobody else's."""
    coordinator = Coordinator()
    threads = set()

    def noted(self: Coordinator, name: str, value: object) -> None:
        threads.add(threading.current_thread())
        object.__setattr__(self, name, value)

    monkeypatch.setattr(Coordinator, "__setattr__", noted)
    coordinator.begin(deal(NAMES, 2), 10.0)
    coordinator.stop()
    assert len(threads) == 1
    assert threading.current_thread() not in threads


FILE = """
[log]
address = "{log}"
[player]
group = "orders"
tick_ms = 70
trims = true
trims_unroutable = true
drain_ms_max = 4321
[limits]
queue_count_max = 77
[map]
kind = "range"
bounds = ["m"]
targets = ["a", "b"]
[targets]
a = "tcp://127.0.0.1:1"
b = "tcp://127.0.0.1:2"
[security]
token_file = "{token}"
[spark]
groups = {groups}
[tables.a]
name = "app.accounts"
"""


def task_of(wal: FileWal, tmp_path: Path, groups: int = 1, **options: str) -> GroupTask:
    """What a lease ships to its first task."""
    (tmp_path / "token").write_text("s3cret")
    file = tmp_path / "logplayer.toml"
    file.write_text(FILE.format(log=wal.serve(), token=tmp_path / "token", groups=groups))
    reader = LeaseReader(parse_options({"mode": "play", "config": str(file), **options}))
    try:
        first, *_ = pickle.loads(pickle.dumps(reader.partitions({"lease": 0}, {"lease": 1})))
        task = first.task
        assert isinstance(task, GroupTask)
        return task
    finally:
        reader.stop()


def test_a_lease_ships_the_whole_configuration(wal: FileWal, tmp_path: Path) -> None:
    task = task_of(wal, tmp_path)
    assert task.config == load(str(tmp_path / "logplayer.toml"))
    assert task.player_config(0).limits.queue_count_max == 77
    assert task.player_config(0).trims


def test_an_option_wins_over_the_file_and_the_rest_stays(wal: FileWal, tmp_path: Path) -> None:
    task = task_of(wal, tmp_path, addresses="a=tcp://127.0.0.1:9", map="explicit", producer="mine", token="other")
    file = load(str(tmp_path / "logplayer.toml"))
    own = replace(file, targets={"a": "tcp://127.0.0.1:9"}, map=ExplicitMap(), group="mine")
    assert task.config == replace(own, security=replace(file.security, token="other"))


def test_the_file_says_how_many_groups_play(wal: FileWal, tmp_path: Path) -> None:
    file = tmp_path / "logplayer.toml"
    file.write_text('[log]\naddress = "grpc://h:1"\n[spark]\ngroups = 2\n')
    assert parse_options({"config": str(file)}).groups == 2
    assert parse_options({"config": str(file), "groups": "3"}).groups == 3
    assert parse_options({}).groups == 1


def test_several_groups_of_leases_cannot_trim(wal: FileWal, tmp_path: Path) -> None:
    """Each knows the indexes of its own targets only."""
    with pytest.raises(ConfigError, match="trims = true needs one group"):
        task_of(wal, tmp_path, groups=2)

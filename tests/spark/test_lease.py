"""Delivery as a stream: receipts, worker kills, stop and restart."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from logplayer.core.entry import Takeover
from logplayer.spark.resident.groups import deal
from logplayer.spark.resident.lease import Coordinator
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

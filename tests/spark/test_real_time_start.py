"""How a query in real time starts: what is refused is refused before it takes over, and what it asks first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import logplayer as lp
from logplayer.admin.http_client import ask
from logplayer.core.entry import HashMap, TargetAdded
from logplayer.errors import ConfigError
from logplayer.log.protocol import Info, Kind, Record
from logplayer.player.redriven import Redriven
from logplayer.spark import event_loop
from logplayer.spark.real_time import connector as connector_module
from logplayer.spark.real_time import log_end, plan
from logplayer.spark.real_time import query as query_module
from logplayer.spark.real_time.plan import NOT_HERE, check_config
from logplayer.target.stores.tables.mapping import mapping_of
from logplayer.wire.security import Security
from tests.spark.spark_support import FileWal, Shards, until
from tests.spark.test_real_time import NAMES, connector, entries, realtime, right, shards

__all__ = ["connector", "shards"]


def controls(wal: FileWal) -> int:
    return sum(record.kind is Kind.CONTROL for record in wal.records())


def test_a_driver_that_may_not_listen_does_not_take_over(
    spark: SparkSession, wal: FileWal, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector_module, "driver_host", lambda session: ("10.77.0.1", "127.0.0.1"))
    with pytest.raises(ConfigError, match="certificate"):
        realtime(spark, wal, shards).start()
    assert controls(wal) == 0


def test_a_member_without_an_address_is_found_first(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    wal.decide(TargetAdded("lost", 0, ""), HashMap(NAMES))
    before = controls(wal)
    with pytest.raises(ConfigError, match="where target lost is"):
        realtime(spark, wal, shards).start()
    assert controls(wal) == before


def test_more_groups_than_slots_are_refused_before_the_takeover(
    spark: SparkSession, wal: FileWal, shards: Shards, tmp_path: Path
) -> None:
    targets = shards.addresses | {f"t{nth}": "tcp://127.0.0.1:9" for nth in range(4)}
    with pytest.raises(ConfigError, match="groups=6 needs 6 slots"):
        realtime(spark, wal, shards, targets=targets, groups=6).start()
    assert controls(wal) == 0


SET: dict[str, Any] = {
    "owner": lambda key: "a",
    "owns": lambda name: name == "a",
    "trims": True,
    "trims_unroutable": True,
    "standby": True,
    "tables": mapping_of({"stock": {"name": "bestand"}}, "a test"),
}


@pytest.mark.parametrize("name", NOT_HERE)
def test_a_setting_that_would_be_ignored_is_refused(name: str) -> None:
    config = lp.Config(log="grpc://127.0.0.1:7100", targets={"a": "tcp://127.0.0.1:7201"})
    check_config(config)
    with pytest.raises(ConfigError, match=f"setting {name}:"):
        check_config(lp.Config(log=config.log, targets=config.targets, **{name: SET[name]}))


def test_a_certificate_that_is_not_there_is_refused_at_once() -> None:
    config = lp.Config(log="grpc://127.0.0.1:7100", security=Security(ca="/nowhere/ca.pem"))
    with pytest.raises(ConfigError, match="cannot be read"):
        check_config(config)


def test_the_trim_point_is_read_before_the_sessions_open(
    spark: SparkSession, wal: FileWal, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the log does not answer the task's first question, no target has a session."""
    gate, asked = threading.Event(), threading.Event()
    decide, info = plan.decisions, wal.log.info
    closed = False

    async def decisions(*given: Any) -> Any:
        nonlocal closed
        found = await decide(*given)
        closed = True  # From here on, only the task asks.
        return found

    async def gated() -> Info:
        while closed and not gate.is_set():
            asked.set()
            await asyncio.sleep(0.02)
        return await info()

    monkeypatch.setattr(query_module, "decisions", decisions)
    monkeypatch.setattr(query_module, "LogEnd", NoLogEnd)
    monkeypatch.setattr(wal.log, "info", gated)
    wal.append(entries(0, 50))
    running = realtime(spark, wal, shards).start()
    try:
        until(asked.is_set)
        assert [shards._servers[name].position(name).session.epoch for name in NAMES] == [0, 0]
        assert running.status["state"] == "starting"
        gate.set()
        shards.wait(wal.last())
    finally:
        gate.set()
        running.stop()
    right(wal, shards)


class NoLogEnd:
    """Asks nothing."""

    def __init__(self, log: object, quarantined: object) -> None:
        self.first = self.last = self.bytes = 0
        self.redriven = Redriven()

    def seconds_behind(self, index: int) -> float:
        return 0.0

    def bytes_of(self, entries: int) -> int:
        return 0

    def stop(self) -> None: ...


def test_the_end_of_the_log_is_known_while_the_log_is_away() -> None:
    committed_at = time.time_ns() // 1000

    class Away:
        left = 2

        async def info(self) -> Info:
            if self.left == 0:
                raise lp.LogUnavailable("gone")
            self.left -= 1
            return Info("log", 3, 7 - self.left, 0, 500)

        async def read(self, first: int, last: int) -> AsyncIterator[list[Record]]:
            """Entry 6 is an hour old, and entry 7 is new."""
            yield [Record(first, Kind.DATA, "p", 1, committed_at - (0 if first == 7 else 3_600_000_000), b"", b"", 0)]

    end = log_end.LogEnd(Away(), dict)  # type: ignore[arg-type]
    until(lambda: end.last == 7 and end.seconds_behind(5) >= 3600)
    assert end.seconds_behind(6) < end.seconds_behind(5) - 3599
    assert end.seconds_behind(7) == 0.0
    assert (end.first, end.bytes_of(2)) == (3, 200)
    assert not end._asking.done()
    end.stop()
    until(end._asking.done)


def test_a_status_has_the_lag_of_each_target(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    config = lp.Config(log=wal.serve(), targets=shards.addresses, http="127.0.0.1:0")
    running = realtime(spark, wal, shards, log="", config=config, groups=2).start()
    try:
        wal.append(entries(0, 50))
        shards.wait(wal.last())
        until(lambda: running.status["state"] == "playing")
        until(lambda: running.status["log_last"] == wal.last())
        until(lambda: [row["lag_entries"] for row in running.status["targets"]] == [0, 0])
        event_loop.run(shards._servers["a"].stop())
        wal.append(entries(50, 50))
        until(lambda: running.status["targets"][0]["lag_entries"] == 50)
        until(lambda: running.status["targets"][0]["state"] == "SUSPENDED")
        until(lambda: running.status["targets"][0]["lag_seconds"] > 0)
        seen = event_loop.run(ask(running.http, "/status"))
        assert [row["target"] for row in seen["targets"]] == list(NAMES)
        assert "target a" in seen["targets"][0]["why"]
        until(lambda: [row["log_index"] for row in running.receipts] == [wal.last() - 50, wal.last()])
    finally:
        running.stop()

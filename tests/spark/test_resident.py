"""Resident players: endless tasks that are killed, drained, regrouped and fenced lose nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from logplayer.config import Config, SparkSettings
from logplayer.core.digest import entry_digest
from logplayer.core.entry import HashMap, MapChanged, Takeover, TargetAdded
from logplayer.core.limits import Limits
from logplayer.core.routing import owner_of
from logplayer.errors import UserError
from logplayer.player.ended import STOPPED
from logplayer.spark.resident.driver import Resident
from logplayer.spark.resident.groups import GroupPlan, count_groups, deal
from logplayer.wire.entries import decode_transaction, split_transaction
from tests.spark.spark_support import FileWal, Shards, transaction, until

NAMES = ("a", "b", "c", "d")
MAP = HashMap(NAMES)


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    made = Shards(tmp_path, NAMES)
    yield made
    made.stop()


def puts(wal: FileWal, count: int, start: int = 0) -> int:
    """Append transactions that touch several shards; returns the last index."""
    payloads = [
        transaction(*((b"k%d" % ((i * 7 + n) % 97), b"v%d-%d" % (i, n), "") for n in range(3)))
        for i in range(start, start + count)
    ]
    return wal.append(payloads)[-1]


def check(wal: FileWal, shards: Shards, names: tuple[str, ...] = NAMES) -> None:
    """Content and digest of every shard, against the log read in the plainest way."""
    owner = owner_of(MAP)
    for name in names:
        content: dict[bytes, bytes] = {}
        total = 0
        _, index, digest = shards.read(name)
        for record in wal.records():
            if record.kind or record.index > index:
                continue
            mine = b"".join(m.encoded for m in split_transaction(record.payload) if (m.target or owner(m.key)) == name)
            if mine:
                total += entry_digest(record.index, mine)
                for key, value in decode_transaction(mine):
                    content.pop(key, None)
                    content.update({} if value is None else {key: value})
        assert (shards.read(name)[0], digest) == (content, total % 2**128), name


def config(address: str, targets: Mapping[str, str], groups: int = 0, **more: Any) -> Config:
    many = SparkSettings(groups=groups)
    return Config(address, dict(targets), MAP, limits=Limits(blocked_ms=500), spark=many, **more)


def pid_of(worker: str) -> int:
    return int(worker.rpartition(":")[2])


def test_groups_are_even_and_stable() -> None:
    plan = deal([f"t{i}" for i in range(25)], 4)
    sizes = [sum(plan.group_of(f"t{i}") == group for i in range(25)) for group in range(4)]
    assert sorted(sizes) == [6, 6, 6, 7]
    assert not plan.uneven([f"t{i}" for i in range(25)])
    assert GroupPlan(2, {"a": 0, "b": 0, "c": 0}).uneven(["a", "b", "c"])
    assert (count_groups(3, 8), count_groups(25, 8), count_groups(500, 8), count_groups(3, 8, 5)) == (1, 3, 8, 5)


def test_more_groups_than_slots_are_refused(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    with pytest.raises(UserError, match="40 groups need 40 slots at once, and Spark has 4"):
        Resident(spark, config(wal.serve(), shards.addresses, groups=40)).start()


def test_a_killed_worker_goes_on_where_the_targets_stand(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    resident = Resident(spark, config(wal.serve(), shards.addresses, groups=2))
    puts(wal, 200)
    resident.start()
    try:
        shards.wait(puts(wal, 200, 200))
        until(lambda: len(resident.overview.workers()) == 2)
        before = resident.overview.workers()
        os.kill(pid_of(before[0]), signal.SIGKILL)
        shards.wait(puts(wal, 200, 400))
        until(lambda: resident.overview.workers()[0] != before[0])
        status = resident.status()
        assert {target["target"] for target in status["targets"]} == set(NAMES)
        assert [group["group"] for group in status["groups"]] == [0, 1]
    finally:
        ended = resident.stop()
    assert ended == STOPPED
    check(wal, shards)


def test_a_new_member_is_played_and_the_groups_stay_even(
    spark: SparkSession, wal: FileWal, shards: Shards, tmp_path: Path
) -> None:
    before = HashMap(("a", "b"))
    first = config(wal.serve(), {name: shards.addresses[name] for name in "ab"}, groups=2)
    resident = Resident(spark, replace(first, map=before))
    resident.start()
    try:
        until(lambda: all(shards.index(name) >= 1 for name in "ab"))
        for name in ("c", "d"):
            wal.decide(TargetAdded(name, 0, shards.addresses[name]), before)
        wal.decide(MapChanged(MAP), before)
        last = puts(wal, 100)
        shards.wait(last)
        until(lambda: not resident.plan.uneven(NAMES))
        until(lambda: len(resident.status()["targets"]) == 4)
    finally:
        resident.stop()
    check(wal, shards)


def test_a_second_application_fences_the_first(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    address = wal.serve()
    first = Resident(spark, config(address, shards.addresses))
    first.start()
    second = Resident(spark, config(address, shards.addresses))
    try:
        shards.wait(puts(wal, 50))
        second.start()
        assert first.wait(60)
        assert first.stop().superseded
        shards.wait(puts(wal, 50, 50))
    finally:
        assert second.stop() == STOPPED
    check(wal, shards)


def test_a_standby_is_warm_and_plays_when_the_first_application_is_gone(
    spark: SparkSession, wal: FileWal, shards: Shards
) -> None:
    address = wal.serve()
    first = Resident(spark, config(address, shards.addresses))
    first.start()
    standby = Resident(spark, config(address, shards.addresses, groups=2, standby=True))
    try:
        shards.wait(puts(wal, 50))
        standby.start()
        until(lambda: standby.warm)
        assert standby.status()["state"] == "standby"
        assert {row["state"] for row in standby.status()["targets"]} == {"SILENT"}
        before = wal.last()
        shards.wait(puts(wal, 50, 50))
        assert not standby.playing
        assert wal.last() == before + 50  # It has not touched the log.
        assert first.stop() == STOPPED
        shards.wait(puts(wal, 50, 100))
        until(lambda: standby.playing)
        until(lambda: {row["state"] for row in standby.status()["targets"]} == {"LIVE"})
    finally:
        first.stop()
        assert standby.stop() == STOPPED
    check(wal, shards)


def plays_alone(residents: list[Resident]) -> Resident | None:
    """The one that plays while all others stand by."""
    statuses = [(resident, resident.status()) for resident in residents]
    active = [(resident, status) for resident, status in statuses if status["state"] != "standby"]
    live = len(active) == 1 and {row["state"] for row in active[0][1]["targets"]} == {"LIVE"}
    return active[0][0] if live else None


def test_of_two_standbys_one_plays_and_the_other_after_it(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    address = wal.serve()
    first = Resident(spark, config(address, shards.addresses))
    standbys = [Resident(spark, config(address, shards.addresses, standby=True)) for _ in range(2)]
    first.start()
    try:
        shards.wait(puts(wal, 50))
        for standby in standbys:
            standby.start()
        until(lambda: all(standby.warm for standby in standbys))
        shards.wait(puts(wal, 50, 50))
        first.stop()
        shards.wait(puts(wal, 50, 100))
        # Both may have taken over at once: then the later one plays on, and the other one stands by again.
        until(lambda: plays_alone(standbys))
        [waiting] = [standby for standby in standbys if standby.status()["state"] == "standby"]
        shards.wait(puts(wal, 50, 150))
        for standby in standbys:
            if standby is not waiting:
                standby.stop()
        shards.wait(puts(wal, 50, 200))
        until(lambda: plays_alone([waiting]))
    finally:
        for resident in (first, *standbys):
            resident.stop()
    check(wal, shards)


def test_a_later_application_takes_its_groups_back(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    """A task of the older application may take over after the newer one started: the newer one must not give way."""
    address = wal.serve()
    newer = Resident(spark, config(address, shards.addresses, groups=2))
    newer.start()
    try:
        shards.wait(puts(wal, 50))
        wal.decide(Takeover("spark/0", "spark old:1", application=1), MAP)
        shards.wait(puts(wal, 50, 50))
        assert not newer.wait(0.1)
        wal.decide(Takeover("spark/1", "spark new:1", application=wal.last() + 1), MAP)
        assert newer.wait(60)
    finally:
        assert newer.stop().superseded
    check(wal, shards)


def test_a_file_log_is_served_by_the_driver(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    last = puts(wal, 100)
    wal.close()
    resident = Resident(spark, config(wal.address, shards.addresses))
    resident.start()
    try:
        assert resident.log_address.startswith("grpc://127.0.0.1:")
        shards.wait(last)
    finally:
        resident.stop()
    again = FileWal(wal.path)
    check(again, shards)
    again.close()

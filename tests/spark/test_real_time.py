"""Queries in real time: exactly what the query leaves of the log, once and in order, and refusals of what cannot be."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

import logplayer as lp
from logplayer.core.entry import HashMap, MapChanged, Quarantined, TargetAdded
from logplayer.core.routing import owner_of
from logplayer.errors import ConfigError
from logplayer.log import control_chain as chain
from logplayer.player.maps import parse_map
from logplayer.spark import event_loop
from logplayer.spark.real_time import query as query_module
from logplayer.spark.real_time import transform
from logplayer.spark.real_time.query import Realtime
from logplayer.wire.entries import encode_headers
from logplayer.wire.security import Security
from tests import ROOT
from tests.servers import Authority, missing
from tests.spark.real_time_judge import differences, query
from tests.spark.spark_support import FileWal, Put, Shards, transaction, until
from tests.spark.written import note_writes

NAMES = ("a", "b")
BATCH_SECONDS = 10  # On a busy machine a task may start later than a shorter batch ends.


@pytest.fixture(scope="module", autouse=True)
def connector() -> None:
    """The jar, built from these sources."""
    if shutil.which("mvn") is None:
        missing("Maven is not installed")
    subprocess.run([ROOT / "tools" / "jvm"], check=True, capture_output=True)


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[Shards]:
    """One target for each transport."""
    made = Shards(tmp_path, ["a"], "tcp")
    made.start("b", "grpc")
    for path in made.paths.values():
        note_writes(path)
    yield made
    made.stop()


def entries(first: int, count: int) -> list[bytes]:
    """Puts that are kept, split and dropped, deletes, and headers."""
    found = []
    for nth in range(first, first + count):
        puts: list[Put] = [(b"n%d" % (nth + k), b"%d,x%d" % (nth, k), "") for k in range(3)]
        puts.append((b"drop%d" % nth, b"never", ""))
        if nth % 5 == 0:
            puts.append((b"n%d" % (nth - 3), None, ""))
        headers = encode_headers({"trace": str(nth)}) if nth % 3 == 0 else b""
        found.append(transaction(*puts) + headers)
    return found


def realtime(spark: SparkSession, wal: FileWal, shards: Shards, **more: Any) -> Realtime:
    given = {"log": wal.serve(), "targets": shards.addresses, "batch_seconds": BATCH_SECONDS, "transform": query}
    return lp.spark.realtime(spark, **{**given, **more})


def right(wal: FileWal, shards: Shards, names: tuple[str, ...] = NAMES) -> None:
    assert differences(wal.records(), shards.paths, names) == []


def test_targets_hold_what_the_query_leaves(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    wal.append(entries(0, 300))
    running = realtime(spark, wal, shards, groups=2).start()
    try:
        shards.wait(wal.last(), 200)
        for nth in range(10):  # Through the end of a batch.
            wal.append(entries(300 + 20 * nth, 20))
            shards.wait(wal.last(), 200)
            time.sleep(1.2)
        until(lambda: running.progress)
        until(lambda: running.indexes == dict.fromkeys(NAMES, wal.last()))
        until(lambda: running.status["state"] == "playing")
        status = running.status
        assert status["starts"] == 1
        assert 0 < status["rows_in"] < status["rows_out"]
    finally:
        assert running.stop().kind is lp.EndKind.STOPPED
    right(wal, shards)


def test_operators_that_are_not_compiled_pull_in_the_same_way(
    spark: SparkSession, wal: FileWal, shards: Shards
) -> None:
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    wal.append(entries(0, 200))
    running = realtime(spark, wal, shards)
    try:
        running.start()
        shards.wait(wal.last())
        running.stop()
    finally:
        for name in settings:
            spark.conf.unset(name)
    right(wal, shards)


def test_it_goes_on_where_the_targets_are(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    """Nothing is kept between two queries, not even a checkpoint."""
    for nth in range(3):
        wal.append(entries(100 * nth, 100))
        running = realtime(spark, wal, shards).start()
        shards.wait(wal.last() - 40 * (nth < 2))  # Stopped in the middle, as far as that can be had.
        running.stop()
    right(wal, shards)


def test_a_target_that_dies_is_delivered_to_again(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    running = realtime(spark, wal, shards, groups=2).start()
    try:
        wal.append(entries(0, 100))
        shards.wait(wal.last())
        port = int(shards.addresses["a"].rpartition(":")[2])
        event_loop.run(shards._servers["a"].stop())
        wal.append(entries(100, 100))
        until(lambda: running.status["state"] == "reconnecting")
        assert "target a" in running.status["reason"]
        until(lambda: shards.index("b") == wal.last())  # The other group goes on.
        shards.start("a", "tcp", port)
        shards.wait(wal.last())
        until(lambda: running.status["state"] == "playing")
        assert running.status["starts"] == 1
    finally:
        running.stop()
    right(wal, shards)


def test_a_target_that_is_ahead_gets_nothing_twice(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    """One task reads for both from the index of the one that lags."""
    running = realtime(spark, wal, shards, groups=2).start()
    wal.append(entries(0, 100))
    shards.wait(wal.last())
    port = int(shards.addresses["b"].rpartition(":")[2])
    event_loop.run(shards._servers.pop("b").stop())
    wal.append(entries(100, 100))
    until(lambda: shards.index("a") == wal.last())
    running.stop()
    shards.start("b", "grpc", port)
    running = realtime(spark, wal, shards, groups=1).start()
    try:
        shards.wait(wal.last())
        assert running.status["starts"] == 1
    finally:
        running.stop()
    right(wal, shards)


def test_a_new_map_and_a_new_target(spark: SparkSession, wal: FileWal, shards: Shards, tmp_path: Path) -> None:
    running = realtime(spark, wal, shards).start()
    try:
        wal.append(entries(0, 50))
        shards.wait(wal.last())
        shards.start("c", "tcp")
        note_writes(shards.paths["c"])
        wal.decide(TargetAdded("c", 0, shards.addresses["c"]), HashMap(NAMES))
        after = wal.decide(MapChanged(HashMap((*NAMES, "c"))), HashMap(NAMES))
        wal.append([transaction((b"n%d" % nth, b"new%d" % nth, "")) for nth in range(50)])
        shards.wait(wal.last())
        assert running.status["starts"] > 1
        assert running.status["epoch"] < after
    finally:
        running.stop()
    assert differences(wal.records(), shards.paths, NAMES, later=[(after, (*NAMES, "c"))]) == []
    assert shards.read("c")[0]


def test_a_poisoned_entry_blocks_until_it_is_quarantined(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    """A store of keys and values refuses rows of tables, which pass the query as they are."""
    row = lp.table("stock").put(id=1, n=2).encoded
    running = realtime(spark, wal, shards, transform=None).start()
    try:
        wal.append(entries(0, 10))
        [index] = wal.append([row])
        until(lambda: running.status["state"] == "blocked")
        [name] = [name for name in NAMES if f"target {name}" in running.status["reason"]]
        assert "POISON" in running.status["reason"]
        event_loop.run(chain.append(wal.log, Quarantined(name, index, "a test"), None))
        wal.append(entries(10, 10))
        shards.wait(wal.last())
    finally:
        running.stop()


def test_a_log_with_another_history_is_not_delivered(
    spark: SparkSession, wal: FileWal, shards: Shards, tmp_path: Path
) -> None:
    wal.append(entries(0, 50))
    shutil.copytree(wal.path, tmp_path / "backup")
    running = realtime(spark, wal, shards).start()
    wal.append(entries(50, 50))
    shards.wait(wal.last())
    running.stop()
    restored = FileWal(tmp_path / "backup")
    restored.append(entries(500, 80), "another")
    running = realtime(spark, restored, shards).start()
    try:
        until(lambda: running.status["state"] == "blocked")
        assert "DIVERGED" in running.status["reason"]
    finally:
        running.stop()
        restored.close()
    right(wal, shards)


def test_a_newer_query_ends_an_older_one(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    address = wal.serve()
    older = realtime(spark, wal, shards, log=address).start()
    wal.append(entries(0, 50))
    shards.wait(wal.last())
    newer = realtime(spark, wal, shards, log=address).start()
    try:
        ended = older.wait(60)
        assert ended.superseded
        assert ended.epoch == newer.status["epoch"]
        wal.append(entries(50, 50))
        shards.wait(wal.last())
    finally:
        newer.stop()
    right(wal, shards)


def test_tls_and_a_token(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    server = Security(cert=cert, key=key, token="let-me-in")
    shards = Shards(tmp_path, ["a"], "tcp", security=server)
    shards.start("b", "grpc")
    wal.append(entries(0, 50))
    client = Security(ca=authority.ca, token="let-me-in")
    running = realtime(spark, wal, shards, log=wal.serve(security=server), security=client).start()
    try:
        shards.wait(wal.last())
    finally:
        running.stop()
        shards.stop()
    right(wal, shards)


@pytest.mark.parametrize("text", ["range:a<n4<b", "hash[tag]:b,a", "hash[prefix /]:a,b", "explicit"])
def test_keys_belong_to_whom_the_map_says(spark: SparkSession, wal: FileWal, shards: Shards, text: str) -> None:
    keys = [b"n%d/%d" % (n, k) for n in range(8) for k in range(3)] + [b"x{t%d}y%d" % (n, n) for n in range(6)]
    keys += [b"{}", b"/", b"n4", b"\xff", b"m}{"]
    wal.append([transaction((key, b"v", ""), (b"named" + key, b"v", "b")) for key in keys])
    running = realtime(spark, wal, shards, transform=None, map=text).start()
    try:
        shards.wait(wal.last())
    finally:
        running.stop()
    owner = owner_of(parse_map(text))
    for name in NAMES:
        named = {b"named" + key for key in keys} if name == "b" else set()
        assert set(shards.read(name)[0]) == {key for key in keys if owner(key) == name} | named


# --- What is refused ---


def static_chance(rows: DataFrame) -> DataFrame:
    """The other side of a join gives another row each time."""
    static = rows.sparkSession.range(5).selectExpr("cast(id as string) name", "rand() place")
    return rows.join(f.broadcast(static), f.expr("cast(key as string) = name"), "left")


def static_clock(rows: DataFrame) -> DataFrame:
    static = rows.sparkSession.range(5).where("current_date() > date'2020-01-01'").selectExpr("cast(id as string) name")
    return rows.join(f.broadcast(static), f.expr("cast(key as string) = name"), "left_semi")


def python_function(rows: DataFrame) -> DataFrame:
    return rows.withColumn("value", f.udf(lambda value: value, "binary")("value"))


REFUSED: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "a Python function": (python_function, "Python"),
    "groups": (lambda rows: rows.groupBy("log_index", "target", "key").agg(f.max("value").alias("value")), "Aggregate"),
    "distinct": (lambda rows: rows.dropDuplicates(["key"]), "Deduplicate"),
    "sort": (lambda rows: rows.orderBy("key"), "Sort"),
    "limit": (lambda rows: rows.limit(5), "Limit"),
    "union": (lambda rows: rows.union(rows), "Union"),
    "shuffle": (lambda rows: rows.repartition(2, "key"), "Repartition"),
    "coalesce": (lambda rows: rows.coalesce(1), "Repartition"),
    "chance": (lambda rows: rows.withColumn("value", f.expr("cast(rand() as string)")), "rand"),
    "clock": (lambda rows: rows.where("committed_at < current_timestamp()"), "current_timestamp"),
    "static chance": (static_chance, "rand"),
    "static clock": (static_clock, "current_date"),
    "clock in a subquery": (lambda rows: rows.where("committed_at < (select max(now()) from range(2))"), "now"),
    "chance in a subquery": (
        lambda rows: rows.where("log_index in (select cast(9 * rand() as long) from range(2))"), "rand"),
    "encryption": (lambda rows: rows.withColumn("value", f.expr("aes_encrypt(key, repeat('k', 16))")), "without an IV"),
    "today": (lambda rows: rows.where("committed_at < cast('today' as date)"), "text 'today'"),
    "static limit": (
        lambda rows: rows.join(f.broadcast(rows.sparkSession.range(5).limit(2)), f.expr("log_index = id")), "limit"),
    "index": (lambda rows: rows.withColumn("log_index", f.expr("log_index + 1")), "log_index"),
    "target": (lambda rows: rows.withColumn("target", f.lit("a")), "target"),
    "column": (lambda rows: rows.drop("target"), "no column target"),
    "other stream": (lambda rows: rows.sparkSession.readStream.format("rate").load().selectExpr(
        "value log_index", "'a' target", "'' key", "'' value"), "log_index"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_before_anything_happens(spark: SparkSession, wal: FileWal, shards: Shards, what: str) -> None:
    change, said = REFUSED[what]
    with pytest.raises(ConfigError, match=said):
        realtime(spark, wal, shards, transform=change).start()
    assert wal.records() == []


def places(rows: DataFrame, name: str = "name") -> DataFrame:
    """A static table of unknown size."""
    session = rows.sparkSession
    return session.createDataFrame(session.sparkContext.parallelize([("n1",)]), f"{name} string")


def same() -> Column:
    return f.expr("cast(key as string) = name")


PLANNED = {
    "a join that sorts": (lambda rows: rows.join(places(rows), same()), r"SortMergeJoin.*broadcast\(table\)"),
    "a join that shuffles": (
        lambda rows: rows.join(places(rows).hint("shuffle_hash"), same()), r"ShuffledHashJoin.*broadcast\(table\)"),
    "a subquery that sorts": (
        lambda rows: rows.join(places(rows), same(), "left_semi"), r"SortMergeJoin.*broadcast\(table\)"),
    "a join of unequals": (
        lambda rows: rows.join(f.broadcast(places(rows)), f.expr("cast(key as string) > name")),
        "BroadcastNestedLoopJoin.*equal"),
    "a product": (lambda rows: rows.crossJoin(places(rows)), "CartesianProduct.*equal"),
    "the log to every task": (lambda rows: f.broadcast(rows).join(places(rows), same()), "hint.*static table"),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANNED)
def test_what_the_physical_plan_shows_is_refused_before_the_takeover(
    spark: SparkSession, wal: FileWal, shards: Shards, what: str
) -> None:
    """A healthy query of the same group goes on."""
    change, said = PLANNED[what]
    with pytest.raises(ConfigError, match=said):
        realtime(spark, wal, shards, transform=change).start()
    assert wal.records() == []


def test_what_spark_alone_refuses_ends_the_query(
    spark: SparkSession, wal: FileWal, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should Spark ever plan the stream in another way than the check."""
    monkeypatch.setattr(query_module, "require_one_pass", lambda log, transform: None)
    running = realtime(spark, wal, shards, transform=PLANNED["a join of unequals"][0]).start()
    with pytest.raises(ConfigError, match="does not run this transformation in real time"):
        running.wait(60)


def test_a_session_that_checks_nothing_is_refused(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    spark.conf.set(transform.ALLOW_LIST, "false")
    try:
        with pytest.raises(ConfigError, match="set it to true"):
            realtime(spark, wal, shards).start()
    finally:
        spark.conf.unset(transform.ALLOW_LIST)


def test_a_join_with_a_static_table_is_allowed(spark: SparkSession, wal: FileWal, shards: Shards) -> None:
    places = spark.createDataFrame([("n1", "one"), ("n2", "two")], ["name", "place"])

    def placed(rows: DataFrame) -> DataFrame:
        found = rows.join(f.broadcast(places), f.expr("cast(key as string) = name"), "left")
        return found.where("op = 'put'").selectExpr("log_index", "target", "key", "coalesce(place, 'none') value")

    wal.append([transaction((b"n%d" % nth, b"x", "")) for nth in range(4)])
    running = realtime(spark, wal, shards, transform=placed).start()
    try:
        shards.wait(wal.last())
    finally:
        running.stop()
    rows = shards.read("a")[0] | shards.read("b")[0]
    assert rows == {b"n0": b"none", b"n1": b"one", b"n2": b"two", b"n3": b"none"}


@pytest.mark.parametrize("what", ["a Python function", "shuffle", "index"])
def test_what_gets_past_the_check_is_caught_in_the_task(
    spark: SparkSession, wal: FileWal, shards: Shards, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second defence, with the first and Spark's own switched off."""
    monkeypatch.setattr(transform, "refusal", lambda jvm, rows: "")
    monkeypatch.setattr(query_module, "require_one_pass", lambda log, transform: None)
    spark.conf.set(transform.ALLOW_LIST, "false")
    wal.append(entries(0, 20))
    running = realtime(spark, wal, shards, transform=REFUSED[what][0])
    try:
        running.start()
        with pytest.raises(ConfigError, match="UNSAFE"):
            running.wait(60)
        if what == "shuffle":  # Nobody was told anything.
            assert [shards.index(name) for name in NAMES] == [0, 0]
    finally:
        spark.conf.unset(transform.ALLOW_LIST)
        running.stop() if running.status["state"] in ("starting", "playing", "silent", "restarting") else None

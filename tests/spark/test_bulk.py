"""Archive, audit and backfill, on real logs and stores."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logplayer.config import Config
from logplayer.core.digest import entry_digest, to_bytes
from logplayer.core.entry import Delivery, HashMap, RangeMap, ShardMap, TargetAdded
from logplayer.core.routing import owner_of
from logplayer.errors import Trimmed, UserError
from logplayer.log.protocol import History
from logplayer.player.ended import STOPPED
from logplayer.player.shell import Shell
from logplayer.spark import event_loop
from logplayer.spark.jobs.archive_job import archive_log
from logplayer.spark.jobs.audit import audit
from logplayer.spark.jobs.backfill import Fill, backfill
from logplayer.spark.jobs.verdict import AuditVerdict
from logplayer.spark.routes import load_routes
from logplayer.spark.sinks.deliver import Destination, play
from logplayer.spark.source.archive import open_archive
from logplayer.wire.entries import decode_transaction, split_transaction
from tests.spark.spark_support import FileWal, Shards, transaction, until

TWO = HashMap(("a", "b"))


def some(count: int, seed: int = 1, keys: int = 200) -> list[bytes]:
    """Transactions of a few puts and deletes each, on few keys."""
    rng = random.Random(seed)
    return [
        transaction(
            *(
                (b"k%d" % rng.randrange(keys), rng.choice([None, rng.randbytes(9)]), "")
                for _ in range(rng.randint(1, 3))
            )
        )
        for _ in range(count)
    ]


def expected(wal: FileWal, target: str, shard_map: ShardMap, through: int = 2**60) -> tuple[dict[bytes, bytes], int]:
    """What the target must hold, worked out in the plainest way."""
    content: dict[bytes, bytes] = {}
    total = 0
    owner = owner_of(shard_map)
    for record in wal.records():
        if record.kind or record.index > through:
            continue
        mine = b"".join(m.encoded for m in split_transaction(record.payload) if (m.target or owner(m.key)) == target)
        if mine:
            total += entry_digest(record.index, mine)
            for key, value in decode_transaction(mine):
                content.pop(key, None)
                if value is not None:
                    content[key] = value
    return content, total % 2**128


def deliver(wal: FileWal, shards: Shards, shard_map: ShardMap) -> None:
    """Fill the shards from the log by the protocol, without a player."""
    info = event_loop.run(wal.log.info())
    routes = event_loop.run(load_routes(wal.log, shard_map))
    for name, address in shards.addresses.items():
        messages = [
            Delivery(record.index, payload, chain=record.chain)
            for record in wal.records()
            if not record.kind
            for payload in routes.split(record.index, record.payload, (name,)).values()
        ]
        through = History(info.last, info.chain)
        play(Destination(name, address, info.log_id, 1), lambda index, all_of=messages: all_of, through)  # type: ignore[misc]


# --- Archive ---


def test_the_archive_and_the_tail_are_one_log(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    wal.append(some(450))
    path = str(tmp_path / "archive")
    assert archive_log(spark, wal.address, path, 100) == (400, 4, 400, 450)
    event_loop.run(wal.log.trim(330))
    wal.append(some(30, seed=2))
    table = spark.read.format("logplayer").options(log=wal.address, raw="true", archive=path).load()
    rows = table.orderBy("log_index").collect()
    assert [row.log_index for row in rows] == list(range(1, 481))
    kept = {record.index: record.payload for record in wal.records()}
    assert all(row.payload == kept[row.log_index] for row in rows if row.log_index > 330)
    assert table.where("log_index between 95 and 105").count() == 11
    # The same for rows, and for a stream that starts in the archive and ends in the tail.
    stream = spark.readStream.format("logplayer").options(log=wal.address, archive=path, map="hash:a,b").load()
    query = stream.writeStream.format("memory").queryName("archived").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.table("archived").select("log_index").distinct().count() == 480


def test_archiving_again_adds_only_what_is_new(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    wal.append(some(250))
    path = tmp_path / "archive"
    archive_log(spark, wal.address, str(path), 100)
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*.parquet")}
    (path / "first=00000000000000000101" / ".half.tmp").write_bytes(b"what a crash left")
    wal.append(some(70, seed=3))
    assert archive_log(spark, wal.address, str(path), 999) == (100, 1, 300, 320)
    after = {file: file.stat().st_mtime_ns for file in path.rglob("*.parquet")}
    assert {file: after[file] for file in before} == before
    assert spark.read.parquet(str(path)).count() == 300


def test_what_was_trimmed_too_early_is_said(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    wal.append(some(300))
    archive_log(spark, wal.address, str(tmp_path / "archive"), 100)
    Path(open_archive(tmp_path / "archive").file(101)).unlink()
    event_loop.run(wal.log.trim(150))
    with pytest.raises(Trimmed, match="entry 101 was trimmed before it was archived"):
        archive_log(spark, wal.address, str(tmp_path / "archive"), 100)


# --- Audit ---


@pytest.fixture
def filled(wal: FileWal, tmp_path: Path) -> Shards:
    wal.append(some(400))
    shards = Shards(tmp_path, ("a", "b"))
    deliver(wal, shards, TWO)
    shards.stop()
    return shards


def run_audit(spark: SparkSession, wal: FileWal, shards: Shards) -> dict[str, AuditVerdict]:
    stores = {name: f"sqlite:{path}" for name, path in shards.paths.items()}
    return {v.target: v for v in audit(spark, wal.address, stores=stores, first_map=TWO)}


def test_right_targets_are_right(spark: SparkSession, wal: FileWal, filled: Shards) -> None:
    verdicts = run_audit(spark, wal, filled)
    assert all(verdict.right and verdict.content_checked for verdict in verdicts.values())
    for name, verdict in verdicts.items():
        content, digest = expected(wal, name, TWO)
        assert (verdict.keys, verdict.digest) == (len(content), digest)
        assert filled.read(name)[0] == content


def last_writer(wal: FileWal, key: bytes) -> int:
    writers = [r.index for r in wal.records() if not r.kind and key in dict(decode_transaction(r.payload))]
    return writers[-1]


def test_a_changed_row_is_named(spark: SparkSession, wal: FileWal, filled: Shards) -> None:
    db = sqlite3.connect(filled.paths["a"])
    [key] = db.execute("SELECT key FROM data ORDER BY random() LIMIT 1").fetchone()
    db.execute("UPDATE data SET value = x'00' WHERE key = ?", (key,))
    db.commit()
    verdicts = run_audit(spark, wal, filled)
    assert verdicts["b"].right
    assert not verdicts["a"].right
    assert verdicts["a"].first == last_writer(wal, key)
    assert (verdicts["a"].differences[0].key, verdicts["a"].differences[0].what) == (key, "has another value")


def test_a_lost_row_and_a_strange_row_are_named(spark: SparkSession, wal: FileWal, filled: Shards) -> None:
    db = sqlite3.connect(filled.paths["b"])
    [key] = db.execute("SELECT key FROM data LIMIT 1").fetchone()
    db.execute("DELETE FROM data WHERE key = ?", (key,))
    db.execute("INSERT INTO data VALUES (?, ?)", (b"nobody wrote this", b"x"))
    db.commit()
    verdict = run_audit(spark, wal, filled)["b"]
    assert verdict.first == last_writer(wal, key)
    assert {(d.key, d.what) for d in verdict.differences} == {
        (key, "is missing"),
        (b"nobody wrote this", "is there, and no entry wrote it"),
    }


@pytest.mark.parametrize(("sign", "what"), [(1, "was applied twice"), (-1, "was not applied")])
def test_an_entry_doubled_or_left_out_is_named(
    spark: SparkSession, wal: FileWal, filled: Shards, sign: int, what: str
) -> None:
    """By the digest alone: the content may look right, as puts are idempotent."""
    entry = wal.records()[123]
    owner = owner_of(TWO)
    mutations = split_transaction(entry.payload)
    name = owner(mutations[0].key)
    mine = b"".join(m.encoded for m in mutations if owner(m.key) == name)
    db = sqlite3.connect(filled.paths[name])
    digest = (filled.read(name)[2] + sign * entry_digest(entry.index, mine)) % 2**128
    db.execute("UPDATE position SET digest = ?", (to_bytes(digest),))
    db.commit()
    verdict = run_audit(spark, wal, filled)[name]
    assert not verdict.right
    assert verdict.first == entry.index
    assert verdict.differences[0].what == what


def test_an_older_effect_applied_again_is_named(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    wal.append([transaction((b"k", b"old", "a")), transaction((b"k", b"new", "a")), transaction((b"z", b"z", "a"))])
    shards = Shards(tmp_path, ("a",))
    deliver(wal, shards, TWO)
    shards.stop()
    db = sqlite3.connect(shards.paths["a"])
    db.execute("UPDATE data SET value = 'old' WHERE key = ?", (b"k",))
    db.commit()
    assert run_audit(spark, wal, shards)["a"].first == 2


def test_an_audit_needs_the_whole_log(spark: SparkSession, wal: FileWal, filled: Shards, tmp_path: Path) -> None:
    archive_log(spark, wal.address, str(tmp_path / "archive"), 100)
    event_loop.run(wal.log.trim(200))
    with pytest.raises(Trimmed, match="with --archive"):
        run_audit(spark, wal, filled)
    stores = {name: f"sqlite:{path}" for name, path in filled.paths.items()}
    where = str(tmp_path / "archive")
    assert all(v.right for v in audit(spark, wal.address, stores=stores, archive=where, first_map=TWO))


# --- Backfill ---


def test_new_shards_are_filled_and_handed_over_while_the_log_grows(
    spark: SparkSession, wal: FileWal, tmp_path: Path
) -> None:
    """A player runs, the log grows, and a new map with two more shards comes into force under it."""
    address = wal.serve()
    old = Shards(tmp_path, ("a", "b"))
    shell = Shell(wal.log, Config(targets=old.addresses, map=TWO, group="g"))
    playing = event_loop.submit(shell.run())
    wal.append(some(2500))
    until(lambda: hasattr(shell, "core") and shell.core.current >= 2500)
    stop = threading.Event()

    def grow() -> None:
        seed = 10
        while not stop.wait(0.02):
            seed += 1
            wal.append(some(5, seed))

    growing = threading.Thread(target=grow)
    growing.start()
    new = Shards(tmp_path, ("c", "d"))
    four = HashMap(("c", "d"))
    try:
        fills = [Fill("c", new.addresses["c"]), Fill("d", new.addresses["d"])]
        done = backfill(spark, address, fills, new_map=four, first_map=TWO)
        assert {filled.index for filled in done} == {done[0].index}
        assert done[0].index > 2500
        time.sleep(0.5)
    finally:
        stop.set()
        growing.join()
    end = wal.append(some(20, seed=5))[-1]
    new.wait(end)
    event_loop.background().call_soon_threadsafe(shell.request_stop)
    assert playing.result(30) == STOPPED
    new.stop()
    old.stop()
    for name in "cd":
        content, _, digest = new.read(name)
        assert (content, digest) == expected(wal, name, four)
    stores = {name: f"sqlite:{path}" for name, path in {**old.paths, **new.paths}.items()}
    assert [v.right for v in audit(spark, address, stores=stores, first_map=TWO)] == [True] * 4


def test_files_are_built_in_one_sorted_pass(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    wal.append(some(3000))
    path = tmp_path / "new.db"
    wal.close()
    three = HashMap(("x", "y", "z"))
    fills = [Fill("x", path=str(path)), Fill("y", path=str(tmp_path / "y.db")), Fill("z", path=str(tmp_path / "z.db"))]
    done = {filled.target: filled for filled in backfill(spark, wal.address, fills, new_map=three)}
    wal = FileWal(wal.path)
    shards = Shards(tmp_path, ("y", "z"))
    shards.stop()
    for name in "yz":
        content, index, digest = shards.read(name)
        assert (content, digest) == expected(wal, name, three)
        assert index == done[name].index == 3001
    routes = event_loop.run(load_routes(wal.log))
    assert routes.starts == {"x": 3001, "y": 3001, "z": 3001}
    wal.close()


def test_a_map_that_moves_keys_into_an_old_target_is_refused(spark: SparkSession, wal: FileWal) -> None:
    wal.append(some(10))
    old = RangeMap((b"m",), ("a", "b"))
    wal.decide(TargetAdded("a", 0), old, (("a", "tcp://127.0.0.1:1"), ("b", "tcp://127.0.0.1:2")))
    address = wal.serve()
    with pytest.raises(UserError, match="gives a keys that it does not have"):
        backfill(spark, address, [Fill("c", "tcp://127.0.0.1:1")], new_map=HashMap(("a", "c")))
    with pytest.raises(UserError, match="is a member already"):
        backfill(spark, address, [Fill("a", "tcp://127.0.0.1:1")])

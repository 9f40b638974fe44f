"""``lp.spark.once`` in a ``foreachBatch``: once, through failed tasks, batches that run again and a killed driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import logplayer as lp
from logplayer.errors import ConfigError, LogPlayerError, UserError
from logplayer.spark.folders import open_folder
from logplayer.spark.sinks import once as module
from logplayer.spark.sinks.parts import Part, messages_of, require_deliverable, stage_parts
from logplayer.wire.entries import decode_transaction
from tests import ROOT
from tests.spark.spark_support import FileWal, Shards, transaction
from tests.spark.test_sinks import appended, drop_files, forget_last_commit

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


def fails_once(stage: Any, *args: Any) -> Iterator[pa.Array]:
    """The first attempt of every task fails after its rows are written."""
    yield from stage(*args)
    context = TaskContext.get()
    if context is not None and context.attemptNumber() == 0:
        raise RuntimeError("the task dies after it wrote")


def run(spark: SparkSession, folder: Path, each: Any, schema: str = "key STRING, value STRING") -> None:
    rows = spark.readStream.schema(schema).json(str(folder / "in"))
    query = rows.writeStream.foreachBatch(each).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def test_a_batch_reaches_the_log_once_beside_other_work(
    spark: SparkSession, wal: FileWal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, staging, seen = wal.serve(), str(tmp_path / "staging"), list[int]()

    def each(batch: DataFrame, batch_id: int) -> None:
        seen.append(lp.spark.once(batch, batch_id, log=address, staging=staging))

    def fewer(batch: DataFrame, batch_id: int) -> None:
        each(batch.limit(1), batch_id)

    drop_files(tmp_path / "in", 0, 60)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_stage_rows", partial(fails_once, module._stage_rows))
        run(spark, tmp_path, each)
    forget_last_commit(tmp_path / "checkpoint")
    run(spark, tmp_path, fewer)  # Run again, with other rows: what was decided holds.
    drop_files(tmp_path / "in", 60, 20)
    run(spark, tmp_path, each)
    assert seen == [60, 60, 20]
    assert sorted(appended(wal)) == sorted(b"k%d" % n for n in range(80))
    assert [record.sequence for record in wal.records()] == list(range(1, 81))
    # Another query must not take this one's batches for its own.
    (tmp_path / "other" / "in").mkdir(parents=True)
    drop_files(tmp_path / "other" / "in", 80, 2)
    with pytest.raises(PySparkException, match="belongs to query"):
        run(spark, tmp_path / "other", each)


def test_a_batch_is_delivered_by_tasks_once(
    spark: SparkSession, wal: FileWal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = Shards(tmp_path, ("a", "b", "idle"))
    here = os.getpid()
    given = {"to": "targets", "addresses": shards.option, "staging": str(tmp_path / "staging")}

    def each(batch: DataFrame, batch_id: int) -> None:
        assert os.getpid() == here
        rows = batch.selectExpr("target", "log_index", "key", "concat(value, cast('!' as binary)) value", "op")
        lp.spark.once(rows.repartition(3), batch_id, **given)

    def play() -> None:
        stream = spark.readStream.format("logplayer").options(log=wal.address, maxEntriesPerTrigger="100").load()
        query = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    monkeypatch.setattr("logplayer.spark.sinks.delivery.play", None)  # Whoever delivers in this process fails.
    wal.append([transaction((b"k%d" % (i % 17), b"v%d" % i, "ab"[i % 2])) for i in range(150)])
    play()
    forget_last_commit(tmp_path / "checkpoint")
    play()
    for nth, name in enumerate("ab"):
        expected = {b"k%d" % (i % 17): b"v%d!" % i for i in range(150) if i % 2 == nth}
        content, index, digest = shards.read(name)
        assert (content, index) == (expected, 150)
        from logplayer.core.digest import entry_digest

        parts = [(i + 1, transaction((b"k%d" % (i % 17), b"v%d!" % i, ""))) for i in range(150) if i % 2 == nth]
        assert digest == sum(entry_digest(*part) for part in parts) % 2**128
    assert shards.read("idle")[1] == 150
    late = spark.sql("select 'a' target, 7L log_index, 'k' key, 'v' value")
    with pytest.raises(UserError, match="everything up to 150 was delivered"):
        lp.spark.once(late, 2, **given)
    in_time = spark.sql("select 'a' target, 151L log_index, 'k' key, 'v' value")
    assert lp.spark.once(in_time, 2, **given) == 1  # The refused rows were not decided.
    assert shards.read("a")[1] == 151
    shards.stop()


def test_what_once_needs(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("select 'k' key, 'v' value")
    with pytest.raises(ConfigError, match="needs staging"):
        lp.spark.once(rows, 0, log="file:///x")
    with pytest.raises(ConfigError, match="rows need target and log_index"):
        lp.spark.once(rows, 0, to="targets", addresses="a=grpc://127.0.0.1:1", staging=str(tmp_path))
    with pytest.raises(LogPlayerError, match="needs option"):
        lp.spark.once(rows, 0, staging=str(tmp_path))
    with pytest.raises(AttributeError):
        lp.spark.twice  # noqa: B018


def rows_of(*rows: tuple[str, int, str]) -> pa.RecordBatch:
    names = ("target", "log_index", "key")
    columns = dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True))
    return pa.RecordBatch.from_pydict({**columns, "value": columns["key"]})


def test_parts_are_merged_in_the_order_of_the_log(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    first = stage_parts(folder, 0, [rows_of(("a", 1, "x"), ("b", 1, "n"), ("a", 5, "y")), rows_of(("a", 5, "z"))])
    second = stage_parts(folder, 1, [rows_of(("a", 4, "late"), ("a", 2, "w"), ("a", 5, "end"))])
    parts = [*second.parts, *first.parts]
    found = [
        (m.index, [key.decode() for key, _ in decode_transaction(m.payload)]) for m in messages_of(folder, "a", parts)
    ]
    assert found == [(1, ["x"]), (2, ["w"]), (4, ["late"]), (5, ["y", "z", "end"])]
    assert [m.index for m in messages_of(folder, "b", parts)] == [1]
    assert require_deliverable(parts, 0, ["a", "b"]) == 5
    with pytest.raises(UserError, match="has log_index 1, but everything up to 1"):
        require_deliverable(parts, 1, ["a", "b"])
    with pytest.raises(UserError, match="'b', which has no address"):
        require_deliverable(parts, 0, ["a"])
    assert require_deliverable([], 7, ["a"]) == 7
    assert {Part(*part).rows for part in first.parts} == {3, 1}
    no_target = {"target": [None], "log_index": [1], "key": ["k"], "value": ["v"]}
    with pytest.raises(UserError, match="no target or no log_index"):
        stage_parts(folder, 0, [pa.RecordBatch.from_pydict(no_target)])


_CHILD = """
import os, signal, sys
from pathlib import Path
from logplayer.spark.session import make_session
spark = make_session("child", "local[2]", quiet=True)
import logplayer as lp
from logplayer.spark.sinks import once as module
from tests.spark.test_once import run
folder, address, addresses, died = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def half(place, staging, intent):
    from logplayer.spark.sinks import log
    groups, log.GROUP_COUNT = log._groups, 7
    log._groups = lambda *args: list(groups(*args))[:3]
    log.append_all(place, staging, intent)
    die()

if died == "append": module.append_intent = half
if died == "deliver":
    original = module._deliver
    def part(spark, where, *rest):
        original(spark, where[:1], *rest)
        die()
    module._deliver = part
if died == "decide": module.Staging.intend = die

def each(batch, batch_id):
    lp.spark.once(batch.select("key", "value"), batch_id, log=address, staging=str(folder / "log-staging"))
    lp.spark.once(batch, batch_id, to="targets", addresses=addresses, staging=str(folder / "target-staging"))

run(spark, folder, each, "target STRING, log_index LONG, key STRING, value STRING")
"""


@pytest.mark.soak
def test_a_killed_driver_changes_nothing(wal: FileWal, tmp_path: Path) -> None:
    shards, address = Shards(tmp_path, ("a", "b")), wal.serve()
    (tmp_path / "in").mkdir()
    count = 0
    for nth, died in enumerate(("decide", "append", "deliver", "append", "nowhere")):
        lines = [
            f'{{"target": "{"ab"[n % 2]}", "log_index": {n + 1}, "key": "k{n}", "value": "v{n}"}}'
            for n in range(count, count + 50)
        ]
        count += 50
        (tmp_path / "in" / f"{nth}.json").write_text("\n".join(lines) + "\n")
        words = [sys.executable, "-c", _CHILD, str(tmp_path), address, shards.option, died]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280)
        assert done.returncode == (0 if died == "nowhere" else -signal.SIGKILL), done.stderr[-2000:]
    assert sorted(appended(wal)) == sorted(b"k%d" % n for n in range(count))
    for nth, name in enumerate("ab"):
        content, index, _ = shards.read(name)
        assert content == {b"k%d" % n: b"v%d" % n for n in range(count) if n % 2 == nth}
        assert index == count
    shards.stop()

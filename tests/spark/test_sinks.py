"""DataFrames into the log and into targets: exactly once, whatever is retried, restarted or lost."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from logplayer.core.digest import entry_digest
from logplayer.errors import UserError
from logplayer.spark import event_loop
from logplayer.spark.format import LogPlayerSource
from logplayer.spark.options import parse_options
from logplayer.spark.sinks.log import LogStreamWriter
from logplayer.spark.sinks.targets import TargetWriter
from logplayer.wire.entries import decode_transaction
from tests.spark.spark_support import FileWal, Shards, transaction

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class _FailsOnce:
    """The first attempt of every task fails after its rows are written."""

    def write(self, iterator: Iterator[Any]) -> Any:
        message = super().write(iterator)  # type: ignore[misc]
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the task dies after it wrote")
        return message


class _LogWriter(_FailsOnce, LogStreamWriter):
    pass


class _TargetWriter(_FailsOnce, TargetWriter):
    pass


class FailingSource(LogPlayerSource):
    @classmethod
    def name(cls) -> str:
        return "logplayer_failing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        writer = _TargetWriter if self._options.to == "targets" else _LogWriter
        return writer(self._options, schema)


@pytest.fixture(scope="module")
def failing(spark: SparkSession) -> str:
    spark.dataSource.register(FailingSource)
    return "logplayer_failing"


def drop_files(folder: Path, start: int, count: int) -> None:
    """New input: JSON lines, two files so that a batch has two tasks."""
    folder.mkdir(exist_ok=True)
    for n in range(2):
        lines = [f'{{"key": "k{i}", "value": "v{i}"}}' for i in range(start + n, start + count, 2)]
        (folder / f"{start:06}-{n}.json").write_text("\n".join(lines) + "\n")


def to_log(spark: SparkSession, source: Path, wal: FileWal, checkpoint: Path, sink: str = "logplayer") -> None:
    rows = spark.readStream.schema("key STRING, value STRING").json(str(source))
    query = rows.writeStream.format(sink).option("log", wal.address).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()


def appended(wal: FileWal) -> list[bytes]:
    return [key for record in wal.records() for key, _ in decode_transaction(record.payload)]


def forget_last_commit(checkpoint: Path) -> None:
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)


def test_rows_reach_the_log_once_through_every_fault(
    spark: SparkSession, failing: str, wal: FileWal, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    wal.close()
    drop_files(source, 0, 100)
    to_log(spark, source, wal, checkpoint, failing)  # Every task fails after it wrote.
    drop_files(source, 100, 50)
    to_log(spark, source, wal, checkpoint)  # A restart.
    forget_last_commit(checkpoint)
    to_log(spark, source, wal, checkpoint)  # The last batch runs again.
    drop_files(source, 150, 30)
    to_log(spark, source, wal, checkpoint, failing)
    wal = FileWal(wal.path)
    try:
        keys = appended(wal)
        assert len(keys) == 180
        assert set(keys) == {b"k%d" % i for i in range(180)}
        assert len({record.producer for record in wal.records()}) == 1
        assert [record.sequence for record in wal.records()] == list(range(1, 181))
    finally:
        wal.close()
    assert len(list((checkpoint / "logplayer-sink" / "rows").iterdir())) <= 4


def test_a_half_appended_batch_is_finished_not_repeated(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    """The driver dies in the middle of the appends: what it intended is what the restart appends."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    address = wal.serve()
    drop_files(source, 0, 40)
    rows = spark.readStream.schema("key STRING, value STRING").json(str(source))
    writer = rows.writeStream.format("logplayer").option("log", address).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    staged = checkpoint / "logplayer-sink"
    (staged / "state.json").unlink()  # As if it died after the intent and before the end.
    forget_last_commit(checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert len(appended(wal)) == 40
    drop_files(source, 40, 20)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(appended(wal)) == sorted(b"k%d" % i for i in range(60))


def test_a_table_is_appended(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    address = wal.serve()
    table = spark.sql("select array(named_struct('key', 'a', 'value', 'x', 'op', 'put', 'target', 't')) mutations")
    table.write.format("logplayer").options(log=address, staging=str(tmp_path / "s")).mode("append").save()
    [record] = wal.records()
    assert record.payload == transaction((b"a", b"x", "t"))
    with pytest.raises(PySparkException, match="are not transactions"):
        spark.range(3).write.format("logplayer").options(log=address, staging="/tmp/x").mode("append").save()


def test_an_older_batch_than_the_newest_is_refused(tmp_path: Path) -> None:
    from logplayer.errors import LogPlayerError
    from logplayer.spark.sinks.staging import Staging

    staging = Staging(str(tmp_path))
    staging.intend(7, [], {"n": 0})
    with pytest.raises(LogPlayerError, match="batch 6 comes after batch 7"):
        staging.intend(6, [], {"n": 0})


def log_to_targets(spark: SparkSession, wal: FileWal, shards: Shards, checkpoint: Path, sink: str) -> None:
    stream = spark.readStream.format("logplayer").options(log=wal.address, maxEntriesPerTrigger="100").load()
    big: DataFrame = stream.selectExpr("target", "log_index", "key", "concat(value, cast('!' as binary)) value", "op")
    query = big.writeStream.format(sink).options(
        to="targets", addresses=shards.option, checkpointLocation=str(checkpoint)
    )
    query.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("scheme", ["grpc", pytest.param("tcp", marks=pytest.mark.soak)])
def test_rows_reach_the_targets_once_and_in_order(
    spark: SparkSession, failing: str, wal: FileWal, tmp_path: Path, scheme: str
) -> None:
    shards = Shards(tmp_path, ("a", "b"), scheme)
    checkpoint = tmp_path / "checkpoint"
    wal.append([transaction((b"k%d" % (i % 17), b"v%d" % i, "ab"[i % 2])) for i in range(150)])
    log_to_targets(spark, wal, shards, checkpoint, failing)
    forget_last_commit(checkpoint)
    log_to_targets(spark, wal, shards, checkpoint, "logplayer")
    wal.append([transaction((b"k%d" % (i % 17), b"w%d" % i, "ab"[i % 2])) for i in range(40)])
    log_to_targets(spark, wal, shards, checkpoint, "logplayer")
    for nth, name in enumerate("ab"):
        content, index, digest = shards.read(name)
        expected: dict[bytes, bytes] = {}
        total = 0
        for record in wal.records():
            for key, value in decode_transaction(record.payload):
                if record.index % 2 == (nth + 1) % 2:
                    expected[key] = (value or b"") + b"!"
                    total += entry_digest(record.index, transaction((key, (value or b"") + b"!", "")))
        assert content == expected
        assert index >= 189
        assert digest == total % 2**128
    shards.stop()


def test_a_late_row_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    shards = Shards(tmp_path, ("a",))
    source = tmp_path / "in"
    source.mkdir()

    def play(text: str, name: str) -> None:
        (source / name).write_text(text)
        rows = spark.readStream.schema("target STRING, log_index LONG, key STRING, value STRING").json(str(source))
        query = rows.writeStream.format("logplayer").options(to="targets", addresses=shards.option)
        started = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        started.awaitTermination()

    play('{"target": "a", "log_index": 10, "key": "k", "value": "v"}\n', "1.json")
    with pytest.raises(PySparkException, match=re.escape("everything up to 10 was delivered")):
        play('{"target": "a", "log_index": 9, "key": "k", "value": "w"}\n', "2.json")
    assert shards.read("a")[0] == {b"k": b"v"}
    shards.stop()


def target_rows(*rows: tuple[str, int, str]) -> pa.RecordBatch:
    given = [{"target": target, "log_index": index, "key": key, "value": "v"} for target, index, key in rows]
    return pa.RecordBatch.from_pylist(given)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [(("a", 7, "late"), "everything up to 10 was delivered"), (("b", 11, "unknown"), "'b', which has no address")],
)
def test_a_query_that_is_corrected_after_a_refusal_goes_on(
    tmp_path: Path, wrong: tuple[str, int, str], what: str
) -> None:
    """What is refused is not decided: the batch runs again with the rows of the corrected query."""
    shards = Shards(tmp_path, ("a",))
    given = {"to": "targets", "addresses": shards.option, "staging": str(tmp_path / "s")}
    schema = StructType().add("target", "string").add("log_index", "long").add("key", "string").add("value", "string")
    writer = TargetWriter(parse_options(given), schema)

    def play(number: int, *rows: tuple[str, int, str]) -> None:
        messages: list[WriterCommitMessage | None] = [writer.write(iter([target_rows(*rows)]))]
        try:
            writer.commit(messages, number)
        except UserError:
            writer.abort(messages, number)
            raise

    play(0, ("a", 10, "first"))
    with pytest.raises(UserError, match=re.escape(what)):
        play(1, ("a", 11, "second"), wrong)
    assert shards.index("a") == 10
    play(1, ("a", 11, "second"))
    play(2, ("a", 12, "third"))
    assert shards.read("a")[:2] == ({b"first": b"v", b"second": b"v", b"third": b"v"}, 12)
    shards.stop()


def test_a_query_that_was_fenced_stops(spark: SparkSession, wal: FileWal, tmp_path: Path) -> None:
    from logplayer.spark.sinks.deliver import Destination, play

    shards = Shards(tmp_path, ("a", "b"))
    wal.append([transaction((b"k", b"v", "ab"[i % 2])) for i in range(10)])
    log_to_targets(spark, wal, shards, tmp_path / "c", "logplayer")
    from logplayer.target.client import position

    log_id = event_loop.run(position(shards.addresses["a"], "a")).log_id
    play(Destination("a", shards.addresses["a"], log_id, 99), lambda index: [], shards.index("a"))  # Opens, no more.
    wal.append([transaction((b"k", b"w", "a"))])
    with pytest.raises(PySparkException, match="FENCED"):
        log_to_targets(spark, wal, shards, tmp_path / "c", "logplayer")
    assert shards.read("a")[0] == {b"k": b"v!"}
    shards.stop()

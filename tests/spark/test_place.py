"""A stream goes on in the log that it has read, and in no other: a restored or replaced one is noticed."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from logplayer.errors import LogDiverged
from logplayer.log.protocol import Info
from logplayer.spark import event_loop
from logplayer.spark.options import parse_options
from logplayer.spark.source import place as module
from logplayer.spark.source.place import ReadUpTo
from logplayer.spark.source.several import SeveralLogsStream
from logplayer.spark.source.stream import LogStreamReader
from tests.spark.spark_support import FileWal, transaction

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_AGAIN_SECONDS", 0.05)


class Restored:
    """A log that had 100 entries when it was read, and is put back to its first 50."""

    def __init__(self, folder: Path) -> None:
        self._path, self._backup = folder / "restored", folder / "backup"
        self._append(50, "shop")
        shutil.copytree(self._path, self._backup)
        self._append(50, "later")
        self.address = f"file://{self._path}"

    def _append(self, count: int, producer: str) -> None:
        wal = FileWal(self._path)
        wal.append([transaction((b"k%d" % i, producer.encode(), "a")) for i in range(count)], producer)
        wal.close()

    def restore(self, more: int = 0) -> None:
        """The backup takes the log's place, and gets this many entries."""
        shutil.rmtree(self._path)
        shutil.copytree(self._backup, self._path)
        if more:
            self._append(more, "anew")


@pytest.fixture
def restored(tmp_path: Path) -> Restored:
    return Restored(tmp_path)


@pytest.fixture
def open_stream() -> Iterator[Callable[..., LogStreamReader]]:
    opened = []

    def make(log: str, **options: str) -> LogStreamReader:
        opened.append(LogStreamReader(parse_options({"log": log, "pollMs": "0", **options})))
        return opened[-1]

    yield make
    for reader in opened:
        reader.stop()


def everything(reader: LogStreamReader) -> dict[str, Any]:
    return reader.latestOffset(reader.initialOffset(), ALL)


def read(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    parts = reader.partitions(start, end)
    return sorted(index for part in parts for batch in reader.read(part) for index in batch.column(0).to_pylist())


def test_an_offset_names_the_entry_and_not_only_its_index(
    wal: FileWal, open_stream: Callable[..., LogStreamReader]
) -> None:
    wal.append([transaction((b"k%d" % i, b"v", "a")) for i in range(30)])
    info, records = event_loop.run(wal.log.info()), wal.records()
    reader = open_stream(wal.address)
    assert reader.initialOffset() == {"log_index": 0, "log_id": info.log_id, "chain": ""}
    some = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert some["log_index"] == 30  # The option says how many a batch may have, and there is none.
    some = open_stream(wal.address, maxEntriesPerTrigger="10").latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert some == {"log_index": 10, "log_id": info.log_id, "chain": records[9].chain.hex()}
    assert reader.latestOffset(some, ALL)["chain"] == info.chain.hex()
    assert ReadUpTo.of(some).offset == some
    event_loop.run(wal.log.trim(10))
    assert reader.latestOffset(some, ALL)["log_index"] == 30  # Its value is that of the trim point.
    event_loop.run(wal.log.trim(20))
    assert reader.latestOffset(some, ALL)["log_index"] == 30  # Nothing to compare with; the tasks find what is lost.


def test_a_checkpoint_of_an_earlier_version_is_read(wal: FileWal, open_stream: Callable[..., LogStreamReader]) -> None:
    wal.append([transaction((b"k", b"v", "a"))] * 5)
    reader = open_stream(wal.address)
    assert reader.latestOffset({"log_index": 5}, ALL) == {"log_index": 5}
    wal.append([transaction((b"k", b"v", "a"))])
    end = reader.latestOffset({"log_index": 5}, ALL)
    assert set(end) == {"log_index", "log_id", "chain"}
    assert read(reader, {"log_index": 5}, end) == [6]
    with pytest.raises(LogDiverged, match="ends at 6, and this query has read up to 9"):
        reader.latestOffset({"log_index": 9}, ALL)


@pytest.mark.parametrize(
    ("more", "what"),
    [(0, "it ends at 50, and this query has read up to 100"), (60, "what it has up to 100 is not what this query")],
)
def test_a_log_that_was_restored_is_not_skipped_over(
    restored: Restored, open_stream: Callable[..., LogStreamReader], more: int, what: str
) -> None:
    begin = open_stream(restored.address).initialOffset()
    end = everything(open_stream(restored.address))
    restored.restore(more)
    after = open_stream(restored.address)
    with pytest.raises(LogDiverged, match=what):
        after.latestOffset(end, ALL)
    with pytest.raises(LogDiverged, match="failOnDataLoss"):
        after.partitions(begin, end)  # A batch that was planned, and runs again.


@pytest.mark.parametrize("more", [0, 60])
def test_a_stream_that_may_lose_entries_says_where_it_goes_on(
    restored: Restored, open_stream: Callable[..., LogStreamReader], more: int, caplog: pytest.LogCaptureFixture
) -> None:
    begin = open_stream(restored.address).initialOffset()
    end = everything(open_stream(restored.address))
    restored.restore(more)
    reader = open_stream(restored.address, failOnDataLoss="false")
    here = min(100, 50 + more)
    with caplog.at_level(logging.WARNING):
        at = reader.latestOffset(end, ALL)
    assert f"goes on after {here}" in caplog.text
    assert at["log_index"] == here
    assert read(reader, end, at) == []
    assert read(reader, begin, end) == list(range(1, here + 1))  # A batch that was planned, and runs again.
    caplog.clear()
    restored.restore(more + 10)
    again = open_stream(restored.address, failOnDataLoss="false")
    new = again.latestOffset(at, ALL)
    assert read(again, at, new) == list(range(here + 1, 50 + more + 10 + 1))
    assert not caplog.text


def test_another_log_is_not_taken_for_the_one_that_was_read(
    restored: Restored, wal: FileWal, open_stream: Callable[..., LogStreamReader]
) -> None:
    wal.append([transaction((b"k", b"v", "a"))] * 120)
    end = everything(open_stream(restored.address))
    with pytest.raises(LogDiverged, match=f"this query has read log {end['log_id']} up to 100"):
        open_stream(wal.address).latestOffset(end, ALL)


def test_a_replica_that_lags_is_asked_again(
    wal: FileWal, open_stream: Callable[..., LogStreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_AGAIN_SECONDS", 3600.0)
    wal.append([transaction((b"k", b"v", "a"))] * 5)
    reader = open_stream(wal.address)
    end = everything(reader)
    log = reader._opened()
    ask, answers = log.info, [3, 4, 4]

    async def info() -> Info:
        found = await ask()
        return found._replace(last=answers.pop(0)) if answers else found

    monkeypatch.setattr(log, "info", info)
    assert reader.latestOffset(end, ALL) == end
    assert not answers


def test_a_query_that_begins_after_the_logs_end_waits_for_it(
    wal: FileWal, open_stream: Callable[..., LogStreamReader]
) -> None:
    wal.append([transaction((b"k", b"v", "a"))] * 5)
    reader = open_stream(wal.address, startingIndex="10")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    wal.append([transaction((b"k", b"v", "a"))] * 7)
    assert read(reader, start, reader.latestOffset(start, ALL)) == [10, 11, 12]


def test_each_of_several_logs_is_compared(restored: Restored, wal: FileWal) -> None:
    wal.append([transaction((b"k", b"v", "a"))] * 5)

    def stream(**options: str) -> SeveralLogsStream:
        logs = f"eu={wal.address},us={restored.address}"
        return SeveralLogsStream(parse_options({"logs": logs, "pollMs": "0", **options}))

    reader = stream()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    reader.stop()
    assert {name: place["log_index"] for name, place in end.items()} == {"eu": 5, "us": 100}
    restored.restore(60)
    wal.append([transaction((b"k", b"v", "a"))] * 5)
    after = stream()
    with pytest.raises(LogDiverged, match="up to 100 is not what"):
        after.latestOffset(end, ALL)
    assert after.latestOffset({"eu": 5}, ALL)["eu"]["log_index"] == 10  # As an earlier version kept it.
    after.stop()
    lossy = stream(failOnDataLoss="false")
    at = lossy.latestOffset(end, ALL)
    assert {name: place["log_index"] for name, place in at.items()} == {"eu": 5, "us": 100}
    new = lossy.latestOffset(at, ALL)
    assert {name: place["log_index"] for name, place in new.items()} == {"eu": 10, "us": 110}
    assert read(lossy, at, new) == [*range(6, 11), *range(101, 111)]
    lossy.stop()


def test_a_query_on_a_restored_log_fails_or_goes_on_as_it_was_asked_to(
    spark: SparkSession, restored: Restored, tmp_path: Path
) -> None:
    def play(lost: str) -> None:
        given = {"log": restored.address, "failOnDataLoss": lost, "raw": "true"}
        stream = spark.readStream.format("logplayer").options(**given).load()
        query = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
        query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    play("true")
    restored.restore()
    with pytest.raises(PySparkException, match="ends at 50, and this query has read up to 100"):
        play("true")
    play("false")
    restored.restore(60)
    play("true")
    rows = [row.log_index for row in spark.read.parquet(str(tmp_path / "out")).select("log_index").collect()]
    assert sorted(rows) == sorted([*range(1, 101), *range(51, 111)])

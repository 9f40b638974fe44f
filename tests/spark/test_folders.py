"""A directory on this machine and one on S3 keep the same promises; elsewhere what would not be safe is refused."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pyspark.sql import SparkSession

from logplayer.core.entry import HashMap
from logplayer.errors import ConfigError, LogPlayerError, Unavailable, UserError
from logplayer.spark import folders
from logplayer.spark.folders import Folder, LocalFolder, open_file, open_folder, scratch
from logplayer.spark.jobs.archive_job import archive_log
from logplayer.spark.jobs.audit import audit
from logplayer.spark.jobs.backfill import Fill, backfill
from logplayer.spark.options import parse_options
from logplayer.spark.sinks.once import once
from logplayer.spark.sinks.staging import Staging
from logplayer.spark.source.archive import make_archive, open_archive
from logplayer.spark.source.table import LogReader, read_partition
from tests.servers import s3_server
from tests.spark.spark_support import FileWal, transaction
from tests.spark.test_jobs_without_spark import NO_SPARK, here

__all__ = ["here"]

TWO = HashMap(("a", "b"))
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """An address on S3 that this test alone uses; ``{}`` is for a name in it."""
    for key, value in KEYS.items():
        monkeypatch.setenv(key, value)
    return f"s3a://bucket/{tmp_path.name}/{{}}?endpoint_override={server}&scheme=http&region=us-east-1"


@pytest.fixture(params=["a directory", "S3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    place = str(tmp_path / "x") if request.param == "a directory" else request.getfixturevalue("bucket").format("x")
    return open_folder(place)


def test_a_file_is_made_once(folder: Folder) -> None:
    assert folder.read("a.json") is None
    assert folder.put_if_absent("a.json", b"1")
    assert not folder.put_if_absent("a.json", b"2")
    assert folder.read("a.json") == b"1"
    folder.put("a.json", b"3")
    assert folder.read("a.json") == b"3"
    folder.remove("a.json")
    folder.remove("a.json")
    assert folder.read("a.json") is None


def test_of_many_writers_one_makes_the_file(folder: Folder) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda n: folder.put_if_absent("one", b"%d" % n), range(8)))
    assert sum(made) == 1
    assert folder.read("one") == b"%d" % made.index(True)


def test_a_large_file_has_its_name_when_it_is_whole(folder: Folder) -> None:

    def break_off() -> None:
        with folder.write("sub/big") as file:
            file.write(bytes(1 << 20))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert folder.names() == {}
    for content in (b"first", b"second"):
        with folder.write("sub/big") as file:
            file.write(content)
    with folder.write_own("own") as file:
        file.write(b"mine")
    assert folder.names() == {"sub/big": 6, "own": 4}
    with open_file(pickle.loads(pickle.dumps(folder)).file("sub/big")) as found:
        assert found.read() == b"second"
    folder.clear()
    assert folder.names() == {}


def test_scratch_is_gone_afterwards(folder: Folder) -> None:
    with scratch(folder.place, "test") as place:
        open_folder(place).put("x", b"1")
        assert len(folder.names()) == 1
    assert folder.names() == {}


def test_an_intent_that_is_there_holds(folder: Folder) -> None:
    """Two drivers of one query: the slower one finds the other's intent and carries that out."""
    first, second = Staging(folder.place), Staging(folder.place)
    first.intend(0, [], {"n": 1})
    assert second.intend(0, [], {"n": 2}).state == {"n": 1}
    first.finish(first.intend(1, [], {}), {"n": 3})
    assert [name for name in folder.names() if name.startswith("intent")] == ["intent-000000000001.json"]
    assert second.state() == {"n": 3}


class BusyBucket:
    """S3 as it answers a put while another one of the key is on its way: 409, some times; no server here does it."""

    def __init__(self, conflicts: int) -> None:
        self.conflicts = conflicts
        self.objects: dict[str, bytes] = {}

    def put_object(self, *, Key: str, Body: bytes, **given: str) -> None:
        if self.conflicts:
            self.conflicts -= 1
            said = {"Error": {"Code": "ConditionalRequestConflict"}, "ResponseMetadata": {"HTTPStatusCode": 409}}
            raise ClientError(said, "PutObject")
        if given.get("IfNoneMatch") and Key in self.objects:
            said = {"Error": {"Code": "PreconditionFailed"}, "ResponseMetadata": {"HTTPStatusCode": 412}}
            raise ClientError(said, "PutObject")
        self.objects[Key] = Body


def test_a_put_that_met_another_one_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "CONFLICT_SECONDS", 0.0)
    folder = open_folder("s3://bucket/x?region=us-east-1")
    busy = BusyBucket(2)
    monkeypatch.setattr(folders, "_client", lambda place: busy)
    assert folder.put_if_absent("one", b"1")
    busy.conflicts = 2
    assert not folder.put_if_absent("one", b"2")
    assert busy.objects == {"x/one": b"1"}
    busy.conflicts = 1_000
    with pytest.raises(Unavailable, match="ConditionalRequestConflict"):
        folder.put_if_absent("other", b"1")  # Nothing says that it is there.


class _Lost(LocalFolder):
    """Says of every conditional put that the file is there, though nobody has made it."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return False


def test_a_batch_whose_intent_is_not_there_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    staging = Staging(str(tmp_path))
    staging.finish(staging.intend(0, [], {"n": 0}), {"n": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "folder", _Lost(str(tmp_path)))
        with pytest.raises(Unavailable, match="batch 1"):
            staging.intend(1, [], {})
    assert staging.intend(1, [], {}).batch == 1
    empty = Staging(str(tmp_path / "new"))
    empty.folder = _Lost(empty.folder.place)
    with pytest.raises(Unavailable, match="batch 0"):
        empty.intend(0, [], {})


@pytest.mark.parametrize("scheme", ["hdfs", "gs", "abfss"])
def test_what_cannot_be_made_under_a_condition_is_refused(scheme: str) -> None:
    folder = open_folder(f"{scheme}://host/x")
    with pytest.raises(ConfigError, match="not written to safely"):
        folder.put_if_absent("a", b"")
    with pytest.raises(ConfigError, match="not written to safely"):
        Staging(folder.place)


def test_places_that_are_none() -> None:
    for place, what in (("ftp://h/x", "is not a place"), ("file:x", "write file:///path")):
        with pytest.raises(UserError, match=what):
            open_folder(place)
    local = open_folder("file:///var/x")
    assert isinstance(local, LocalFolder)
    assert local.file("y") == "/var/x/y"


def test_a_bucket_that_is_not_there_is_one_line(bucket: str) -> None:
    with pytest.raises(Unavailable, match=r"cannot be written: .*NoSuchBucket"):
        open_folder(bucket.format("x").replace("//bucket/", "//none/")).put("x", b"")


@pytest.mark.usefixtures("here")
def test_archive_audit_and_backfill_on_s3(wal: FileWal, bucket: str, tmp_path: Path) -> None:
    wal.append([transaction((b"k%d" % (n % 50), b"v%d" % n, "")) for n in range(250)])
    where, temporary = bucket.format("archive"), bucket.format("scratch")
    assert archive_log(NO_SPARK, wal.address, where, 100) == (200, 2, 200, 250)
    assert archive_log(NO_SPARK, wal.address, where, 100) == (0, 0, 200, 250)
    wal.append([transaction((b"z", b"last", ""))])
    address, records = wal.serve(), wal.records()
    from logplayer.spark import event_loop

    event_loop.run(wal.log.trim(150))
    options = parse_options({"log": address, "archive": where, "raw": "true"})
    rows = [
        row for part in LogReader(options).partitions() for batch in read_partition(options, part) for row in batch[0]
    ]
    assert [row.as_py() for row in rows] == [record.index for record in records]
    fills = [Fill(name, path=str(tmp_path / f"{name}.db")) for name in TWO.targets]
    given: dict[str, Any] = {"archive": where, "scratch": temporary, "first_map": TWO}
    backfill(NO_SPARK, address, fills, **given)
    stores = {name: f"sqlite:{tmp_path}/{name}.db" for name in TWO.targets}
    assert [verdict.right for verdict in audit(NO_SPARK, address, stores=stores, **given)] == [True, True]
    assert open_folder(temporary).names() == {}


def test_two_that_make_an_archive_agree(wal: FileWal, bucket: str) -> None:
    from logplayer.spark import event_loop

    wal.append([transaction((b"k", b"v", "a"))])
    info = event_loop.run(wal.log.info())
    one, other = make_archive(bucket.format("m"), info, 10), make_archive(bucket.format("m"), info, 20)
    assert one == other == open_archive(bucket.format("m"), info.log_id)
    with pytest.raises(LogPlayerError, match="is of log"):
        open_archive(bucket.format("m"), "another")


def test_a_sink_keeps_its_state_on_s3(
    spark: SparkSession, wal: FileWal, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in KEYS.items():
        monkeypatch.setitem(spark.sparkContext.environment, key, value)
    address, staging = wal.serve(), bucket.format("s")
    rows = spark.range(0, 40, 1, 2).selectExpr("concat('k', id) key", "string(id) value")
    for _ in range(2):
        assert once(rows, 0, log=address, staging=staging) == 40
    assert once(rows.limit(3), 1, log=address, staging=staging) == 3
    assert len(wal.records()) == 43

"""What the bulk jobs find out before they start Spark, and what they make of entries that cannot be read or applied.

Their tasks run in this process: what Spark adds to them is tested in test_bulk.py.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from logplayer.cli.main import cli
from logplayer.core.entry import Delivery, Quarantined, Session, TargetAdded
from logplayer.core.fence import Batch
from logplayer.errors import (
    CorruptEntry,
    LogPlayerError,
    LogUnavailable,
    Poison,
    TargetError,
    Trimmed,
    Unavailable,
    UserError,
)
from logplayer.log.chain import chain_at
from logplayer.log.protocol import History
from logplayer.spark import event_loop, progress
from logplayer.spark.jobs import audit as audit_job
from logplayer.spark.jobs import backfill as backfill_job
from logplayer.spark.jobs.archive_job import archive_log
from logplayer.spark.jobs.audit import audit
from logplayer.spark.jobs.backfill import Fill, backfill
from logplayer.spark.jobs.verdict import AuditVerdict
from logplayer.target.protocol import Change
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.testing.conformance.log_harness import flip_in_files
from tests.servers import free_port
from tests.spark.spark_support import FileWal, Shards, transaction
from tests.spark.test_bulk import TWO, deliver, some
from tests.spark.test_fold import UNKNOWN_OP, field

NO_SPARK: Any = "no session"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run in this process, one after the other."""

    def run_tasks(_: object, __: str, items: Sequence[Any], work: Callable[[Any], Any], **_more: Any) -> Any:
        return progress.checked([pickle.loads(pickle.dumps(progress.attempt(work, item))) for item in items])

    for module in ("audit", "backfill", "archive_job"):
        monkeypatch.setattr(f"logplayer.spark.jobs.{module}.run_tasks", run_tasks)


@pytest.fixture
def verbs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The commands, where Spark must not start."""

    def started(*_: object, **__: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("logplayer.spark.session.make_session", started)
    return lambda *words: CliRunner().invoke(cli, [str(word) for word in words])


def wrong(result: Result, kind: type[LogPlayerError], text: str) -> None:
    """The command ended with this error and no other."""
    assert isinstance(result.exception, kind), result.exception
    assert text in str(result.exception)


# --- Before Spark starts ---


@pytest.mark.parametrize("verb", [("audit",), ("backfill", "--store", "x=sqlite:/tmp/x.db"), ("archive", "--to", "/x")])
def test_a_log_that_is_not_there_is_said_at_once(verbs: Callable[..., Result], tmp_path: Path, verb: list[str]) -> None:
    wrong(verbs(*verb, "--log", f"file://{tmp_path}/none"), UserError, "there is no log at")
    assert not (tmp_path / "none").exists()
    wrong(verbs(*verb, "--log", f"grpc://127.0.0.1:{free_port()}"), LogUnavailable, "127.0.0.1")
    wrong(verbs(*verb, "--log", "nope"), UserError, "has no scheme")


def test_a_backfill_looks_at_its_targets_first(verbs: Callable[..., Result], wal: FileWal, tmp_path: Path) -> None:
    wal.append(some(5))
    log = ("--log", wal.serve())
    wrong(verbs("backfill", *log), UserError, "a backfill needs targets")
    wrong(verbs("backfill", *log, "--target", "x=http://h:1"), UserError, "is not a target's address")
    wrong(verbs("backfill", *log, "--store", f"x=sqlite:{tmp_path}/none/x.db"), UserError, "may write to")
    wrong(verbs("backfill", *log, "--store", f"x=redis:{tmp_path}"), UserError, "only sqlite files are built")
    dead = verbs("backfill", *log, "--target", f"x=tcp://127.0.0.1:{free_port()}")
    assert isinstance(dead.exception, LogPlayerError)
    assert not isinstance(dead.exception, UserError), dead.exception
    wal.decide(TargetAdded("a", 0), TWO)
    wrong(verbs("backfill", *log, "--target", "a=tcp://127.0.0.1:1"), UserError, "is a member already")
    wrong(
        verbs("backfill", *log, "--store", f"x=sqlite:{tmp_path}/x.db", "--archive", tmp_path), UserError, "no archive"
    )


def test_an_audit_looks_at_its_targets_first(verbs: Callable[..., Result], wal: FileWal, tmp_path: Path) -> None:
    wal.append(some(5))
    log = ("--log", wal.address)
    wrong(verbs("audit", *log), UserError, "the log knows no target's address")
    wrong(verbs("audit", *log, "--target", "a=http://h:1"), UserError, "is not a target's address")
    wrong(verbs("audit", *log, "--store", f"a=sqlite:{tmp_path}/none.db"), UserError, "none.db")
    wrong(verbs("audit", *log, "--store", "a=oracle:x"), UserError, "is not a store")
    wrong(verbs("audit", *log, "--store", f"a=sqlite:{tmp_path}/a.db", "--archive", "ftp://h/x"), UserError, "ftp:")
    dead = verbs("audit", *log, "--target", f"a=tcp://127.0.0.1:{free_port()}")
    assert isinstance(dead.exception, LogPlayerError)
    assert not isinstance(dead.exception, UserError), dead.exception


@pytest.mark.parametrize(
    ("scheme", "what"),
    [
        ("ftp://host", "is not a place"),
        ("hdfs://host:8020", "not written to safely"),
        ("gs://b", "not written to safely"),
    ],
)
def test_an_archive_is_refused_where_it_would_not_be_safe(
    verbs: Callable[..., Result], wal: FileWal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    wal.append(some(5))
    before = sorted(os.listdir(tmp_path))
    result = verbs("archive", "--log", wal.address, "--to", f"{scheme}/wal", "--range-entries", "2")
    wrong(result, UserError, what)
    assert sorted(os.listdir(tmp_path)) == before


def test_an_archive_looks_at_its_directory_first(
    verbs: Callable[..., Result], wal: FileWal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal.append(some(5))
    log = ("archive", "--log", wal.address, "--range-entries", "2")
    (tmp_path / "file").write_text("")
    assert isinstance(verbs(*log, "--to", tmp_path / "file").exception, OSError | UserError)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "_logplayer.json").write_text("{")
    wrong(verbs(*log, "--to", tmp_path / "bad"), UserError, "cannot be read")
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path / "closed")  # Root may write anywhere.
    wrong(verbs(*log, "--to", tmp_path / "closed"), UserError, "may not write")
    # Nothing to do is no reason to start Spark either.
    said = verbs("archive", "--log", wal.address, "--to", f"file://{tmp_path}/new")
    assert (said.exit_code, "archived 0 entries" in said.output) == (0, True), said.output
    assert stat.S_ISDIR((tmp_path / "new").stat().st_mode)


# --- Entries that a target refuses ---


def poison(target: str) -> bytes:
    """A transaction with an operation that nobody knows."""
    return field(UNKNOWN_OP + b"\x22" + bytes([len(target)]) + target.encode())


@pytest.mark.usefixtures("here")
def test_a_backfill_stops_at_poison_in_the_same_words_in_a_file_and_over_a_server(wal: FileWal, tmp_path: Path) -> None:
    wal.append([transaction((b"k", b"1", "x")), poison("x"), transaction((b"z", b"2", "x"))])
    address = wal.serve()
    shards = Shards(tmp_path, ("x",))
    said = {}
    for fill in (Fill("x", path=str(tmp_path / "file.db")), Fill("x", shards.addresses["x"])):
        with pytest.raises(Poison) as caught:
            backfill(NO_SPARK, address, [fill])
        assert caught.value.index == 2
        said[bool(fill.path)] = str(caught.value).replace(fill.path or fill.address, "PLACE")
    shards.stop()
    assert said[True] == said[False]
    assert "entry 2 cannot be understood: a mutation has operation 9" in said[True]
    assert not (tmp_path / "file.db").exists()
    assert wal.last() == 3  # Nothing was decided.


@pytest.mark.usefixtures("here")
def test_a_file_is_built_and_handed_over(wal: FileWal, tmp_path: Path) -> None:
    wal.append([transaction((b"k", b"1", "x")), transaction((b"k", b"2", "x"), (b"z", b"3", "y"))])
    [done] = backfill(NO_SPARK, wal.serve(), [Fill("x", path=str(tmp_path / "x.db"))])
    assert (done.index, done.entries) == (2, 2)
    store = SqliteTarget(tmp_path / "x.db", "x", read_only=True)
    assert (dict(store.scan()), store.position().index) == ({b"k": b"2"}, 2)
    store.close()


@pytest.mark.usefixtures("here")
def test_poison_that_comes_while_a_file_is_filled_is_the_same(wal: FileWal, tmp_path: Path) -> None:
    wal.append([transaction((b"k", b"1", "x"))])
    fill = Fill("x", path=str(tmp_path / "x.db"))
    backfill_job._apply(fill, "log", lambda index: [Delivery(1, transaction((b"k", b"1", "x")))], 0, History(1, b""))
    with pytest.raises(Poison, match=r"target x at \S+x.db refused: POISON: entry 2 cannot be understood"):
        backfill_job._apply(fill, "log", lambda index: [Delivery(2, poison("x"))], 1, History(2, b""))


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("served", [False, True])
def test_a_target_that_loses_its_entries_meanwhile_is_not_handed_over(
    wal: FileWal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    wal.append([transaction((b"k", b"1", "x"))])
    shards = Shards(tmp_path, ("x",))
    fill = Fill("x", shards.addresses["x"]) if served else Fill("x", path=str(tmp_path / "file.db"))

    def bulk(*_: object) -> dict[str, int]:
        wal.append([transaction((b"k", b"2", "x"))])
        return {"x": 1}  # It was filled, and its store has been replaced by an empty one since.

    monkeypatch.setattr(backfill_job, "_bulk", bulk)
    with pytest.raises(TargetError, match="RESEED: has index 0, needs 1 or more"):
        backfill(NO_SPARK, wal.serve(), [fill])
    shards.stop()
    assert wal.last() == 2  # Nothing was decided.


def fill_store(
    wal: FileWal, path: Path, name: str, entries: Mapping[int, bytes], aside: Collection[int] = (), to: int = 0
) -> None:
    """A store that has these entries, and all of the log up to the last of them or to ``to``."""
    store = SqliteTarget(path, name)
    through = to or max(entries)
    value = event_loop.run(chain_at(wal.log, through)) or b""
    messages = tuple(Delivery(index, payload, index in aside) for index, payload in entries.items())
    store.apply(Change(Session(1, 1)))
    store.apply(Change(Session(1, 1), batch=Batch(0, through, messages, b"", value)))
    store.close()


def numbered(payloads: Sequence[bytes]) -> dict[int, bytes]:
    return dict(enumerate(payloads, 1))


def verdict_of(wal: FileWal, path: Path, name: str = "a") -> AuditVerdict:
    [verdict] = audit(NO_SPARK, wal.address, stores={name: f"sqlite:{path}"}, first_map=TWO)
    return verdict


@pytest.mark.usefixtures("here")
def test_an_audit_is_right_with_quarantined_entries(wal: FileWal, tmp_path: Path) -> None:
    payloads = [transaction((b"k", b"1", "a")), poison("a"), transaction((b"z", b"2", "a"))]
    wal.append(payloads)
    wal.decide(Quarantined("a", 2, "its operation is unknown"), TWO, (("a", ""),))
    fill_store(wal, tmp_path / "a.db", "a", numbered(payloads), [2], to=4)
    verdict = verdict_of(wal, tmp_path / "a.db")
    assert (verdict.right, verdict.entries, verdict.keys, verdict.differences) == (True, 3, 2, [])
    assert verdict.digest == verdict.expected
    # A store that lost what it had put aside is not right.
    db = sqlite3.connect(tmp_path / "a.db")
    db.execute("DELETE FROM quarantine")
    db.commit()
    db.close()
    verdict = verdict_of(wal, tmp_path / "a.db")
    assert (verdict.first, verdict.differences[0].what) == (2, "should be in quarantine and is not")


@pytest.mark.usefixtures("here")
def test_an_audit_names_an_entry_that_the_target_should_have_refused(wal: FileWal, tmp_path: Path) -> None:
    wal.append([transaction((b"k", b"1", "a")), poison("a"), transaction((b"z", b"2", "a"))])
    fill_store(
        wal, tmp_path / "a.db", "a", {1: transaction((b"k", b"1", "a")), 2: transaction((b"k", None, "a"))}, to=3
    )
    verdict = verdict_of(wal, tmp_path / "a.db")
    assert not verdict.right
    assert [(d.index, d.key) for d in verdict.differences if "should block" in d.what] == [(2, b"")]
    assert [d.what for d in verdict.differences if d.key == b"k"] == ["is missing"]  # It was not deleted by the log.


# --- A log that grows meanwhile ---


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("decided", [False, True])
def test_an_audit_judges_by_what_the_log_says_after_the_targets_answered(
    wal: FileWal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decided: bool
) -> None:
    payloads = [transaction((b"k%d" % n, b"v", "a")) for n in range(3)]
    wal.append(payloads)
    ask = audit_job._positions

    def grown(*given: Any) -> Any:
        """Between the audit's look at the log and the targets' answers."""
        fresh = poison("a") if decided else transaction((b"k9", b"v", "a"))
        wal.append([fresh])
        if decided:
            wal.decide(Quarantined("a", 4, "its operation is unknown"), TWO, (("a", ""),))
        fill_store(wal, tmp_path / "a.db", "a", numbered([*payloads, fresh]), [4] if decided else [], to=wal.last())
        return ask(*given)

    monkeypatch.setattr(audit_job, "_positions", grown)
    (tmp_path / "a.db").touch()
    verdict = verdict_of(wal, tmp_path / "a.db")
    assert (verdict.right, verdict.problem, verdict.entries) == (True, "", 4)


@pytest.mark.usefixtures("here")
def test_an_audit_judges_a_store_by_what_was_decided_before_its_snapshot(wal: FileWal, tmp_path: Path) -> None:
    payloads = [transaction((b"k", b"1", "a")), poison("a")]
    wal.append(payloads[:1])
    fill_store(wal, tmp_path / "a.db", "a", numbered(payloads[:1]))
    prepared = audit_job.prepare(wal.address, stores={"a": f"sqlite:{tmp_path}/a.db"}, first_map=TWO)
    wal.append(payloads[1:])
    wal.decide(Quarantined("a", 2, "its operation is unknown"), TWO, (("a", ""),))
    (tmp_path / "a.db").unlink()
    fill_store(wal, tmp_path / "a.db", "a", numbered(payloads), [2], to=3)
    [verdict] = audit_job.judge(NO_SPARK, prepared)
    assert (verdict.right, verdict.index, verdict.entries, verdict.differences) == (True, 3, 2, [])


# --- A damaged log, a log that lost entries, a target that is away ---


@pytest.mark.usefixtures("here")
def test_an_audit_over_a_damaged_log_judges_whom_it_can(
    wal: FileWal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = [transaction((b"key%d" % n, b"value%d" % n, name)) for n in range(1, 10) for name in "ab"]
    payloads[10] = transaction((b"key6", b"a value to be damaged", "a"))
    wal.append(payloads)
    shards = Shards(tmp_path, ("a", "b"))
    deliver(wal, shards, TWO)
    shards.stop()
    early = {index: payload for index, payload in numbered(payloads[:7]).items() if index % 2}
    fill_store(wal, tmp_path / "early.db", "a", early)
    wal.close()
    assert flip_in_files(sorted(wal.path.glob("*.seg")), b"a value to be damaged") == 1
    monkeypatch.setattr("logplayer.spark.session.make_session", lambda *_, **__: type("S", (), {"stop": int}))
    for where, code, words in (
        (["--store", f"b=sqlite:{shards.paths['b']}"], 1, ["b: NOT JUDGED: entry 11 is damaged"]),
        (
            ["--store", f"a=sqlite:{tmp_path}/early.db", "--store", f"b=sqlite:{shards.paths['b']}"],
            1,
            ["a: right: it has index 7", "b: NOT JUDGED: entry 11 is damaged"],
        ),
    ):
        said = CliRunner().invoke(cli, ["audit", "--log", wal.address, *where])
        assert said.exit_code == code, said
        assert all(word in said.output for word in words), said.output
        assert len(said.output.splitlines()) == len(words)


@pytest.mark.usefixtures("here")
def test_a_target_that_is_ahead_of_the_log_is_said_to_be(wal: FileWal, tmp_path: Path) -> None:
    wal.append([transaction((b"k%d" % n, b"v", "a")) for n in range(7)])
    fill_store(wal, tmp_path / "a.db", "a", numbered([transaction((b"k%d" % n, b"v", "a")) for n in range(9)]))
    verdict = verdict_of(wal, tmp_path / "a.db")
    assert not verdict.right
    assert verdict.problem == (
        "its index 9 is beyond the log's end (7): the log has lost entries or was restored from an older backup"
    )


@pytest.mark.usefixtures("here")
def test_a_target_that_is_away_does_not_keep_the_others_from_their_verdict(wal: FileWal, tmp_path: Path) -> None:
    payloads = [transaction((b"k", b"1", "a"))]
    wal.append(payloads)
    fill_store(wal, tmp_path / "a.db", "a", numbered(payloads))
    verdicts = audit(
        NO_SPARK,
        wal.address,
        stores={"a": f"sqlite:{tmp_path}/a.db"},
        addresses={"b": f"tcp://127.0.0.1:{free_port()}"},
    )
    assert [(v.target, v.right, v.judged) for v in verdicts] == [("a", True, True), ("b", False, False)]


@pytest.mark.usefixtures("here")
def test_a_damaged_archive_names_the_entry(wal: FileWal, tmp_path: Path) -> None:
    wal.append([transaction((b"k%d" % n, os.urandom(300), "a")) for n in range(200)])
    archive_log(NO_SPARK, wal.address, str(tmp_path / "archive"), 100)
    [path] = (tmp_path / "archive" / "first=00000000000000000101").glob("*.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    fills, address = [Fill("a", path=str(tmp_path / "a.db"))], wal.serve()
    with pytest.raises(CorruptEntry, match=r"entry \d+ cannot be read: the archive's file \S+ is damaged") as caught:
        backfill(NO_SPARK, address, fills, archive=str(tmp_path / "archive"))
    assert 101 <= caught.value.index <= 200


def test_errors_travel_between_processes() -> None:
    for error in (
        Poison("why", 7),
        CorruptEntry("why", 7),
        Trimmed("why", 7),
        UserError("why"),
        TargetError("why"),
        Unavailable("why"),
    ):
        other = pickle.loads(pickle.dumps(error))
        assert (type(other), str(other), vars(other)) == (type(error), "why", vars(error))


class FakeContext:
    """A SparkContext that runs what it gets at once."""

    def __init__(self) -> None:
        self.statusTracker = lambda: SimpleNamespace(getJobIdsForGroup=lambda group: [])

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def parallelize(self, items: list[Any], _: int) -> Any:
        return SimpleNamespace(map=lambda work: SimpleNamespace(collect=lambda: [work(item) for item in items]))


def test_whoever_wants_it_hears_how_many_tasks_have_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_shipped", lambda work: work)
    heard: list[Any] = []

    @contextlib.contextmanager
    def show(label: str, count: int) -> Iterator[Callable[[int], None]]:
        heard.append((label, count))
        yield heard.append

    spark: Any = SimpleNamespace(sparkContext=FakeContext())
    assert progress.run_tasks(spark, "double", [1, 2, 3], lambda n: 2 * n, show=show) == [2, 4, 6]
    assert heard == [("double", 3), 3]
    assert progress.run_tasks(spark, "double", [1], lambda n: 2 * n) == [2]

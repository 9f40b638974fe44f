"""A driver whose own code fails ends with the error: it neither waits for ever nor keeps the log. Without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logplayer.core.invariants import InvariantViolation
from logplayer.core.standby import Standby
from logplayer.errors import ConfigError
from logplayer.player.ended import STOPPED
from logplayer.player.standby import StandbyWatch
from logplayer.spark import event_loop
from logplayer.spark.resident import driver, events, machine
from logplayer.spark.resident.driver import Resident
from logplayer.spark.resident.groups import GroupPlan
from tests.spark.spark_support import FileWal
from tests.spark.test_resident import NAMES, config

LONG = 60  # Only a hang takes so long.
TARGETS = dict.fromkeys(NAMES, "grpc://127.0.0.1:1")
Start = Callable[..., Resident]


class FakeSpark:
    """A context whose jobs last until they are cancelled."""

    def __init__(self, host: str = "127.0.0.1", cancels: bool = True) -> None:
        self.sparkContext = self
        self._host = host
        self._cancels = cancels
        self.cancelled = threading.Event()

    def getConf(self) -> Any:
        return SimpleNamespace(get=lambda name, default=None: {"spark.driver.host": self._host}.get(name, default))

    def setJobGroup(self, *_: Any, **__: Any) -> None:
        pass

    def cancelJobGroup(self, name: str) -> None:
        self.cancelled.set()
        if not self._cancels:
            raise ConnectionRefusedError("py4j")


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a driver whose one job does nothing."""
    over = threading.Event()

    def run_one(context: FakeSpark, *_: Any) -> None:
        while not (context.cancelled.wait(0.05) or over.is_set()):
            pass
        raise RuntimeError("cancelled")

    monkeypatch.setattr(driver, "run_one", run_one)
    monkeypatch.setattr(driver, "has_ended", lambda spark: False)
    monkeypatch.setattr(driver, "is_elastic", lambda spark: False)
    monkeypatch.setattr(driver, "executors", lambda spark: {"only": 1})
    monkeypatch.setattr(driver, "first_plan", lambda *_: GroupPlan(1))

    def started(wal: FileWal, spark: FakeSpark | None = None, **more: Any) -> Resident:
        made: Any = spark or FakeSpark()
        resident = Resident(made, config(wal.serve(), TARGETS, **more), Standby())
        assert resident.start()
        return resident

    yield started
    over.set()


def fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a bug")


async def fail_later(*_: Any, **__: Any) -> Any:
    fail()


def must_end(resident: Resident, error: type[BaseException] = RuntimeError) -> None:
    """Both ways to wait say what happened, as often as they are asked."""
    with pytest.raises(error, match="a bug"):
        assert not resident.wait(LONG), "it ended without a word"
    with pytest.raises(error, match="a bug"):
        resident.stop()
    with pytest.raises(error, match="a bug"):
        resident.wait()


def perform(resident: Resident, effect: events.DriverEffect) -> None:
    event_loop.background().call_soon_threadsafe(resident._perform, [effect])


@pytest.mark.parametrize("kind", [events.TimePassed, events.StopAsked, events.Looked])
def test_a_step_that_fails_ends_the_driver(
    kind: type, start: Start, wal: FileWal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a task of the loop, and in a callback, whose error the loop would only log."""
    resident = start(wal)
    monkeypatch.setitem(machine._HANDLERS, kind, fail)
    if kind is events.StopAsked:
        resident.request_stop()
    must_end(resident)


def test_a_broken_invariant_ends_the_driver(start: Start, wal: FileWal, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise InvariantViolation("OneWriter", {"what": "a bug"})

    resident = start(wal)
    monkeypatch.setitem(machine._HANDLERS, events.StopAsked, broken)
    resident.request_stop()
    must_end(resident, InvariantViolation)


def test_a_failed_driver_stops_its_tasks(start: Start, wal: FileWal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be half through a step: it is asked for nothing more."""
    resident = start(wal)
    monkeypatch.setitem(machine._HANDLERS, events.StopAsked, fail)
    resident.request_stop()
    with pytest.raises(RuntimeError, match="a bug"):
        resident.wait(LONG)
    monkeypatch.setitem(machine._HANDLERS, events.Heard, fail)
    assert resident._step(events.Heard(1, None)) == {"stop": True}  # type: ignore[arg-type]
    must_end(resident)


def test_a_look_that_fails_ends_the_driver(start: Start, wal: FileWal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would never look again."""
    resident = start(wal)
    monkeypatch.setattr(resident, "_executors", fail)
    must_end(resident)


def test_a_trim_that_fails_ends_the_driver(start: Start, wal: FileWal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would never trim again."""
    resident = start(wal)
    monkeypatch.setattr(resident._trimmer, "trim", fail_later)
    perform(resident, events.TrimForMembers({}))
    must_end(resident)


def test_a_standby_that_fails_ends_the_driver(start: Start, wal: FileWal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would stand by for ever."""
    monkeypatch.setattr(StandbyWatch, "until_gone", fail_later)
    must_end(start(wal, standby=True))


def test_a_failed_driver_gives_its_log_back(start: Start, wal: FileWal, monkeypatch: pytest.MonkeyPatch) -> None:
    resident = start(wal)
    closed: list[bool] = []
    close = resident._log.close

    async def seen() -> None:
        closed.append(True)
        await close()

    monkeypatch.setattr(resident._log, "close", seen)
    monkeypatch.setitem(machine._HANDLERS, events.TimePassed, fail)
    with pytest.raises(RuntimeError, match="a bug"):
        resident.wait(LONG)
    assert closed, "a caller that gets an error from wait() does not call stop()"


def test_a_job_that_cannot_be_cancelled_is_no_failure(start: Start, wal: FileWal) -> None:
    """Spark may be gone by then, and its jobs with it."""
    spark = FakeSpark(cancels=False)
    resident = start(wal, spark)
    perform(resident, events.CancelJob(1))
    assert spark.cancelled.wait(LONG)
    assert resident.stop() == STOPPED


def test_a_first_step_that_fails_gives_the_log_back(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.Machine, "begin", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        start_on_a_file(tmp_path, FakeSpark())
    FileWal(tmp_path / "log").close()  # It is not locked.


def test_a_file_log_that_is_refused_on_a_cluster_is_given_back(start: Start, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="serve it with `logplayer log serve`"):
        start_on_a_file(tmp_path, FakeSpark(host="10.0.0.1"))
    FileWal(tmp_path / "log").close()  # It is not locked.


def start_on_a_file(tmp_path: Path, spark: Any) -> None:
    Resident(spark, config(f"file://{tmp_path}/log", TARGETS)).start()

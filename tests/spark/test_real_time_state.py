"""What a query in real time says of itself, from what its tasks have reported and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkAttributeError

from logplayer.errors import ConfigError
from logplayer.spark.real_time import connector as connector_module
from logplayer.spark.real_time.beats import BeatListener


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def beat(listener: BeatListener, run: int, partition: int, **more: Any) -> None:
    said = {"do": str(run), "partition": partition, "attempt": 7, "current": 1, "rows_in": 0, "rows_out": 0}
    said["targets"] = []
    listener.take({**said, **more})


def test_it_starts_until_every_task_has_its_sessions() -> None:
    listener = BeatListener(Clock())
    run = listener.begin(2)
    assert listener.state() == ("starting", "2 of 2 tasks have not reported; each needs a slot of Spark")
    beat(listener, run, 0, open=True)
    assert listener.state() == ("starting", "1 of 2 tasks have not reported; each needs a slot of Spark")
    beat(listener, run, 1, open=False)
    assert listener.state() == ("starting", "1 of 2 tasks open their sessions")
    beat(listener, run, 1, open=True)
    assert listener.state() == ("playing", "")


def test_a_task_that_reports_no_more_is_silent() -> None:
    clock = Clock()
    listener = BeatListener(clock)
    run = listener.begin(2)
    for partition in (0, 1):
        beat(listener, run, partition, open=True)
    clock.now += 2.9
    assert listener.state()[0] == "playing"
    beat(listener, run, 0, open=True, lost="target a: gone")
    assert listener.state() == ("reconnecting", "target a: gone")
    clock.now += 1.1
    assert listener.state() == ("silent", "task 1 has not reported for 4 s")
    beat(listener, run, 0, open=True)
    beat(listener, run, 1, open=True)
    assert listener.state() == ("playing", "")


def test_a_query_that_starts_again_begins_with_nothing_heard() -> None:
    listener = BeatListener(Clock())
    first = listener.begin(1)
    beat(listener, first, 0, open=True, targets=[{"target": "a", "index": 7, "sent": 9}])
    second = listener.begin(1)
    beat(listener, first, 0, open=True)  # Of a task that winds down.
    assert listener.state()[0] == "starting"
    assert listener.heard().acked == {"a": 7}
    beat(listener, second, 0, open=True)
    assert listener.state()[0] == "playing"


@pytest.mark.parametrize("version", ["4.2.0", "4.4.0", "4.30.0"])
def test_other_versions_of_spark_are_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=r"tested for 4\.3 only"):
        connector_module.load(SimpleNamespace(version=version, _jvm=object()))  # type: ignore[arg-type]


class ConnectSession:
    """As pyspark.sql.connect.session.SparkSession answers."""

    version = "4.3.0"

    def __getattr__(self, name: str) -> Any:
        raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": name})


def test_a_session_of_spark_connect_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has no driver.* lp\.make_session\(.*unset SPARK_REMOTE"):
        connector_module.load(ConnectSession())  # type: ignore[arg-type]


def test_while_a_task_cannot_read_the_log_it_is_stuck() -> None:
    listener = BeatListener(Clock())
    run = listener.begin(2)
    beat(listener, run, 0, open=True, log_error="the log at 127.0.0.1:7100 cannot be reached")
    beat(listener, run, 1, open=True, log_error="")  # Its own connection is still there.
    assert listener.state() == ("stuck", "the log at 127.0.0.1:7100 cannot be reached")
    beat(listener, run, 1, open=True, log_error="the log at 127.0.0.1:7100 cannot be reached", lost="target a: gone")
    assert listener.state() == ("stuck", "the log at 127.0.0.1:7100 cannot be reached")
    beat(listener, run, 0, open=True)
    beat(listener, run, 1, open=True, lost="target a: gone")
    assert listener.state() == ("reconnecting", "target a: gone")
    beat(listener, run, 1, open=True)
    assert listener.state() == ("playing", "")

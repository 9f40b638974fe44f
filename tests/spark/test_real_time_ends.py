"""How a query in real time ends that never ran: nothing waits for it, and nothing of it stays."""

from __future__ import annotations

from typing import Any

import pytest

import logplayer as lp
from logplayer.errors import ConfigError
from logplayer.spark.real_time import query as query_module
from tests.spark.real_time_fakes import a_query, without_spark
from tests.spark.spark_support import FileWal

TARGETS = {"a": "tcp://127.0.0.1:9"}


def test_a_query_that_was_never_started_has_no_end() -> None:
    made = a_query(lp.Config(log="grpc://127.0.0.1:9", targets=TARGETS, group="realtime"))
    with pytest.raises(ConfigError, match=r"was not started: call start\(\)"):
        made.wait(30)
    with pytest.raises(ConfigError, match=r"was not started: call start\(\)"):
        made.stop()


def test_after_a_start_that_was_refused_its_reason_is_raised() -> None:
    made = a_query(lp.Config(log="file:///nowhere", targets=TARGETS, group="realtime"))
    with pytest.raises(ConfigError, match="log serve"):
        made.start()
    with pytest.raises(ConfigError, match="log serve"):
        made.wait(30)
    with pytest.raises(ConfigError, match="log serve"):
        made.stop()
    assert made.status["state"] == "failed"
    assert "log serve" in made.status["reason"]


def test_a_start_that_fails_leaves_no_plan_and_no_port(wal: FileWal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan has the token and the keys."""
    jvm = without_spark(monkeypatch)

    def refuse(jvm: Any, rows: Any) -> Any:
        if jvm.plans:
            raise ConfigError("not this one")
        return rows

    monkeypatch.setattr(query_module, "sink_rows", refuse)
    made = a_query(lp.Config(log=wal.serve(), targets=TARGETS, group="realtime"))
    with pytest.raises(ConfigError, match="not this one"):
        made.start()
    assert (jvm.registered, jvm.plans) == (1, {})
    with pytest.raises(ConfigError, match="not this one"):
        made.stop()


def test_a_query_may_be_started_again_after_a_refusal(wal: FileWal, monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = without_spark(monkeypatch)
    made = a_query(lp.Config(log=wal.serve(), targets=TARGETS, group="realtime"))
    with monkeypatch.context() as once:
        once.setattr(query_module, "take_over", _refuse)
        with pytest.raises(ConfigError, match="another player plays"):
            made.start()
    made.start()
    assert made.stop().kind is lp.EndKind.STOPPED
    assert made.wait(30).kind is lp.EndKind.STOPPED
    assert jvm.plans == {}


async def _refuse(*given: object) -> int:
    raise ConfigError("another player plays")

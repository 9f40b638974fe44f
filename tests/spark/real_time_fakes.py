"""A query in real time without Spark: what it asks of a session and of its JVM, answered by a test."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import logplayer as lp
from logplayer.spark.real_time import connector
from logplayer.spark.real_time import query as query_module
from logplayer.spark.real_time.query import Realtime


class FakeJvm:
    """The connector's package. Notes the plans that are registered and not forgotten."""

    def __init__(self) -> None:
        self.plans: dict[int, str] = {}
        self.registered = 0
        self.Plan = self
        self.TargetSink = lambda: None

    def register(self, text: str) -> int:
        self.registered += 1
        self.plans[self.registered] = text
        return self.registered

    def forget(self, number: int) -> None:
        del self.plans[number]


class FakeQuery:
    """What Spark runs: it runs until it is stopped."""

    def __init__(self) -> None:
        self.isActive = True
        self.recentProgress: list[Any] = []

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> None:
        return None


class FakeRows:
    """A stream, and the writer of it."""

    def __init__(self) -> None:
        self.query = FakeQuery()
        self._jwrite = SimpleNamespace(foreach=lambda sink: None)

    @property
    def writeStream(self) -> Any:
        return self

    def outputMode(self, mode: str) -> FakeRows:
        return self

    def trigger(self, **when: str) -> FakeRows:
        return self

    def start(self) -> FakeQuery:
        return self.query


def without_spark(monkeypatch: pytest.MonkeyPatch) -> FakeJvm:
    """From here on, queries talk to fakes in place of Spark."""
    jvm = FakeJvm()
    monkeypatch.setattr(connector, "load", lambda spark: (jvm, None))
    monkeypatch.setattr(connector, "use", lambda spark, loader: None)
    monkeypatch.setattr(connector, "driver_host", lambda spark: ("127.0.0.1", "127.0.0.1"))
    monkeypatch.setattr(connector, "check_slots", lambda spark, wanted: None)
    monkeypatch.setattr(Realtime, "_rows", lambda self, number: FakeRows())
    monkeypatch.setattr(Realtime, "_source", lambda self, number: FakeRows())
    monkeypatch.setattr(query_module, "require_one_pass", lambda log, transform: None)
    monkeypatch.setattr(query_module, "sink_rows", lambda jvm, rows: rows)
    return jvm


def a_query(config: lp.Config, **more: Any) -> Realtime:
    given: Any = {"spark": SimpleNamespace(), "transform": None, "groups": 1, "batch_seconds": 10}
    return Realtime(config=replace(config, http=more.pop("http", "")), **{**given, **more})

"""What a query in real time shows over HTTP and lets do. The test is its tasks: it reports what they would."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

import logplayer as lp
from logplayer.admin.http_client import ask
from logplayer.cli.watch_view import view
from logplayer.errors import ConfigError
from logplayer.player.status_table import status_table
from logplayer.spark import event_loop
from logplayer.spark.real_time.query import Realtime
from logplayer.spark.resident.lease import SCHEMA
from tests.spark.real_time_fakes import FakeJvm, a_query, without_spark
from tests.spark.spark_support import FileWal, transaction, until

TARGETS = {"a": "tcp://127.0.0.1:9", "b": "tcp://127.0.0.1:10"}


class Tasks:
    """What the tasks of the newest plan say to the driver."""

    def __init__(self, jvm: FakeJvm) -> None:
        self._jvm = jvm

    def say(self, partition: int, index: int, **more: Any) -> None:
        plan = json.loads(self._jvm.plans[self._jvm.registered])
        rows = [{"target": one["name"], "index": index, "sent": index} for one in plan["partitions"][partition]]
        beat = {"partition": partition, "attempt": 3, "current": index, "rows_in": 5, "rows_out": 4, "open": True}
        driver = plan["driver"]
        headers = {"content-type": "application/json", "authorization": f"Bearer {driver['token']}"}
        body = json.dumps({**beat, "targets": rows, **more}).encode()
        urllib.request.urlopen(urllib.request.Request(driver["url"], body, headers)).close()


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    return Tasks(without_spark(monkeypatch))


@pytest.fixture
def running(tasks: Tasks, wal: FileWal) -> Iterator[Realtime]:
    """Two tasks, and a page at a port that is free."""
    made = a_query(lp.Config(log=wal.serve(), targets=TARGETS, group="rt"), http="127.0.0.1:0", groups=2).start()
    made._listener._clock = lambda: 100.0  # However long this test takes, no task is silent.
    wal.append([transaction((b"k", b"v", "a"), (b"k", b"v", "b")) for _ in range(10)])
    yield made
    made.stop()


def get(query: Realtime, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{query.http}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def act(query: Realtime, name: str, **question: Any) -> dict[str, Any]:
    return event_loop.run(ask(query.http, f"/actions/{name}", question))


def told(query: Realtime) -> list[str]:
    return [item["text"] for item in json.loads(get(query, "/timeline")[1])["items"]]


def test_a_query_has_the_face_of_a_player(running: Realtime, tasks: Tasks, wal: FileWal) -> None:
    assert get(running, "/healthz") == (200, "ok\n")
    assert get(running, "/readyz") == (
        503,
        "it is starting: 2 of 2 tasks have not reported; each needs a slot of Spark\n",
    )
    tasks.say(0, wal.last())
    tasks.say(1, wal.last() - 4)
    assert get(running, "/readyz")[0] == 200
    until(lambda: running.status["log_last"] == wal.last() and running.status["targets"][1]["lag_seconds"] > 1)
    tasks.say(0, wal.last())
    tasks.say(1, wal.last() - 4)
    status = json.loads(get(running, "/status")[1])
    assert (status["version"], status["kind"], status["state"], status["group"]) == (1, "spark", "playing", "rt")
    assert (status["log_id"], status["consistent_cut"]) == (event_loop.run(wal.log.info()).log_id, wal.last() - 4)
    rows = [(row["target"], row["lag_entries"], row["lag_seconds"] > 1) for row in status["targets"]]
    assert rows == [("a", 0, False), ("b", 4, True)]
    assert [(row["group"], row["state"]) for row in status["groups"]] == [(0, "playing"), (1, "playing")]
    assert [line.split()[:3] for line in status_table(status).splitlines()[2:]] == [
        ["a", "LIVE", str(wal.last())], ["b", "CATCHING_UP", str(wal.last() - 4)]]  # fmt: skip
    shown = io.StringIO()
    Console(file=shown, width=200).print(view(status, json.loads(get(running, "/timeline")[1])["items"]))
    assert "spark in real time, 2 groups, epoch 1, playing" in shown.getvalue()
    assert f'logplayer_target_index{{target="b"}} {float(wal.last() - 4)}' in get(running, "/metrics")[1]
    assert "<title>" in get(running, "/")[1]
    until(lambda: any("target a: LIVE" in text for text in told(running)))
    assert "the query took over with epoch 1, with the decisions up to entry 1" in told(running)
    assert not any("SILENT" in text for text in told(running))


def test_events_begin_with_the_status(running: Realtime) -> None:
    with urllib.request.urlopen(f"http://{running.http}/events") as events:
        assert events.readline().strip() == b"event: status"
        assert json.loads(events.readline().removeprefix(b"data: "))["group"] == "rt"


def test_an_entry_that_blocks_is_quarantined_from_the_page(running: Realtime, tasks: Tasks, wal: FileWal) -> None:
    bad = wal.last() - 1
    tasks.say(1, bad - 1)
    tasks.say(0, bad - 1, ended={"kind": "POISON", "target": "a", "index": bad, "detail": f"entry {bad}: no"})
    until(lambda: running.status["state"] == "blocked")
    first, second = json.loads(get(running, "/status")[1])["targets"]
    assert (first["state"], first["blocked"]) == (
        "BLOCKED",
        {"kind": "POISON", "detail": f"entry {bad}: no", "index": bad},
    )
    assert (second["state"], second["why"]) == ("SUSPENDED", f"the query waits for target a: entry {bad}: no")
    with pytest.raises(ConfigError, match=f"use --index {bad}"):
        act(running, "quarantine", target="a", index=bad + 1)
    decided = act(running, "quarantine", target="a", index=bad)["index"]
    until(lambda: running.status["state"] == "starting" and running.status["starts"] == 2)
    for partition in (0, 1):
        tasks.say(partition, decided)
    status = running.status
    assert [(row["state"], row["quarantined"]) for row in status["targets"]] == [("LIVE", 1), ("LIVE", 0)]
    assert f"the query is blocked: entry {bad}: no" in told(running)
    assert f"target a: entry {bad} is quarantined" in told(running)


def test_what_it_does_not_do_is_refused(running: Realtime) -> None:
    with pytest.raises(ConfigError, match="there is no action 'suspend' here; there are: stop, add, remove"):
        act(running, "suspend", target="a")


def test_it_can_be_stopped_from_outside(running: Realtime) -> None:
    assert act(running, "stop") == {"ok": True}
    assert running.wait(60).kind is lp.EndKind.STOPPED
    assert running._news.timeline.since(0)[-1]["text"] == "the query has ended: stopped"


def test_a_newer_query_ends_it(running: Realtime, tasks: Tasks, wal: FileWal) -> None:
    tasks.say(0, wal.last(), ended={"kind": "SUPERSEDED", "target": "", "index": 99, "detail": "epoch 99 took over"})
    assert running.wait(60).superseded
    last = running._news.timeline.since(0)[-1]
    assert (last["text"], last["level"]) == ("the query has ended: superseded, epoch 99 took over", "info")
    assert [row["state"] for row in running.status["targets"]] == ["SILENT", "SILENT"]


def test_states_of_tasks_are_states_of_targets(running: Realtime, tasks: Tasks, wal: FileWal) -> None:
    tasks.say(0, wal.last(), lost="target a: connection refused")
    tasks.say(1, wal.last(), open=False)
    first, second = running.status["targets"]
    assert (first["state"], first["why"]) == ("SUSPENDED", "target a: connection refused")
    assert (second["state"], second["index"], second["why"]) == ("SUSPENDED", -1, "its task opens its sessions")
    assert [row["target"] for row in running.receipts] == []
    tasks.say(0, wal.last(), log_error="the log is away")
    assert (running.status["state"], running.status["log_error"]) == ("stuck", "the log is away")
    until(lambda: "stuck: the log is away; trying again" in told(running))
    tasks.say(0, wal.last())
    until(lambda: "the log can be read again" in told(running))


def test_receipts_are_the_newest_of_each_target(running: Realtime, tasks: Tasks, wal: FileWal) -> None:
    assert running.receipts == []
    before = datetime.now(UTC)
    tasks.say(0, 4)
    tasks.say(0, wal.last())
    [receipt] = running.receipts
    assert list(receipt) == SCHEMA.names
    assert before <= receipt.pop("at") <= datetime.now(UTC)
    assert receipt.pop("lag_seconds") == 0.0
    assert receipt == {
        "group": "rt/0", "target": "a", "state": "LIVE", "log_index": wal.last(), "lag_entries": 0, "epoch": 1,
        "error": "",
    }  # fmt: skip


def test_the_port_is_opened_before_the_takeover(wal: FileWal, running: Realtime) -> None:
    other = a_query(lp.Config(log=running._config.log, targets=TARGETS, group="rt"), http=running.http)
    before = wal.last()
    with pytest.raises(lp.Unavailable, match=running.http):
        other.start()
    assert wal.last() == before


def test_where_it_is_served(tasks: Tasks) -> None:
    def of(**given: Any) -> str:
        return lp.spark.realtime(None, log="grpc://127.0.0.1:7100", **given)._config.http  # type: ignore[arg-type]

    assert of() == of(config=lp.Config()) == ""  # Two queries on a machine do not meet at a port that nobody chose.
    assert of(config=lp.Config(http="127.0.0.1:7299")) == "127.0.0.1:7299"
    assert of(config=lp.Config(http="127.0.0.1:7299"), http="127.0.0.1:7200") == "127.0.0.1:7200"
    with pytest.raises(lp.UserError, match="7x"):
        of(http="127.0.0.1:7x")

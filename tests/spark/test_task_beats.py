"""What tasks of a query in real time report, as the driver takes it, and what they are given."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from logplayer.config import Config
from logplayer.core.entry import HashMap, Takeover
from logplayer.errors import ConfigError, Malformed
from logplayer.log import control_chain as chain
from logplayer.log.protocol import Log
from logplayer.spark import event_loop
from logplayer.spark.real_time import plan
from logplayer.spark.real_time.beats import BeatListener, TaskEnd
from logplayer.wire.security import Security
from tests import ROOT
from tests.spark.spark_support import FileWal

BEAT: dict[str, Any] = {
    "do": "1",
    "partition": 0,
    "attempt": 3,
    "current": 7,
    "rows_in": 5,
    "rows_out": 4,
    "log_error": "",
    "lost": "",
    "open": True,
    "targets": [{"target": "a", "index": 7, "sent": 7}],
}
END = {"kind": "POISON", "target": "a", "index": 7, "detail": "POISON at target a: no"}


def test_the_ends_are_those_of_the_connector() -> None:
    text = (ROOT / "jvm/src/main/java/logplayer/realtime/Ending.java").read_text()
    kinds = re.search(r"enum Kind \{(.*?)\n  \}", text, re.DOTALL)
    assert kinds is not None
    assert re.findall(r"^    ([A-Z_]+),?$", kinds[1], re.MULTILINE) == [kind.value for kind in TaskEnd]


def test_what_a_task_says_counts_for_its_own_query_only() -> None:
    listener = BeatListener()
    assert listener.begin() == 1
    listener.take(BEAT)
    assert (listener.heard().acked, listener.heard().through) == ({"a": 7}, {0: 7})
    listener.begin()
    listener.take({**BEAT, "current": 9, "ended": END})
    assert not listener.news.is_set()
    assert (listener.heard().acked, listener.heard().through) == ({"a": 7}, {})


def test_the_first_end_is_the_end_and_an_index_never_falls() -> None:
    listener = BeatListener()
    listener.begin()
    listener.take({**BEAT, "ended": END})
    listener.take({**BEAT, "targets": [{"target": "a", "index": 3, "sent": 3}], "ended": {**END, "kind": "LOST"}})
    heard = listener.heard()
    assert listener.news.is_set()
    assert heard.ended is not None
    assert (heard.ended.kind, heard.acked) == (TaskEnd.POISON, {"a": 7})


@pytest.mark.parametrize(
    "wrong",
    [
        {"partition": -1},
        {"current": "7"},
        {"targets": "a"},
        {"targets": [7]},
        {"targets": [{"target": "a"}]},
        {"ended": {**END, "kind": "BORED"}},
        {"ended": "POISON"},
    ],
)
def test_what_no_task_says_is_refused(wrong: dict[str, Any]) -> None:
    listener = BeatListener()
    listener.begin()
    with pytest.raises(Malformed):
        listener.take({**BEAT, **wrong})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Config(log="file:///var/lib/wal"), "logplayer log serve"),
        (Config(log="grpc://10.0.0.1:7100"), "not loopback"),
        (Config(log="grpc://127.0.0.1:7100", targets={"a": "tcp://10.0.0.1:7201"}), "not loopback"),
    ],
)
def test_what_the_connector_cannot_reach_is_refused(config: Config, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan.check_config(config)


def test_the_plan_has_what_the_log_has_decided(wal: FileWal) -> None:
    targets = {name: f"tcp://127.0.0.1:{7201 + nth}" for nth, name in enumerate("abc")}
    config = Config(log="grpc://127.0.0.1:7100", targets=targets, map=HashMap(("a", "b", "c")), group="g")
    secure = Config(log=config.log, targets=targets, group="g", security=Security(token="let-me-in"))

    async def decide(log: Log) -> tuple[int, plan.Decided]:
        epoch = await plan.take_over(log, config)
        await chain.append(log, Takeover("other", "x"), None)
        return epoch, await plan.decisions(log, config)

    epoch, decided = event_loop.run(decide(wal.log))
    made = json.loads(plan.plan_json(secure, decided, epoch, 2, plan.DriverPort("http://127.0.0.1:1/1", "t")))
    assert (made["epoch"], made["through"], made["log_id"]) == (1, 2, decided.log_id)
    assert [[one["name"] for one in group] for group in made["partitions"]] == [["a", "c"], ["b"]]
    assert made["security"] == {"ca": "", "cert": "", "key": "", "token": "let-me-in"}

"""core/trace.py: one record per transition, in the form that the trace check reads."""

from __future__ import annotations

from collections.abc import Mapping

from logplayer.core.effects import SendBatch
from logplayer.core.entry import Session, Takeover
from logplayer.core.events import Lost
from logplayer.core.player import Player
from logplayer.core.trace import TargetTrace, config
from logplayer.testing.sim.options import options_for
from logplayer.testing.sim.simulation import Simulation
from logplayer.testing.spec.trace_module import FIELDS
from tests.core.core_rig import acked, control, entry, fetch, limits, new_player, of, one, open_all


def traced() -> tuple[Player, list[Mapping[str, object]]]:
    trace: list[Mapping[str, object]] = []
    player = new_player(1, 0, control("a"), limits(queue_count_max=2), trace=trace.append)
    open_all(player)
    return player, trace


def test_a_session_is_told_from_open_to_suspend() -> None:
    player, trace = traced()
    acked(player, one(fetch(player, entry(2, a="x")), SendBatch))
    player.step(Lost("a", Session(1, 1), ""))
    assert [record["ev"] for record in trace] == [
        "start",
        "open",
        "opened",
        "join",
        "dispatch",
        "send",
        "ack",
        "suspend",
    ]
    assert all(record["node"] == "P1" and record["epoch"] == 1 for record in trace)
    send = trace[5]
    assert (send["target"], send["term"], send["prev"], send["to"], send["indexes"]) == ("a", 1, 0, 2, [2])


def test_a_demotion_is_told_with_its_dispatch() -> None:
    player, trace = traced()
    fetch(player, entry(1, a="x"))
    fetch(player, entry(2, a="x"), entry(3, a="x"), entry(4, a="x"))
    assert [record["demoted"] for record in trace if record["ev"] == "dispatch"] == [[], [], [], ["a"]]


def test_the_end_of_a_player_is_told() -> None:
    player, trace = traced()
    fetch(player, entry(2, Takeover()))
    assert trace[-1]["ev"] == "stepdown"


def test_a_target_tells_its_half() -> None:
    trace: list[Mapping[str, object]] = []
    told = TargetTrace("a", trace.append)
    told.session("accept", Session(5, 2), index=3)
    told.crash(3)
    assert trace[0] == {"node": "Ta", "ev": "accept", "target": "a", "epoch": 5, "term": 2, "index": 3}
    assert trace[1] == {"node": "Ta", "ev": "crash", "target": "a", "index": 3}


def test_the_first_line_tells_the_log_and_the_limits() -> None:
    head = config([(2, ["a"]), (5, [])], ["a"], 3, 2, 1)
    assert head["entries"] == [[2, ["a"]], [5, []]]
    assert (head["queue_count_max"], head["window_batches_max"], head["batch_count_max"]) == (3, 2, 1)


def test_no_sink_no_record() -> None:
    player = new_player(1, 0, control("a"), limits())
    open_all(player)
    assert of(fetch(player, entry(1, a="x")), SendBatch)


def test_every_record_has_the_fields_that_the_trace_check_knows() -> None:
    for seed in range(1, 40):
        simulation = Simulation(options_for(seed, plain=True), trace=True)
        simulation.run()
        for record in simulation.trace:
            wanted = {"node", "ev", *FIELDS[str(record["ev"])]}
            assert set(record) == wanted, record

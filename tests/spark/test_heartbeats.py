"""Heartbeats at the driver: what is not a player's status is refused, and never ends in a traceback."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logplayer.config import Config
from logplayer.errors import LogPlayerError, Malformed
from logplayer.observe.instruments import PlayerCounts
from logplayer.observe.timeline import DECISION, EPOCH, FAULT, LOG, SESSION, STATE, Timeline
from logplayer.player.ended import STOPPED
from logplayer.player.status import PlayerStatus, TargetStatus
from logplayer.spark.resident.counts import Counted, Tally, as_json, read_counted
from logplayer.spark.resident.driver import Resident, _now
from logplayer.spark.resident.groups import GroupPlan, deal
from logplayer.spark.resident.heartbeat import read_beat
from logplayer.spark.resident.lease import Coordinator
from logplayer.spark.resident.machine import Machine, Settings
from logplayer.spark.resident.told import ITEMS_MAX, KINDS, Hearing, Telling, read_said

MEMBERS = {"a", "b", "c", "d"}
NO_SPARK: Any = None


def example(kind: Any) -> dict[str, Any]:
    """A status with some value in each field, whatever fields there are."""
    values: dict[str, Any] = {"str": "x", "int": 7, "float": 1.5, "float | None": None, "Blocked | None": None}
    values |= {"tuple[str, ...]": ["x"], "tuple[int, ...]": [7]}
    known: dict[str, Callable[[], Any]] = {"targets": lambda: [example(TargetStatus)], "chain": lambda: "00" * 8}
    return {
        name: known[name]() if name in known else values[hint]
        for name, hint in kind.__annotations__.items()
        if name in known or hint in values
    }


def a_beat(target: str = "a", **fields: Any) -> dict[str, Any]:
    status = example(PlayerStatus)
    status["targets"][0].update({"target": target, **fields})
    counts = as_json(Counted("p", some_counts(3)))
    return {"do": "beat", "job": "play-j-1", "group": 0, "worker": "w", "status": status, "counts": counts}


def some_counts(number: int) -> PlayerCounts:
    """So many of everything."""
    counts = PlayerCounts()
    counts.batches = counts.entries = counts.trims = number
    counts.bytes = number * 100
    for delays in (counts.acks, counts.dispatch, counts.delivery):
        for _ in range(number):
            delays.note(0.0003)
    counts.refusals["a", "POISON"] = counts.losses["a"] = number
    return counts


@pytest.fixture(scope="module")
def driver() -> Resident:
    """The driver, without Spark."""
    made = Resident(NO_SPARK, Config("file:///x"))
    made._run = "j"
    made.machine = Machine(Settings(), deal(MEMBERS, 2), frozenset(MEMBERS), application=1)
    made.machine.begin(_now())
    return made


def test_a_heartbeat_is_heard(driver: Resident) -> None:
    assert driver._heard(a_beat("a", index=41)) == {"stop": False, "retry": [], "application": 1, "hold": []}
    assert driver.overview.indexes() == {"a": 41}
    a, b, _, _ = driver.status()["targets"]
    assert (a["target"], a["index"], a["state"]) == ("a", 41, "x")
    assert (b["target"], b["index"], b["state"]) == ("b", -1, "SILENT")


def test_a_blocked_target_is_heard_of(driver: Resident) -> None:
    blocked = {"kind": "POISON", "detail": "why", "index": 42}
    assert "stop" in driver._heard(a_beat("a", index=41, blocked=blocked, lag_seconds=-0.1))
    assert driver.status()["targets"][0]["blocked"] == blocked
    with pytest.raises(Malformed, match="blocked"):
        driver._heard(a_beat("a", blocked={"kind": "POISON"}))


def test_counts_survive_their_way_as_json() -> None:
    player, counts = read_counted(json.loads(json.dumps(as_json(Counted("p", some_counts(3))))))
    assert (player, counts.entries, counts.bytes, counts.acks.count) == ("p", 3, 300, 3)
    assert counts.delivery.seconds == pytest.approx(0.0009)
    assert (counts.refusals, counts.losses) == ({("a", "POISON"): 3}, {"a": 3})


def test_the_sum_over_groups_never_falls_when_a_worker_is_replaced() -> None:
    tally = Tally()
    for group, player, number, entries in ((0, "p", 5, 5), (1, "q", 7, 12), (0, "p", 6, 13), (0, "r", 1, 14)):
        tally.take(group, Counted(player, some_counts(number)))
        total = tally.total()
        assert (total.entries, total.acks.count, total.delivery.count) == (entries, entries, entries)
        assert total.refusals["a", "POISON"] == total.losses["a"] == entries
    assert total.bytes == 700  # Each group reads the whole log.


def items_of(timeline: Timeline) -> list[tuple[str, str]]:
    return [(item["kind"], item["text"]) for item in timeline.since(0)]


def test_what_players_say_comes_once_and_in_order_whatever_gets_lost() -> None:
    """Answers get lost, a worker is replaced, and there is more to say than fits into a heartbeat."""
    rng = random.Random(5)
    hearing, driver, wanted = Hearing(), Timeline(), []
    for _ in range(2):  # The second player begins at 1 again.
        player, telling = Timeline(), Telling()
        for nth in range(3 * ITEMS_MAX):
            kind = rng.choice((SESSION, FAULT, STATE, EPOCH))
            player.say(logging.INFO, kind, f"{player.name} {nth}")
            if kind in KINDS:
                wanted.append((kind, f"{player.name} {nth}"))
        while telling.next(player)["items"]:
            for number, timeline in ((0, driver), (1, Timeline())):  # Another group has its own numbers.
                said = read_said(json.loads(json.dumps(telling.next(player))), lambda _: True)
                hearing.take(number, said, timeline)
            if rng.random() < 0.5:
                telling.heard()
    assert items_of(driver) == wanted


def test_a_group_says_nothing_of_the_targets_of_others() -> None:
    player = Timeline()
    player.say(logging.INFO, DECISION, "about a", target="a", index=7, strange={"x": 1})
    player.say(logging.INFO, DECISION, "about b", target="b")
    player.say(logging.ERROR, LOG, "about the log")
    beat = read_beat(a_beat() | {"timeline": Telling().next(player)}, GroupPlan(2, {"a": 0, "b": 1}), {"a", "b"})
    assert beat.said is not None
    assert [item["text"] for item in beat.said.items] == ["about a", "about the log"]
    assert (beat.said.items[0]["index"], "strange" in beat.said.items[0]) == (7, False)


def test_a_group_speaks_for_its_own_members_only() -> None:
    plan = GroupPlan(2, {"a": 0, "b": 1})
    for name in ("b", "a stranger"):
        beat = read_beat(a_beat(name), plan, {"a", "b"})
        assert beat.status is not None
        assert beat.status["targets"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"group": 2},
        {"group": -1},
        {"group": True},
        {"group": "0"},
        {"group": None},
        {"worker": 7},
        {"ended": ["superseded"]},
        {"ended": "superseded"},
        {"ended": {**STOPPED.as_json(), "kind": "gone"}},
        {"ended": {**STOPPED.as_json(), "epoch": -1}},
        {"timeline": 7},
        {"timeline": {"player": "p", "items": [{}] * 51}},
        {"timeline": {"player": "p", "items": [{"number": 0, "at": 1, "text": "", "kind": "log", "level": "info"}]}},
        {"timeline": {"player": "p", "items": [{"number": 1, "at": "1", "text": "", "kind": "log", "level": "info"}]}},
        {"timeline": {"player": "p", "items": [{"number": 1, "at": 1, "text": 7, "kind": "log", "level": "info"}]}},
        {"counts": 7},
        {"counts": {}},
        {"counts": {**as_json(Counted("p", PlayerCounts())), "entries": -1}},
        {"counts": {**as_json(Counted("p", PlayerCounts())), "acks": {"counts": [1], "seconds": 0.1}}},
        {"counts": {**as_json(Counted("p", PlayerCounts())), "refusals": [["a", "POISON"]]}},
        {"counts": {**as_json(Counted("p", PlayerCounts())), "losses": [[7, 7]]}},
        {"status": {}},
        {"status": [1]},
        {"status": "fine"},
        {"status": {**example(PlayerStatus), "chain": "not a value"}},
        {"status": {**example(PlayerStatus), "entries_per_second": 10**400}},
    ],
)
def test_a_heartbeat_of_a_wrong_shape_is_refused(driver: Resident, change: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        driver._heard({**a_beat(), **change})


@pytest.mark.parametrize("index", [-2, 2**63, 1.0, "7", True, None, [7]])
def test_an_index_is_a_number_that_an_index_can_be(driver: Resident, index: object) -> None:
    with pytest.raises(Malformed, match="index"):
        driver._heard(a_beat("a", index=index))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, item in inner for place in places(item, (*at, key)))]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_odd_heartbeats_neither_raise_nor_spoil_the_status(driver: Resident, data: st.DataObject) -> None:
    beat = a_beat()
    place = data.draw(st.sampled_from([place for place in places(beat) if place]))
    inner = beat
    for key in place[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[place[-1]] = data.draw(JSON)
    else:
        del inner[place[-1]]
    _only_ours(driver._heard, beat)
    json.dumps(driver.status())
    assert all(type(index) is int and index >= 0 for index in driver.overview.indexes().values())


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["do", "job", "group", "worker", "lease", "seat", "playing"]), JSON))
def test_odd_questions_to_a_coordinator_are_refused(coordinator: Coordinator, question: dict[str, Any]) -> None:
    for do in ("beat", "lease", question.get("do")):
        _only_ours(coordinator._answer, {**copy.deepcopy(question), "do": do})


@pytest.fixture(scope="module")
def coordinator() -> Any:
    made = Coordinator()
    made.begin(GroupPlan(2), 10)
    yield made
    made.stop()


def _only_ours(ask: Callable[[Mapping[str, Any]], Any], question: Mapping[str, Any]) -> None:
    with contextlib.suppress(LogPlayerError):  # It is said to whoever asked.
        ask(question)

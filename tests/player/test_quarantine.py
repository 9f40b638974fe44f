"""Only what blocks a target is quarantined; the decision is counted, and can be taken back until it has happened."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from logplayer.core.control_state import ControlState
from logplayer.core.entry import HashMap, Quarantined
from logplayer.errors import ConfigError
from logplayer.log import control_chain as chain
from logplayer.player.quarantine_rules import QuarantineFacts, check_quarantine, check_revocation
from logplayer.wire.entries import encode_mutation
from tests.player.player_support import House, Playing, logplayer, until

BAD = encode_mutation(b"poison", b"\xff!", "b").encoded + encode_mutation(b"name", "é".encode(), "b").encoded


async def poisoned(house: House) -> tuple[Playing, int, tuple[str, ...]]:
    """A player whose target b is blocked; the entry that blocks it, and the options that find log and player."""
    await house.targets("ab")
    with sqlite3.connect(house.seats["b"].path) as db:
        db.execute(
            "CREATE TRIGGER t BEFORE INSERT ON data WHEN new.key = CAST('poison' AS BLOB) "
            "BEGIN SELECT RAISE(ABORT, 'no poison here'); END"
        )
    player = await house.play()
    await house.append(5)
    bad = await house.append_raw(BAD)
    await until(lambda: player.target("b").state == "BLOCKED", "b is blocked")
    return player, bad, ("--log", house.log_address, "--player", await player.answering())


async def test_only_the_entry_that_blocks_the_target_is_quarantined(house: House) -> None:
    player, bad, where = await poisoned(house)
    last = await house.append(10)
    blocked = player.shell.status().as_json()["targets"][1]["blocked"]
    assert (blocked["kind"], blocked["index"]) == ("POISON", bad)
    assert "no poison here" in blocked["detail"]
    said = await logplayer("target", "quarantine", "b", "--index", str(bad + 1), *where, code=2)
    assert f"b is blocked by entry {bad}, not by entry {bad + 1}" in said
    assert f"--index {bad}" in said
    said = await logplayer("target", "quarantine", "b", "--index", str(last + 5), "--force", *where, code=2)
    assert f"entry {last + 5} is not in the log, which ends at {last}" in said
    said = await logplayer("target", "quarantine", "b", "--index", "2", "--force", *where, code=2)
    assert f"b has index {bad - 1}: entry 2 is already applied" in said
    assert player.target("b").quarantined == 0
    said = await logplayer("target", "quarantine", "b", "--index", str(bad), *where)
    assert said == f"b quarantines entry {bad}\n"
    await house.delivered(last)
    assert await house.problems(quarantined={"b": {bad}}) == []
    await until(lambda: player.target("b").index >= last, "the ack is in")
    assert (player.target("b").quarantined, player.target("b").quarantined_ahead) == (1, 0)
    assert player.target("b").blocked is None
    shown = await logplayer("status", "--player", where[-1])
    assert "b: 1 quarantined entry" in shown
    store = ("--store", "sqlite", "--path", str(house.seats["b"].path), "--id", "b")
    assert json.loads(await logplayer("target", "dump", *store, "--quarantine")) == {
        "index": bad,
        "mutations": [
            {"key": "poison", "value": {"base64": "/yE="}, "target": "b"},
            {"key": "name", "value": "é", "target": "b"},
        ],
    }


async def test_what_was_redriven_is_not_counted_any_more(house: House) -> None:
    """Also by a player that starts afterwards; the decision itself stays in the log."""
    player, bad, where = await poisoned(house)
    await logplayer("target", "quarantine", "b", "--index", str(bad), *where)
    await house.append(5)
    await until(lambda: player.target("b").quarantined_indexes == (bad,), "the entry is listed")
    assert f"b: 1 quarantined entry: {bad}\n" in await logplayer("status", "--player", where[-1])
    with sqlite3.connect(house.seats["b"].path) as db:
        db.execute("DROP TRIGGER t")
    redriven = player.shell.observed.redriven
    await until(lambda: ("b", bad) in redriven._asked, "the log was asked, and only the main stream can tell now")
    said = await logplayer("target", "redrive", "b", "--index", str(bad), "--json", *where[:2])
    await house.delivered(json.loads(said)["index"])
    await until(lambda: player.target("b").quarantined == 0, "it was redriven")
    assert player.target("b").quarantined_indexes == ()
    assert "quarantined" not in await logplayer("status", "--player", where[-1])
    assert player.shell.core.control.quarantined == {"b": {bad}}
    await player.stop()
    await house.append(5)
    player = await house.play()
    assert player.shell.core.control.quarantined == {"b": {bad}}
    await until(lambda: player.target("b").quarantined == 0, "the log has told that it was redriven")


async def test_a_player_of_another_log_is_not_believed(house: House, tmp_path: Path) -> None:
    """Two logs, each with a target b: what blocks the one says nothing about the other."""
    _, bad, where = await poisoned(house)
    other = ("--log", f"file://{tmp_path}/other")
    await logplayer("target", "add", "b", house.seats["b"].address, *other)
    said = await logplayer("target", "quarantine", "b", "--index", str(bad), *other, *where[2:], code=2)
    assert f"plays log {(await house.log.info()).log_id}, not this one" in said


async def test_without_a_player_or_for_a_healthy_target_nothing_is_quarantined(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    last = await house.append(10)
    await house.delivered(last)
    await until(lambda: player.target("b").index >= last, "the ack is in")
    await house.seats["b"].down()
    ahead = await house.append(1, targets="b")
    log = ("--log", house.log_address)
    said = await logplayer("target", "quarantine", "b", "--index", str(ahead), *log, "--player", "127.0.0.1:1", code=2)
    assert f"nobody can tell whether entry {ahead} blocks b" in said
    where = (*log, "--player", await player.answering())
    await until(lambda: player.target("b").state == "SUSPENDED", "b is away")
    said = await logplayer("target", "quarantine", "b", "--index", str(ahead), *where, code=2)
    assert f"b is SUSPENDED and has index {last}: entry {ahead} does not block it" in said
    said = await logplayer("target", "quarantine", "nobody", "--index", str(ahead), *where, code=2)
    assert "not a member" in said
    assert player.shell.core.control.quarantined == {}


async def test_a_forced_decision_is_counted_and_can_be_revoked_in_time(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    where = ("--log", house.log_address, "--player", await player.answering())
    await house.delivered(await house.append(10))
    await house.seats["b"].down()
    await until(lambda: player.target("b").state == "SUSPENDED", "b is away")
    first = await house.append(1, targets="b")
    second = await house.append(1, targets="b")
    both = ("--index", str(first), "--index", str(second))
    said = await logplayer("target", "quarantine", "b", *both, "--force", *where)
    assert said.count("will be missing at b") == 2
    await until(lambda: player.target("b").quarantined_ahead == 2, "both are decided")
    shown = await logplayer("status", "--player", where[-1])
    assert "b: 2 quarantined entries, 2 of them ahead" in shown
    said = await logplayer("target", "unquarantine", "b", "--index", "4", *where, code=2)
    assert f"decided are: {first}, {second}" in said
    assert json.loads(await logplayer("target", "unquarantine", "b", "--index", str(first), "--json", *where))["index"]
    await until(lambda: player.target("b").quarantined_ahead == 1, "one is taken back")
    await house.seats["b"].up()
    await house.delivered(await house.append(1))
    assert await house.problems(quarantined={"b": {second}}) == []
    said = await logplayer("target", "unquarantine", "b", "--index", str(second), *where, code=2)
    assert f"entry {second} is in its quarantine, and stays there" in said


async def test_a_revoked_decision_is_revoked_for_the_next_player(house: House) -> None:
    await house.targets("ab")
    player = await house.play()
    await house.delivered(await house.append(10))
    await player.stop()
    await chain.append(house.file, Quarantined("b", 500), HashMap(("a", "b")))
    where = ("--log", house.log_address, "--player", "127.0.0.1:1")
    await logplayer("target", "unquarantine", "b", "--index", "500", *where)  # b itself says which index it has.
    player = await house.play()
    assert player.shell.core.control.quarantined == {}


def seen(index: int = 5, state: str = "LIVE", blocked: Any = None, **changes: Any) -> QuarantineFacts:
    control = ControlState.start(HashMap(("b",)), ("b",))
    control.quarantined["b"] = {9}
    target = {"target": "b", "state": state, "index": index, "blocked": blocked}
    return QuarantineFacts(10, control, target, index)._replace(**changes)


def test_a_blocked_target_is_not_passed_an_entry_of_another_reason() -> None:
    poison = {"kind": "POISON", "index": 6, "detail": ""}
    assert check_quarantine("b", 6, seen(state="BLOCKED", blocked=poison), False) == ""
    for blocked in (None, {**poison, "kind": "BAD_BATCH"}, {**poison, "index": 7}):
        with pytest.raises(ConfigError):
            check_quarantine("b", 6, seen(state="BLOCKED", blocked=blocked), False)
        assert "will be missing" in check_quarantine("b", 6, seen(state="BLOCKED", blocked=blocked), True)
    for index in (5, 11):
        with pytest.raises(ConfigError):
            check_quarantine("b", index, seen(), True)


def test_what_has_happened_is_not_taken_back() -> None:
    check_revocation("b", 9, seen(8), False)
    for index in (9, 10):
        with pytest.raises(ConfigError, match="stays there"):
            check_revocation("b", 9, seen(index), True)
    with pytest.raises(ConfigError, match="nobody can tell"):
        check_revocation("b", 9, seen(-1), False)
    check_revocation("b", 9, seen(-1), True)
    with pytest.raises(ConfigError, match="not decided"):
        check_revocation("b", 8, seen(3), True)

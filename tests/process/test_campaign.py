"""A short fault campaign on real processes, and the same with traces that TLC checks against the protocol."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from logplayer.core.digest import extend
from logplayer.core.entry import Delivery
from logplayer.errors import UserError
from logplayer.java import find_java
from logplayer.log.protocol import Kind, Record
from logplayer.target.stores.sqlite import SqliteTarget
from logplayer.testing.spec.trace_check import check
from logplayer.wire.entries import encode_mutation
from tests import ROOT
from tests.campaign import producer_soak
from tests.campaign.campaign import Campaign
from tests.campaign.check import compare, expect, hashed
from tests.campaign.trace import merged, repaired
from tests.campaign.world import LIMITS
from tests.servers import missing


async def test_a_dozen_faults(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, seed=11, faults=12, targets=3, pause=(0.2, 0.8))
    report = await campaign.run()
    assert report.problems == []
    assert sum(report.faults.values()) == 12
    assert report.entries > 100
    assert all(report.delivered.values())


async def test_producers_are_killed_and_go_on(tmp_path: Path) -> None:
    """Once at every step, in both APIs."""
    places = [f"{how} {place}" for how in producer_soak.APIS for place in producer_soak.STEPS]
    outcome, died = await producer_soak.campaign(tmp_path, 10, random.Random(3))
    assert {place: died[place] for place in places} == dict.fromkeys(places, 1)
    assert outcome.holds
    assert outcome.entries >= outcome.acknowledged > 0


async def test_the_traces_of_a_campaign_are_behaviours_of_the_spec(tmp_path: Path) -> None:
    try:
        find_java()
    except UserError as error:
        missing(str(error))
    campaign = Campaign(tmp_path, seed=5, faults=8, targets=2, rate=60, entries_max=150, trace=True)
    report = await campaign.run()
    assert report.problems == []
    names = list(campaign.world.seats)
    lines = merged(tmp_path, campaign.records, names, hashed(names), LIMITS)
    assert len(lines) > 100  # A busy machine gets less done between two faults.
    verdict = check(lines)
    assert verdict.accepted, str(verdict)
    # The check can say no: without an apply nobody can explain its ack. One that was not acked might have been none.
    facts = [tuple(line.get(key) for key in ("ev", "target", "epoch", "term", "index")) for line in lines]
    acked = {fact[1:] for fact in facts if fact[0] == "ack"}
    applies = [nth for nth, fact in enumerate(facts) if fact[0] == "apply" and fact[1:] in acked]
    del lines[applies[len(applies) // 2]]
    assert not check(lines).accepted


def test_a_crash_swallows_one_line_at_most_and_the_store_tells_which() -> None:
    accept = {"node": "Ta", "ev": "accept", "target": "a", "epoch": 1, "term": 1, "index": 0}
    apply = {**accept, "ev": "apply", "index": 5}
    crash = {**accept, "ev": "crash", "index": 9}
    assert [line["index"] for line in repaired([accept, apply, crash])] == [0, 5, 9, 9]
    assert [line["ev"] for line in repaired([accept, apply, crash])] == ["accept", "apply", "apply", "crash"]
    fresh = {**crash, "index": 5, "term": 2}
    whole = repaired([accept, apply, fresh])
    assert [line["ev"] for line in whole] == ["accept", "apply", "accept", "crash"]
    assert whole[2]["term"] == 2
    assert repaired([accept, apply, {**crash, "index": 5}]) == [accept, apply, {**crash, "index": 5}]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE data SET value = x'00' WHERE key = CAST('k1' AS BLOB)", "another value"),
        ("DELETE FROM data WHERE key = CAST('k1' AS BLOB)", "lacks 1 keys"),
        ("INSERT INTO data VALUES (x'ff', x'00')", "should not have"),
        ("UPDATE position SET log_index = 1", "stands at 1"),
        ("UPDATE position SET digest = x'00'", "digest"),
        ("INSERT INTO quarantine VALUES (1, x'00')", "quarantine"),
    ],
)
def test_the_comparison_sees_every_kind_of_damage(tmp_path: Path, damage: str, said: str) -> None:
    payloads = [encode_mutation(f"k{nth}".encode(), b"v").encoded for nth in range(3)]
    records = [Record(nth + 1, Kind.DATA, "p", nth + 1, 0, payload, b"", 0) for nth, payload in enumerate(payloads)]
    expected = expect(records, ["a"], hashed(["a"]))["a"]
    store = SqliteTarget(tmp_path / "a.db", "a")
    digest = extend(0, [Delivery(record.index, record.payload) for record in records])
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.executemany("INSERT INTO data VALUES (?, ?)", [(f"k{nth}".encode(), b"v") for nth in range(3)])
        db.execute("REPLACE INTO position VALUES (1, 'a', 3, 1, 1, ?, 'log', x'')", (digest.to_bytes(16, "big"),))
    assert compare("a", expected, store) == []
    with sqlite3.connect(tmp_path / "a.db") as db:
        db.execute(damage)
    assert any(said in problem for problem in compare("a", expected, store))
    store.close()


def test_the_command_tells_its_verdict_as_json(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.campaign",
        "--faults",
        "1",
        "--seed",
        "2",
        "--targets",
        "1",
        "--json",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"], told["seed"], told["problems"]) == (0, True, 2, [])

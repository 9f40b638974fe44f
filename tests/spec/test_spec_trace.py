"""The trace check: hand-made traces, what becomes of them when a line is falsified, and traces of the real core."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from logplayer.cli.spec import spec
from logplayer.errors import UserError
from logplayer.testing.sim.options import options_for
from logplayer.testing.sim.simulation import Simulation
from logplayer.testing.spec.tlc import Tlc, spec_dir
from logplayer.testing.spec.trace_check import check
from logplayer.testing.spec.trace_module import module_text, parse

Rows = list[dict[str, Any]]
TRACES = spec_dir() / "traces"

# What each falsified trace must be rejected for: the node, the kind of its line, and the reason.
REJECTED = {
    "applied-twice": ("Ta", "apply", "no batch was sent that the target has not read"),
    "swapped": ("P1", "send", "these are not the first entries of the queue"),
    "skipped": ("P1", "send", "these are not the first entries of the queue"),
    "ack-of-dead-session": ("P1", "ack", "the player's session with this target is another one"),
    "ack-not-given": ("P1", "ack", "the target has not given this ack in this session"),
    "join-too-early": ("P1", "join", "the coverage has not reached the main stream"),
    "range-over-queue": ("P1", "send", "the range passes an entry that is still queued, or the coverage"),
    "batch-of-old-session": ("Ta", "apply", "a newer session was accepted"),
    "full-queue": ("P1", "dispatch", "a full queue was not demoted"),
    "trim-before-ack": ("P1", "trim", "not every target has acked that much to this player"),
    "read-for-dead-session": ("P1", "read", "the player's session with this target is another one"),
}


def load(name: str) -> Rows:
    return [json.loads(line) for line in (TRACES / f"{name}.ndjson").read_text().splitlines()]


def test_every_trace_file_is_tested() -> None:
    names = {path.stem for path in TRACES.glob("*.ndjson")}
    assert names == {f"rejected-{name}" for name in REJECTED} | {"accepted-three-players", "accepted-refused-entry"}


@pytest.mark.parametrize("name", ["accepted-three-players", "accepted-refused-entry"])
def test_accepted(tlc: Tlc, name: str) -> None:
    rows = load(name)
    verdict = check(rows, tlc=tlc)
    assert verdict.accepted, str(verdict)
    assert verdict.matched == verdict.total == len(rows) - 1
    assert verdict.states == verdict.total + 1, "the order between the nodes was searched"


@pytest.mark.parametrize("name", REJECTED)
def test_rejected(tlc: Tlc, name: str) -> None:
    node, kind, why = REJECTED[name]
    verdict = check(load(f"rejected-{name}"), tlc=tlc)
    assert not verdict.accepted
    assert verdict.matched < verdict.total
    assert (node, kind, why) in [(u.node, u.line["ev"], u.why) for u in verdict.unexplained], str(verdict)


def test_a_broken_invariant_is_told(tlc: Tlc, tmp_path: Path) -> None:
    """The protocol keeps its invariants, so this one is broken in a copy of the spec."""
    for source in tlc.directory.rglob("*.tla"):
        (tmp_path / source.name).write_text(source.read_text())
    protocol = (tmp_path / "LogPlayer.tla").read_text()
    assert "TrimSafe == " in protocol
    (tmp_path / "LogPlayer.tla").write_text(protocol.replace("TrimSafe == ", "TrimSafe == trim = 0 /\\ "))
    rows = load("accepted-three-players")
    verdict = check(rows, tlc=Tlc(tlc.java, tmp_path))
    assert not verdict.accepted
    assert verdict.broken == ("TrimSafe",)
    assert verdict.unexplained == ()
    assert verdict.matched < verdict.total
    assert "breaks TrimSafe" in str(verdict)


def test_the_order_between_nodes_does_not_matter(tlc: Tlc) -> None:
    head, *rows = load("accepted-three-players")
    by_node = sorted(rows, key=lambda row: str(row["node"]), reverse=True)  # A stable sort keeps each node's order.
    assert by_node != rows
    assert check([head, *by_node], tlc=tlc).accepted


# --- Falsified in one place -------------------------------------------------------------------------------------------


def nth(rows: Rows, kind: str, number: int = 0, **facts: object) -> int:
    """Where the n-th line of this kind with these facts stands."""
    found = [i for i, row in enumerate(rows) if row["ev"] == kind and facts.items() <= row.items()]
    return found[number]


def twice(kind: str, number: int = 0, **facts: object) -> Callable[[Rows], None]:
    def falsify(rows: Rows) -> None:
        at = nth(rows, kind, number, **facts)
        rows.insert(at, dict(rows[at]))

    return falsify


def dropped(kind: str, number: int = 0, **facts: object) -> Callable[[Rows], None]:
    def falsify(rows: Rows) -> None:
        del rows[nth(rows, kind, number, **facts)]

    return falsify


def exchanged(kind: str, **facts: object) -> Callable[[Rows], None]:
    def falsify(rows: Rows) -> None:
        one, other = nth(rows, kind, 0, **facts), nth(rows, kind, 1, **facts)
        rows[one], rows[other] = rows[other], rows[one]

    return falsify


def changed(kind: str, number: int = 0, /, *, to: dict[str, object], **facts: object) -> Callable[[Rows], None]:
    def falsify(rows: Rows) -> None:
        rows[nth(rows, kind, number, **facts)].update(to)

    return falsify


FALSIFIED = {
    "an entry is applied twice": twice("apply", node="Tb", index=17),
    "two batches are applied in the wrong order": exchanged("apply", node="Tb", epoch=10),
    "a batch is never sent": dropped("send", node="P10", target="b", prev=13),
    "an entry is left out of its batch": changed("send", to={"indexes": [12]}, target="a", prev=9),
    "an entry is never dispatched": dropped("dispatch", index=13),
    "prev lies in a gap of the log": changed("send", to={"prev": 8}, target="b", prev=9),
    "an ack comes from the session before": changed("ack", to={"term": 1}, target="a", epoch=10),
    "a crash loses what was acked": changed("crash", to={"index": 12}),
    "an older player is not refused": changed("refuse", to={"ev": "accept", "index": 9}, epoch=3),
    "a demotion is not told": changed("dispatch", to={"demoted": []}, index=16),
}


@pytest.mark.parametrize("what", FALSIFIED)
def test_a_falsified_line_is_found(tlc: Tlc, what: str) -> None:
    rows = copy.deepcopy(load("accepted-three-players"))
    FALSIFIED[what](rows)
    assert rows != load("accepted-three-players")
    verdict = check(rows, tlc=tlc)
    assert not verdict.accepted, what
    assert verdict.unexplained


# --- The real core, in a simulated world ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [2, 7])
def test_a_run_of_the_core_is_a_behaviour_of_the_protocol(tlc: Tlc, seed: int) -> None:
    simulation = Simulation(options_for(seed, plain=True), trace=True)
    simulation.run()
    verdict = check(simulation.trace_lines(), tlc=tlc)
    assert verdict.accepted, f"seed {seed}: {verdict}"
    assert verdict.total > 20


# --- The form ---------------------------------------------------------------------------------------------------------

CONFIG: dict[str, Any] = {
    "ev": "config",
    "entries": [[5, ["a"]], [7, []]],
    "targets": ["a"],
    "queue_count_max": 1,
    "window_batches_max": 1,
    "batch_count_max": 1,
}
START = {"node": "P5", "ev": "start", "epoch": 5, "current": 0}


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "begins with its config line"),
        ([START], "begins with its config line"),
        ([CONFIG, "{"], "line 2 is not JSON"),
        ([CONFIG, "[]"], "line 2 is not a JSON object"),
        ([CONFIG, {**START, "ev": "begin"}], "line 2 has ev 'begin'"),
        ([CONFIG, {"node": "P5", "ev": "start", "epoch": 5}], r"line 2 \(start\) lacks current"),
        ([CONFIG, {**START, "current": -1}], "has current -1"),
        ([CONFIG, {**START, "node": "P6"}], "is of node 'P6' and tells of 'P5'"),
        ([CONFIG, {"node": "Tb", "ev": "crash", "target": "b", "index": 0}], r"names \['b'\]"),
        ([{**CONFIG, "entries": [[5, []], [5, []]]}], "do not rise"),
        ([{**CONFIG, "entries": [[5, ["z"]]]}], "not among its targets"),
        ([{**CONFIG, "queue_count_max": 0}], "must be at least 1"),
        ([{"ev": "config"}], "lacks 'entries'"),
    ],
)
def test_a_wrong_form_is_told(lines: list[Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        parse(lines)


def test_indexes_are_numbered_with_their_gaps() -> None:
    big = 10**12
    config = {**CONFIG, "entries": [[5, ["a"]], [big, ["a"]]]}
    text = module_text(parse([config, {**START, "current": 6}]))
    assert 'TraceDest == <<{"t1"}, {}, {"t1"}>>' in text
    assert "TraceAbsent == {2}" in text
    assert 'Lines == <<<<[ev |-> "start", epoch |-> 1, current |-> 2]>>>>' in text


# --- The command ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tlc")
def test_the_command_checks_several_traces_and_fails_if_one_is_rejected(tmp_path: Path) -> None:
    head, *rows = load("accepted-refused-entry")
    players, target = tmp_path / "players.ndjson", tmp_path / "target.ndjson"
    players.write_text("\n".join(map(json.dumps, [head, *(row for row in rows if row["node"] == "P1")])))
    target.write_text("\n".join(json.dumps(row) for row in rows if row["node"] == "Ta"))
    bad = TRACES / "rejected-skipped.ndjson"
    result = CliRunner().invoke(spec, ["--trace", "--json", str(players), str(target), str(bad)])
    told = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    assert [(row["files"], row["accepted"]) for row in told] == [
        ([str(players), str(target)], True),
        ([str(bad)], False),
    ]
    assert result.exit_code == 1


def test_the_command_tells_a_file_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"nowhere\.ndjson cannot be read"):
        CliRunner().invoke(spec, ["--trace", "nowhere.ndjson"], catch_exceptions=False)

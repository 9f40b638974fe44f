"""Page, terminal, metrics and ``status --json`` beside each other."""

from __future__ import annotations

import contextlib
import io
import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

import logplayer as lp
from logplayer.admin.exposition import STATES, Samples, add_player, exposition
from logplayer.cli.watch_view import view
from logplayer.player.status_table import status_table, target_cells
from tests.admin import page_probes as probes
from tests.admin.browser import Browser
from tests.admin.page_world import PageWorld

PILLS = {
    "live": "LIVE",
    "catching up": "CATCHING_UP",
    "away": "SUSPENDED",
    "blocked": "BLOCKED",
    "suspended": "BLOCKED",  # By an operator.
    "silent": "SILENT",
}
Scraped = dict[tuple[str, str], float]


class Row(NamedTuple):
    """What a surface says of one target."""

    state: str
    has: int
    lag: int


@contextlib.contextmanager
def appending(world: PageWorld) -> Iterator[None]:
    """Appends one transaction after another meanwhile, without a pause."""
    ended = threading.Event()

    def append() -> None:
        with lp.sync.open_log(world.world.log) as log:
            producer = log.producer()
            number = 0
            while not ended.wait(0.002):
                number += 1
                producer.append(lp.put(f"steady{number % 50}", "v"), timeout=60)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def agree(world: PageWorld, browser: Browser, *, exact: bool = True) -> None:
    """What each surface says lies between two statuses around it; the page's update is one made after the first.

    ``exact``: one player, whose lag follows from the indexes of the same moment. The groups of a Spark application
    speak at different moments.
    """
    before, since = _json_status(world), time.time() + 0.001
    page = browser.until(f"return (() => {{ {probes.SHOWN} }})()", since)
    table = world.cli("status", "--player", world.http)
    scraped = _scrape(world)
    after = _json_status(world)
    for surface, rows, ends in (
        ("page", _page_rows(page), (page["current"], page["log_last"])),
        ("terminal", _table_rows(table), _table_ends(table)),
        ("metrics", _metric_rows(scraped), _metric_ends(scraped)),
        ("json", _json_rows(after), (after["current"], after["log_last"])),
    ):
        assert before["current"] <= ends[0] <= after["current"], surface
        assert before["log_last"] <= ends[1] <= after["log_last"], surface
        for name, row in rows.items():
            place = f"{surface}, {name}: {row}"
            low, high = (next(one for one in some["targets"] if one["target"] == name) for some in (before, after))
            assert low["index"] <= row.has <= high["index"], place
            assert 0 <= row.lag <= after["log_last"] - low["index"], place
            assert not exact or row.lag in (ends[1] - row.has, ends[1] - ends[0]), place
            if _same(low, high):
                assert row.state == low["state"], place
            if low["state"] == high["state"] == "SUSPENDED" and low["index"] == high["index"]:
                assert low["lag_entries"] <= row.lag <= high["lag_entries"], place
            if before["log_last"] == after["log_last"] and low["index"] == high["index"] and _same(low, high):
                assert row.lag == low["lag_entries"] == high["lag_entries"], place


def _same(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the target was in one state all the time."""
    return all(before[key] == after[key] for key in ("state", "session", "sessions"))


def show_the_same(world: PageWorld, browser: Browser) -> dict[str, Any]:
    """Give one status to every surface: all of them show all that it says. Returns the status."""
    with urllib.request.urlopen(f"{world.url}status", timeout=60) as answer:
        status: dict[str, Any] = json.load(answer)
    status["now"] = time.time()
    status["unroutable"] = 7
    status["trim_point"] = 1200
    status["producers"] = [f"web-{number}" for number in range(1, 5)]
    status["audit"] = {"right": False, "targets": 3, "wrong": ["shard2"], "at": time.time()}
    status["targets"][-1] |= {"quarantined": 3, "quarantined_ahead": 1, "quarantined_indexes": [4, 8]}
    page = browser.run(probes.TAKE_AND_SHOW, 0, status)
    table = status_table(status)
    samples = Samples()
    add_player(samples, status)
    scraped = _parsed(exposition(samples).decode())
    rows = _json_rows(status)
    assert _page_rows(page) == _table_rows(table) == _metric_rows(scraped) == rows
    ends = status["current"], status["log_last"]
    assert (page["current"], page["log_last"]) == _table_ends(table) == _metric_ends(scraped) == ends
    for target in status["targets"]:
        shown, line = page["rows"][target["target"]], _line(table, target["target"])
        rate, eta = target["entries_per_second"], target["eta_seconds"]
        assert shown["rate"] == f"{int(rate + 0.5):,}"
        assert line.split()[8] == f"{rate:.0f}"
        assert scraped["logplayer_target_entries_per_second", target["target"]] == rate
        assert str(scraped["logplayer_target_catch_up_seconds", target["target"]]) == str(
            float("nan" if eta is None else eta)
        )
        outlook, why = target_cells(target)[-2:]
        lacks = "3 quarantined entries" if target["quarantined"] else ""
        fine = f"has everything but {lacks}" if lacks else "has everything"
        assert shown["outlook"] == (fine if target["outlook"] == "fine" else outlook)
        assert shown["why"] == "; ".join(filter(None, (why, "" if target["outlook"] == "fine" else lacks)))
        assert scraped["logplayer_target_quarantined_entries", target["target"]] == target["quarantined"]
        if lacks:
            assert f"{target['target']}: {lacks}, 1 of them ahead: 4, 8, …" in table
            assert any(line.startswith(target["target"]) and lacks in line for line in page["troubles"])
        if target["blocked"] is None:  # What an operator suspended has its own words.
            assert (outlook, why) == (target["whether"], target["why"])
    assert "7 entries are unroutable" in table
    assert any(line.startswith("7 entries reach no target") for line in page["troubles"])
    assert scraped["logplayer_player_unroutable_entries", ""] == 7
    tiles = page["tiles"]
    assert tiles["rate"] == f"{int(status['entries_per_second'] + 0.5):,}"
    assert f", {status['entries_per_second']:.0f} entries/s, " in table
    assert scraped["logplayer_player_entries_per_second", ""] == status["entries_per_second"]
    assert tiles["cut"] == f"{status['consistent_cut']:,}"
    assert table.splitlines()[0].endswith(f"all targets have {status['consistent_cut']}")
    assert scraped["logplayer_player_consistent_cut_index", ""] == status["consistent_cut"]
    assert tiles["lag"] == f"{max(target['lag_entries'] for target in status['targets']):,}"
    watched = _watched(status)
    for name, text in (("p50", tiles["delay"]), ("p90", tiles["delay-more"]), ("p99", tiles["delay-more"])):
        assert in_ms(status[f"delay_{name}_ms"]) in text
        assert in_ms(status[f"delay_{name}_ms"]) in watched["delay"]
    assert tiles["log-range"] == f"{status['log_first']:,} to {status['log_last']:,}"
    assert watched["log"].startswith(f"entries {status['log_first']} to {status['log_last']}, {tiles['log-more']}")
    assert watched["log"].endswith("; up to 1200 nobody needs it any more")
    assert tiles["strip-text"].endswith("; up to 1,200 nobody needs it any more.")
    assert watched["producers"] == tiles["producers-more"] == "web-1, web-2, web-3, and 1 more"
    assert (tiles["audit"], watched["audit"].split(",")[0]) == ("WRONG", "WRONG")
    for text in (tiles["audit-more"], watched["audit"]):
        assert "3 targets, " in text
        assert text.endswith(": shard2")
    for target in status["targets"]:
        assert tuple(watched[target["target"]].split()[:3]) == tuple(target_cells(target)[1:4])
    return status


def _watched(status: Mapping[str, Any]) -> dict[str, str]:
    """The lines of the live view, by their first word."""
    console = Console(width=200, file=io.StringIO())
    console.print(view(status, []))
    assert isinstance(console.file, io.StringIO)
    lines = (line.split(maxsplit=1) for line in console.file.getvalue().splitlines() if line.strip())
    return {first: rest.strip() for first, rest in lines}


def in_ms(value: float) -> str:
    """As the page writes milliseconds."""
    return f"{int(value + 0.5)} ms" if value >= 10 else f"{int(value * 100 + 0.5) / 100:g} ms"


def _json_status(world: PageWorld) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(world.cli("status", "--json", "--player", world.http))
    return status


def _json_rows(status: Mapping[str, Any]) -> dict[str, Row]:
    return {one["target"]: Row(one["state"], one["index"], one["lag_entries"]) for one in status["targets"]}


def _page_rows(page: Mapping[str, Any]) -> dict[str, Row]:
    """As it is written there, which must be what the page was told."""
    found = {}
    for name, row in page["rows"].items():
        state = PILLS[row["state"]]
        index, lag = (int(row[key].split()[0].replace(",", "")) for key in ("index", "lag"))
        assert (state, index, lag) == tuple(row["told"][key] for key in ("state", "index", "lag_entries")), row
        found[name] = Row(state, index, lag)
    return found


def _line(table: str, target: str) -> str:
    return next(line for line in table.splitlines() if line.startswith(f"{target} "))


def _table_rows(table: str) -> dict[str, Row]:
    lines = [line.split() for line in table.splitlines() if re.match(r"shard\w+ ", line)]
    return {words[0]: Row(words[1], int(words[2]), int(words[3])) for words in lines}


def _table_ends(table: str) -> tuple[int, int]:
    at, last = table.partition(": at entry ")[2].partition(",")[0].split(" of ")
    return int(at), int(last)


def _scrape(world: PageWorld) -> Scraped:
    with urllib.request.urlopen(f"{world.url}metrics", timeout=60) as answer:
        return _parsed(answer.read().decode())


def _parsed(text: str) -> Scraped:
    """By name and target; a state of a target has it in the name."""
    return {
        (
            sample.name + sample.labels.get("state", "") * ("target" in sample.labels),
            sample.labels.get("target", ""),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if {"le", "reason", "kind"}.isdisjoint(sample.labels)
    }


def _metric_rows(scraped: Scraped) -> dict[str, Row]:
    found = {}
    for name in [target for metric, target in scraped if metric == "logplayer_target_index"]:
        [state] = [state for state in STATES if scraped[f"logplayer_target_state{state}", name] == 1]
        index, lag = (scraped[f"logplayer_target_{what}", name] for what in ("index", "lag_entries"))
        found[name] = Row(state, int(index), int(lag))
    return found


def _metric_ends(scraped: Scraped) -> tuple[int, int]:
    at, last = (scraped[f"logplayer_player_{what}", ""] for what in ("current_index", "log_last_index"))
    return int(at), int(last)

"""What the page shows of the way of the entries, in a real Chromium; and that other surfaces say the same."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from logplayer.admin.http_client import ask
from logplayer.demo.world import free_ports
from logplayer.wire.security import Security
from tests.admin import page_probes as probes
from tests.admin.browser import Browser
from tests.admin.page_agree import agree, appending, in_ms, show_the_same
from tests.admin.page_world import OPERATOR, PageWorld
from tests.admin.test_page import browser, headline, shows, told, window

__all__ = ["browser", "window"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageWorld]:
    """Of a player that trims."""
    with PageWorld(tmp_path_factory.mktemp("page"), 3, "--in-process", "--trims") as made:
        made.append(30)
        yield made


def status_of(world: PageWorld) -> dict[str, Any]:
    with urllib.request.urlopen(f"{world.url}status", timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def acts(world: PageWorld, name: str, question: dict[str, Any]) -> None:
    asyncio.run(ask(world.http, f"/actions/{name}", question, Security(token=OPERATOR)))


def test_the_map_shows_who_appends_and_what_the_log_holds(world: PageWorld, browser: Browser) -> None:
    world.append(30_000)
    browser.until("return window.logplayer.status.log_first > 1 && window.logplayer.status.log_bytes > 0")
    headline(browser, "All 3 targets have everything.")
    world.append(3)  # Not trimmed, so that the marks lie apart.
    browser.until(probes.FINE, status_of(world)["log_last"])
    found = browser.run(probes.MAP)
    status = found["status"]
    first, last = status["log_first"], status["log_last"]
    assert (found["producers"], found["producers-more"]) == ("1", "web-1")
    assert found["log-range"] == f"{first:,} to {last:,}"
    assert re.fullmatch(r"[\d.]+ [KMG]?B", found["log-more"])
    number, unit = found["log-more"].split()
    assert float(number) * 1024 ** ["B", "KB", "MB"].index(unit) == pytest.approx(status["log_bytes"], rel=0.1)
    assert (found["player"], found["player-more"]) == ("plays", f"at entry {status['current']:,}")
    assert (found["counts"], found["dots"]) == ("3 live", ["shard1:", "shard2:", "shard3:"])
    assert 0 < status["trim_point"] <= status["consistent_cut"] <= last
    for mark, index in (
        ("held", first - 1),
        ("trim", status["trim_point"]),
        ("cut", status["consistent_cut"]),
        ("main", status["current"]),
    ):
        assert float(found["marks"][mark].rstrip("%")) == pytest.approx(100 * index / last, abs=0.01), mark
    assert f"The log holds {first:,} to {last:,}; every target has {status['consistent_cut']:,}" in found["strip-text"]
    assert f"; up to {status['trim_point']:,} nobody needs it any more." in found["strip-text"]


def test_the_chart_draws_the_delays_that_were_measured(world: PageWorld, browser: Browser) -> None:
    with appending(world):
        browser.until("return document.querySelector('#chart .p50')?.getAttribute('d').split('L').length > 2")
    with urllib.request.urlopen(f"{world.url}events", timeout=60) as events:
        name = b""
        for line in events:
            if line.startswith(b"event: "):
                name = line.strip()
            elif name == b"event: history" and line.startswith(b"data: "):
                points = json.loads(line[6:])
                break
    said = {
        f"Newest: median {in_ms(p50)} (solid), p90 {in_ms(p90)} (dashed), p99 {in_ms(p99)} (dotted)."
        for _, p50, p90, p99, *_ in points
    }
    browser.until("return arguments[0].includes(document.getElementById('chart-text').textContent)", sorted(said))
    lines = browser.run(probes.CHART)
    assert set(lines) == {"p50", "p90", "p99"}
    for line in lines.values():
        across = [x for x, _ in line]
        assert across == sorted(across)
        assert all(x >= 52 and 8 <= y <= 168 for x, y in line)
    for low, high in (("p50", "p90"), ("p90", "p99")):  # A longer delay is further up.
        assert [x for x, _ in lines[low]] == [x for x, _ in lines[high]]
        assert all(y >= above for (_, y), (_, above) in zip(lines[low], lines[high], strict=True))


def test_the_verdict_of_the_last_audit(world: PageWorld, browser: Browser) -> None:
    assert browser.text("#audit") == "not run"
    acts(world, "audited", {"right": True, "targets": 3, "wrong": []})
    browser.until("return document.getElementById('audit').textContent === 'right'")
    assert browser.text("#audit-more").startswith("3 targets, ")
    told(browser, "audit", "3 targets hold exactly what the log says")
    acts(world, "audited", {"right": False, "targets": 3, "wrong": ["shard2"]})
    browser.until("return document.getElementById('audit').textContent === 'WRONG'")
    assert browser.text("#audit-more").endswith(": shard2")
    told(browser, "audit", "not as the log says: shard2")
    acts(world, "audited", {"right": True, "targets": 1, "wrong": []})
    browser.until("return document.getElementById('audit-more').textContent.startsWith('1 target, ')")


def test_page_terminal_metrics_and_json_agree(world: PageWorld, browser: Browser) -> None:
    """In a steady stream, while a target is away, and while it comes back; at rest they are equal."""
    first = world.append(1)
    with appending(world):
        for _ in range(3):
            agree(world, browser)
        shard = world.world.shards["shard3"]
        shard.kill()
        shows(browser, "shard3", "away")
        assert browser.run(probes.MAP)["dots"] == ["shard1:", "shard2:", "shard3:bad"]
        for _ in range(3):
            agree(world, browser)
        shard.start()
        for _ in range(3):
            agree(world, browser)
    index = world.append(1)
    assert index > first + 50, "there was no stream"
    browser.until(probes.FINE, index)
    agree(world, browser)


def test_one_status_is_shown_in_the_same_way_everywhere(world: PageWorld, browser: Browser) -> None:
    """States, lags, rates, times to catch up and delays: of one moment, so they are equal."""
    acts(world, "suspend", {"target": "shard1"})
    with appending(world):
        browser.until("return window.logplayer.targets.get('shard1').lag_entries > 100")
        browser.until("return window.logplayer.status.delay_p50_ms > 0")
        status = show_the_same(world, browser)
    assert status["delay_p50_ms"] > 0
    assert max(target["lag_entries"] for target in status["targets"]) > 100
    assert max(target["entries_per_second"] for target in status["targets"]) > 0
    acts(world, "resume", {"target": "shard1"})


def test_a_page_whose_player_is_frozen_says_so_and_comes_back(world: PageWorld, browser: Browser) -> None:
    """The connection stands and brings nothing more, as when the machine vanishes or the network drops packets."""
    world.player.signal(signal.SIGSTOP)
    try:
        headline(browser, "This page has lost its connection; it tries again.")
        assert browser.text("#link") == "no connection"
    finally:
        world.player.signal(signal.SIGCONT)
    browser.until("return document.querySelector('#link').textContent === 'connected'")
    headline(browser, "All 3 targets have everything.")
    last = world.append(5)  # The new stream goes on.
    browser.until("return [...window.logplayer.targets.values()].some(t => t.index >= arguments[0])", last)


def test_a_player_that_is_superseded_shows_the_fence(world: PageWorld, browser: Browser) -> None:
    """Its page has the reason as the last item, before it loses its connection."""
    [port] = free_ports(1)
    arguments = [*world.player.arguments, "--take-over"]
    arguments[arguments.index("--http") + 1] = f"127.0.0.1:{port}"
    newer = world._family.add("newer", *arguments)
    newer.wait_for(r'"event": "playing"')
    told(browser, "fenced", "stepping down: ")
    headline(browser, "This page has lost its connection; it tries again.")
    assert world.player.wait_for_end() == 3
    browser.open(f"http://127.0.0.1:{port}/")
    headline(browser, "All 3 targets have everything.")
    told(browser, "takeover", "took over as epoch")
    browser.problems()  # Of the page without a player.

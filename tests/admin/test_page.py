"""The page in a real Chromium, against real processes: what an operator sees and does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from logplayer.admin import feed
from logplayer.cli.main import VERBS
from tests import ROOT
from tests.admin import page_probes as probes
from tests.admin.browser import Browser, chromium
from tests.admin.page_world import OPERATOR, PageWorld

SHOTS = ROOT / "docs" / "images"
SHOT_BYTES_MAX = 150_000
TAB, ENTER, ESCAPE = "\ue004", "\ue007", "\ue00c"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageWorld]:
    with PageWorld(tmp_path_factory.mktemp("page"), 3) as made:
        made.append(30)
        yield made


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(world: PageWorld, window: Browser) -> Iterator[Browser]:
    """On the page, with all targets live; whatever the console complains of fails the test."""
    window.look(1280, 1000)
    window.open(world.url)
    window.run("sessionStorage.clear()")
    window.open(world.url)
    headline(window, "All 3 targets have everything.")
    window.problems()
    yield window
    unexpected = [line for line in window.problems() if "403" not in line and "401" not in line and "400" not in line]
    assert unexpected == []


def headline(browser: Browser, text: str) -> None:
    browser.until("return document.querySelector('#headline').textContent === arguments[0]", text)


def shows(browser: Browser, target: str, state: str) -> None:
    browser.until(probes.ROW + "return row?.querySelector('.pill').textContent === arguments[1]", target, state)


def told(browser: Browser, *words: str) -> None:
    """Whether one item of the time line has all the words."""
    browser.until(probes.SAYS, *words)


def show_token(browser: Browser, token: str = OPERATOR) -> None:
    browser.click("#token")
    browser.type("#dialog-fields input", token)
    browser.click("#confirm")
    browser.until("return !document.getElementById('dialog').open")


def act(browser: Browser, target: str, action: str, **fields: str) -> str:
    """Choose an action of a target and confirm it; what the confirmation says."""
    browser.click(f"#t-{target} .open")
    browser.click(f"#dialog [data-action={action}]")
    for name, value in fields.items():
        browser.type(f"#dialog input[name={name}]", value)
    says = browser.text("#dialog-says")
    browser.click("#confirm")
    return says


def done(browser: Browser) -> None:
    """The dialog is closed, and not because of an error."""
    script = "return !document.getElementById('dialog').open || document.getElementById('dialog-error').textContent"
    assert browser.until(script) is True


def test_a_target_that_is_killed_and_comes_back(world: PageWorld, browser: Browser) -> None:
    shard = world.world.shards["shard2"]
    browser.run(probes.WATCH_STATE, "shard2")
    killed = time.time()
    with clock_watched() as watch:
        shard.kill()
        shows(browser, "shard2", "away")
        told(browser, "noticed", "target shard2: SUSPENDED")
    shown_in_time(world, browser, killed, watch)
    assert "Connection refused" in browser.text("#troubles") or "ended" in browser.text("#troubles")
    headline(browser, "1 of 3 targets needs a look; 2 have everything.")
    index = world.append(40_000)  # Enough that a look between two ticks meets it while it catches up.
    browser.until(probes.LAG, "shard2")
    shard.start()
    told(browser, "catches up", "target shard2: CATCHING_UP")
    told(browser, "back", "target shard2: LIVE")
    shows(browser, "shard2", "live")
    headline(browser, "All 3 targets have everything.")
    browser.until("return document.getElementById('cut').textContent.replace(',', '') >= arguments[0]", index)


@contextlib.contextmanager
def clock_watched() -> Iterator[list[float]]:
    """By how many seconds each of many short sleeps was late meanwhile: how busy this machine is."""
    late, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.is_set():
            began = time.monotonic()
            time.sleep(0.05)
            late.append(time.monotonic() - began - 0.05)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield late
    finally:
        over.set()
        thread.join()


def shown_in_time(world: PageWorld, browser: Browser, killed: float, late: list[float]) -> None:
    """The first update after the player noticed shows it, and at most four were sent since the kill: two seconds.

    A machine that was too busy to wake a sleeper in time says nothing of seconds; the order of updates holds there too.
    """
    with urllib.request.urlopen(f"{world.url}timeline?since=0", timeout=60) as answer:
        items = json.load(answer)["items"]
    noticed = next(
        item["at"]
        for item in items
        if (item.get("target"), item.get("state")) == ("shard2", "SUSPENDED") and item["at"] >= round(killed, 3)
    )
    after = "return window.seen.find(([now]) => now > arguments[0] + .001)"
    assert browser.until(after, noticed)[1] == "away"
    seen = [(now, state, at) for now, state, at in browser.run("return window.seen") if now > killed]
    assert {state for now, state, _ in seen if now <= noticed} <= {"live", "away"}
    updates = sorted({now for now, state, _ in seen if state != "away"})
    assert 4 * feed.EVERY_SECONDS <= 2
    assert len(updates) <= 3, f"updates at {updates} did not show the kill at {killed}"
    took = next(at for _, state, at in seen if state == "away") - killed
    lateness = max(*late, float(browser.run("return window.late")))
    print(f"the page showed the kill after {took:.2f} s; short sleeps were up to {lateness:.2f} s late")
    assert took <= 2 or lateness > 0.25


def test_an_operator_suspends_and_resumes(world: PageWorld, browser: Browser) -> None:
    show_token(browser)
    assert "leaves it alone until you resume it" in act(browser, "shard1", "suspend")
    done(browser)
    shows(browser, "shard1", "suspended")
    index = world.append(50)
    act(browser, "shard1", "resume")
    done(browser)
    shows(browser, "shard1", "live")
    browser.until("return window.logplayer.targets.get('shard1').index >= arguments[0]", index)


def test_a_target_that_is_away_is_retried(world: PageWorld, browser: Browser) -> None:
    show_token(browser)
    shard = world.world.shards["shard3"]
    shard.kill()
    shows(browser, "shard3", "away")
    sessions = browser.run("return window.logplayer.targets.get('shard3').sessions")
    act(browser, "shard3", "retry")
    done(browser)
    browser.until("return window.logplayer.targets.get('shard3').sessions > arguments[0]", sessions)
    shard.start()
    shows(browser, "shard3", "live")


def test_a_poisoned_entry_is_quarantined_and_redriven(world: PageWorld, browser: Browser) -> None:
    show_token(browser)
    for shard in world.world.shards:
        world.refuse(shard, "poison")
    index = world.append(1, "poison", "bad-account")
    target = str(browser.until(probes.BLOCKED))
    headline(browser, "1 of 3 targets needs a look; 2 have everything.")
    assert "needs you" in browser.text(f"#t-{target} .t-outlook")
    assert "POISON" in browser.text("#troubles")
    browser.click(f"#t-{target} .open")
    browser.click("#dialog [data-action=quarantine]")
    assert browser.run("return document.querySelector('#dialog input[name=index]').value") == str(index)
    browser.click("#confirm")
    done(browser)
    shows(browser, target, "live")
    told(browser, "decision", f"entry {index} is quarantined")
    for shard in world.world.shards:
        world.accept(shard)
    assert world.value(target, "bad-account") is None
    headline(browser, "All 3 targets have everything but 1 quarantined entry.")
    assert "has everything but 1 quarantined entry" in browser.text(f"#t-{target} .t-outlook")
    assert "but 1 quarantined entry: redrive it" in browser.text("#troubles")
    assert browser.text("#rows tr:first-child .t-name") == target
    browser.click(f"#t-{target} .open")
    browser.click("#dialog [data-action=redrive]")
    assert browser.run("return document.querySelector('#dialog input[name=index]').value") == str(index)
    says = browser.text("#dialog-says")
    assert "overwrites newer values" in says
    assert says.endswith(f"Quarantined: {index}.")
    browser.click("#confirm")
    done(browser)
    headline(browser, "All 3 targets have everything.")
    end = time.monotonic() + 120
    while world.value(target, "bad-account") != b"poison":
        assert time.monotonic() < end, "the entry was not redriven"
        time.sleep(0.1)


def test_a_target_is_added_and_removed(world: PageWorld, browser: Browser) -> None:
    show_token(browser)
    path = world.folder / "extra.db"
    where = ("--store", "sqlite", "--path", str(path), "--id", "extra", "--listen-tcp", "127.0.0.1:0", "--json")
    extra = world._family.add("extra", "target", "serve", *where)
    address = json.loads(extra.wait_for(r"\{.*\}").group(0))["addresses"][0]
    browser.click("#add")
    for name, value in (("target", "extra"), ("address", address), ("at", "0")):
        browser.type(f"#dialog input[name={name}]", value)
    browser.click("#confirm")
    done(browser)
    shows(browser, "extra", "live")
    told(browser, "decision", "target extra: added")
    act(browser, "extra", "remove")
    done(browser)
    browser.until("return !document.getElementById('t-extra')")
    act(browser, "shard1", "remove")  # The map gives it keys: refused, and said why.
    browser.until("return document.getElementById('dialog-error').textContent.includes('still gives keys to shard1')")


@pytest.mark.parametrize("token", ["", "guess"])
def test_a_wrong_token_is_refused(world: PageWorld, browser: Browser, token: str) -> None:
    if token:
        show_token(browser, token)
    act(browser, "shard1", "suspend")
    browser.until(
        "return document.getElementById('dialog-error').textContent === arguments[0]", "this needs the operator's token"
    )
    assert browser.run("return window.logplayer.targets.get('shard1').state") == "LIVE"


def tab_to(browser: Browser, name: str) -> None:
    for _ in range(40):
        if browser.run(probes.FOCUS) == name:
            return
        browser.keys(TAB)
    raise AssertionError(f"{name} is not reached by Tab")


def act_by_keys(browser: Browser, action: str) -> None:
    """Of shard1, whose button has the focus; the focus is there again at the end."""
    browser.keys(ENTER)  # Opens the menu, with the focus on its first action.
    assert browser.run("return document.activeElement.dataset.action") == action
    browser.keys(ENTER)
    tab_to(browser, "confirm")
    browser.keys(ENTER)


def test_everything_can_be_done_by_keyboard(world: PageWorld, browser: Browser) -> None:
    """No click, and no focus that is set by a script: a target is suspended and resumed."""
    tab_to(browser, "Act on shard1")
    act_by_keys(browser, "suspend")
    browser.until(probes.ERROR, "this needs the operator's token")
    browser.until("return !document.getElementById('confirm').disabled")
    assert browser.run(probes.FOCUS) == "confirm"
    browser.keys(ESCAPE)
    browser.until("return !document.getElementById('dialog').open")
    assert browser.run(probes.FOCUS) == "Act on shard1"
    tab_to(browser, "token")
    browser.keys(ENTER, *OPERATOR, ENTER)
    browser.until("return !document.getElementById('dialog').open")
    assert browser.run(probes.FOCUS) == "token"
    tab_to(browser, "Act on shard1")
    for action, state in (("suspend", "suspended"), ("resume", "live")):
        act_by_keys(browser, action)
        done(browser)
        shows(browser, "shard1", state)
        assert browser.run(probes.FOCUS) == "Act on shard1"
    for name in ("find", "add", "Act on shard3", "timeline"):
        tab_to(browser, name)


def test_a_screen_reader_gets_names_and_structure(browser: Browser) -> None:
    nodes = browser.accessibility()
    roles = [node["role"]["value"] for node in nodes]
    named = {(node["role"]["value"], node["name"]["value"]) for node in nodes if "name" in node}
    assert {"banner", "main", "table", "columnheader", "rowheader", "status"} <= set(roles)
    assert {("button", "Act on shard1"), ("button", "Add a target…"), ("searchbox", "Find a target")} <= named
    assert {("columnheader", "Will it catch up?"), ("rowheader", "shard1")} <= named
    assert any(role == "heading" and name == "Targets" for role, name in named)
    for role, name in named:
        if role in ("button", "link", "searchbox", "image"):
            assert name.strip(), role
    assert browser.run("return document.querySelector('#headline').ariaLive") == "polite"


def test_a_screen_reader_gets_what_a_confirmation_says(world: PageWorld, browser: Browser) -> None:
    opens = "return document.querySelector(arguments[0]).getAttribute('aria-haspopup')"
    assert [browser.run(opens, selector) for selector in ("#t-shard1 .open", "#add", "#token")] == ["dialog"] * 3
    browser.click("#t-shard1 .open")
    [(name, description)] = described(browser, "dialog")
    assert (name, description) == ("shard1", browser.text("#dialog-says"))
    assert "session" in description
    browser.click("#dialog [data-action=suspend]")
    says = browser.text("#dialog-says")
    assert "leaves it alone until you resume it" in says
    assert described(browser, "dialog") == [("Suspend shard1?", says)]
    assert ("Cancel", f"Suspend shard1? {says}") in described(browser, "button")  # The focus comes from the menu.
    browser.keys(ESCAPE)
    browser.until("return !document.getElementById('dialog').open")
    browser.click("#add")
    assert described(browser, "dialog") == [("Add a target", browser.text("#dialog-says"))]
    assert ("Cancel", "") in described(browser, "button")
    browser.keys(ESCAPE)


def described(browser: Browser, role: str) -> list[tuple[str, str]]:
    """Name and description of each element with this role, as a screen reader gets them."""
    nodes = [node for node in browser.accessibility() if node["role"]["value"] == role]
    return [(node["name"]["value"], node.get("description", {}).get("value", "")) for node in nodes]


def test_nothing_is_asked_of_anyone_else(world: PageWorld, browser: Browser) -> None:
    urls = browser.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert urls
    assert {url for url in urls if not url.startswith(world.url)} == set()
    assert browser.run("return document.querySelectorAll('[src^=http], [href^=http]').length") == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390, 320])
def test_it_fits_and_can_be_read(browser: Browser, dark: bool, width: int) -> None:
    browser.look(width, 844, dark=dark, mobile=width < 500)
    browser.until("return window.innerWidth === arguments[0]", width)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(probes.LOW_CONTRAST) == []
    assert width > 500 or browser.run(probes.SMALL_BUTTONS) == []  # A finger's width.


def test_screenshots(world: PageWorld, browser: Browser, tmp_path: Path) -> None:
    """A target is away and others catch up: wide and narrow, light and dark."""
    folder = SHOTS if os.environ.get("SCREENSHOTS") else tmp_path
    folder.mkdir(exist_ok=True)
    shard = world.world.shards["shard2"]
    shard.kill()
    shows(browser, "shard2", "away")
    for _ in range(6):
        world.append(300)
    headline(browser, "1 of 3 targets needs a look; 2 have everything.")
    for name, width, height, dark in (
        ("page-light-wide", 1280, 1180, False),
        ("page-dark-wide", 1280, 1180, True),
        ("page-light-narrow", 390, 844, False),
        ("page-dark-narrow", 390, 844, True),
    ):
        browser.look(width, height, dark=dark, mobile=width < 500)
        time.sleep(2.5)  # Two points of the chart.
        browser.screenshot(folder / f"{name}.png")
        assert 10_000 < (folder / f"{name}.png").stat().st_size < SHOT_BYTES_MAX
    browser.look(1280, 1000)
    shard.start()
    headline(browser, "All 3 targets have everything.")


def test_a_page_that_loses_its_player_says_so_and_comes_back(world: PageWorld, browser: Browser) -> None:
    world.player.kill()
    headline(browser, "This page has lost its connection; it tries again.")
    assert browser.text("#link") == "no connection"
    world.player.start()
    browser.until("return document.querySelector('#link').textContent === 'connected'")
    headline(browser, "All 3 targets have everything.")
    told(browser, "takeover", "took over as epoch")
    browser.problems()  # Of the time without a connection.


def test_the_commands_that_are_shown_exist() -> None:
    script = (ROOT / "src/logplayer/admin/page/page.js").read_text()
    for verb in re.findall(r"logplayer ([a-z]+) --", script):
        assert verb in VERBS

"""``logplayer demo --page``: what was killed, who noticed, how it came back, and the proof at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin import page_probes as probes
from tests.admin.browser import Browser, chromium
from tests.admin.test_page import SHOT_BYTES_MAX, SHOTS


@pytest.fixture
def demo() -> Iterator[str]:
    """The address of a demo's page; the demo ends well by Ctrl-C."""
    command = [sys.executable, "-m", "logplayer.cli", "demo", "--engine", "in-process", "--page", "--seconds", "12"]
    nobody = {**os.environ, "BROWSER": "true"}  # No browser of the user's is opened.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=nobody)
    try:
        assert process.stdout is not None
        found = next(filter(None, (re.search(r"the page: (\S+)", line) for line in process.stdout)))
        yield found[1]
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=120)[0]
        assert (process.returncode, "PROVED: every transfer" in said) == (0, True)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


def test_the_page_tells_the_story(demo: str, browser: Browser, tmp_path: Path) -> None:
    browser.look(1280, 1180)
    browser.open(demo)
    for words in (
        ("the demo", "killed shard1 (kill -9)"),
        ("noticed", "target shard1: SUSPENDED"),
        ("the demo", "froze shard4"),
        ("the demo", "shard1 is back"),
        ("back", "target shard1: LIVE"),
        ("the demo", "killed the player"),
        ("takeover", "took over as epoch"),
        ("the demo", "a second player took over"),
    ):
        browser.until(probes.SAYS, *words)
    browser.until("return document.getElementById('proof-line').textContent.startsWith('PROVED')")
    browser.until("return document.getElementById('headline').textContent === 'All 4 targets have everything.'")
    assert "Lost0" in browser.text("#proof-facts").replace(" ", "")
    time.sleep(1)
    folder = SHOTS if os.environ.get("SCREENSHOTS") else tmp_path
    browser.screenshot(folder / "page-demo.png")
    assert 10_000 < (folder / "page-demo.png").stat().st_size < SHOT_BYTES_MAX

"""The page of a Spark application: all of its groups as one player."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admin import page_probes as probes
from tests.admin.browser import Browser, chromium
from tests.admin.page_agree import agree, appending
from tests.admin.page_world import PageWorld
from tests.admin.test_page import headline, shows, told


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PageWorld]:
    with PageWorld(tmp_path, 3, "--master", "local[3,8]") as made:
        yield made


@pytest.fixture
def browser(world: PageWorld) -> Iterator[Browser]:
    with chromium() as made:
        made.look(1280, 1000)
        made.open(world.url)
        yield made


def test_a_target_of_a_group_goes_and_comes_back(world: PageWorld, browser: Browser) -> None:
    world.append(30)
    headline(browser, "All 3 targets have everything.")
    shard = world.world.shards["shard2"]
    shard.kill()
    shows(browser, "shard2", "away")
    headline(browser, "1 of 3 targets needs a look; 2 have everything.")
    shard.start()
    world.append(30)
    headline(browser, "All 3 targets have everything.")
    agree(world, browser, exact=False)
    with appending(world):
        for _ in range(3):
            agree(world, browser, exact=False)
    for name in world.world.shards:
        world.refuse(name, "poison")
    index = world.append(1, "poison", "bad-account")
    target = str(browser.until(probes.BLOCKED))
    told(browser, "fault", f"target {target}: BLOCKED")  # The workers' own words, through their heartbeats.
    world.cli("target", "quarantine", target, "--index", str(index), "--log", world.world.log, "--player", world.http)
    told(browser, "decision", f"target {target}: entry {index} is quarantined")
    headline(browser, "All 3 targets have everything but 1 quarantined entry.")

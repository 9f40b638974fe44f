"""``kill -9`` at each step of a store's write, in a process of its own: rows, position, session, digest and quarantine
are there all together or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from logplayer.core import digest as digests
from logplayer.core.entry import Delivery, Session
from logplayer.core.fence import Position
from logplayer.target.protocol import Change
from logplayer.testing.conformance.client import value_at
from tests import child_environment
from tests.target.store_places import Place, content, opening, playing, put, transaction, written_for

SESSION = Session(1, 1)
# Every change puts, deletes or keeps something aside, so that each half of it would be seen.
ENTRIES = [
    put(1, "a", "1"),
    transaction(2, a=None, b="2", c="2"),
    Delivery(3, b"whatever", True),
    transaction(4, b="4", c=None),
]
CONTENT = [{}, {"a": "1"}, {"b": "2", "c": "2"}, {"b": "2", "c": "2"}, {"b": "4"}]


def entries(place: Place) -> list[Delivery]:
    return [written_for(place, entry) for entry in ENTRIES]


def changes(place: Place) -> list[Change]:
    return [opening(SESSION)] + [playing(SESSION, e.index - 1, e.index, e) for e in entries(place)]


STEPS = {"store-rows-written": False, "store-position-written": False, "store-committed": True}
CHILD = """
import os, sys
from logplayer import crashpoint
from tests.target.store_places import Place
from tests.target.test_store_crash_steps import changes

kind, name, path, url, crashpoint.armed = sys.argv[1:]
place = Place(kind, path, url)
place.name = name
store = place.open()
for change in changes(place):
    store.apply(change)
    os.write(1, b".")
"""


def run_until_killed(place: Place, step: str) -> int:
    """How many changes were acknowledged before the kill."""
    command = [sys.executable, "-c", CHILD, place.kind, place.name, place.path, place.url, step]
    done = subprocess.run(command, env=child_environment(), capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, f"the step was never taken: {done.stderr.decode()[-2000:]}"
    return len(done.stdout)


def expected(place: Place, count: int) -> Position:
    """The position after that many changes."""
    if count == 0:
        return Position()
    index = count - 1
    return Position(index, SESSION, digests.extend(0, entries(place)[:index]), "log", value_at(index))


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_leaves_all_of_a_change_or_nothing(any_place: Place, step: str) -> None:
    for nth in (1, 3, 5):  # The open, a change that writes rows and deletes, the last.
        place = Place(any_place.kind, any_place.path and f"{any_place.path}-{nth}", any_place.url)
        acked = run_until_killed(place, f"{step}:{nth}")
        assert acked == nth - 1
        there = nth if STEPS[step] else nth - 1
        store = place.open()
        assert store.position() == expected(place, there)
        assert content(store, place) == (CONTENT[there - 1] if there else {})
        assert [index for index, _ in store.quarantine()] == [3] * (there >= 4)
        for change in changes(place)[there:]:  # And it goes on from there.
            store.apply(change)
        assert store.position() == expected(place, len(ENTRIES) + 1)
        assert content(store, place) == CONTENT[-1]
        store.close()

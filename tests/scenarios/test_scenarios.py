"""Every story in this folder prints exactly what it says. ``LOGPLAYER_REWRITE=1`` writes what is printed now."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logplayer.errors import UserError
from logplayer.testing import scenario
from logplayer.testing.sim.story import Story

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    text = path.read_text()
    if os.environ.get(scenario.REWRITE):
        path.write_text(scenario.rewritten(text))
        return
    for block, printed in scenario.play(text):
        assert printed == block.expected, f"{path.name}, the block that ends at line {block.line}"


def test_there_is_a_story_for_each_way_in_which_things_go_wrong() -> None:
    told = " ".join(path.stem for path in STORIES)
    wanted = (
        "normal crash overflow disconnect zombie idle poison membership trim_with_absent reseed drain frozen sparse"
    )
    assert not [word for word in wanted.split() if word not in told]


def test_every_command_is_used_by_some_story_and_documented() -> None:
    used = {
        line.split()[0] for path in STORIES for block in scenario.parse(path.read_text())[0] for line in block.commands
    }
    assert scenario.__doc__ is not None
    for command in Story.commands:
        assert command in scenario.__doc__, command
    unused = set(Story.commands) - used
    assert unused <= {"kill", "retry", "archived"}, unused


STORY = """# A comment.

world targets=1
start at=0
run
----
P1 starts at 0
P1 open t1 as 1.1
t1 accept 1.1 at 0
P1 dispatch 1
P1 opened t1 1.1 at 0
P1 read t1 1.1 (0,1]
P1 join t1

kill p1
status
----
  t1 has index 0 and holds []

# The end.
"""


def test_rewriting_a_true_story_changes_nothing() -> None:
    assert scenario.rewritten(STORY) == STORY


def test_a_false_story_is_told_from_a_true_one() -> None:
    false = STORY.replace("P1 join t1\n", "")
    [first, _] = scenario.play(false)
    assert first[1] != first[0].expected
    assert scenario.rewritten(false) == STORY


def test_the_command_line_checks_and_rewrites(tmp_path: Path) -> None:
    path = tmp_path / "story.txt"
    path.write_text(STORY.replace("P1 join t1\n", ""))
    command = [sys.executable, "-m", "logplayer.testing.scenario"]
    environment = {key: value for key, value in os.environ.items() if key != scenario.REWRITE}
    checked = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False, env=environment)
    assert checked.returncode == 1
    assert "story.txt" in checked.stdout
    assert subprocess.run([*command, "--rewrite", str(path)], check=False, env=environment).returncode == 0
    assert path.read_text() == STORY


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("run\n----\nok\n", "begin with world"),
        ("world targets=1\n----\nok\n\ndance t1\n----\nok\n", "dance"),
        ("world moons=2\n----\nok\n", "moons"),
        ("----\nok\n", "without a command"),
        ("world targets=1\n", "no ---- below"),
    ],
)
def test_a_story_that_cannot_be_read_says_why(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        scenario.play(text)

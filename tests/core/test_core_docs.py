"""The pages about the core say what the code says: paths exist, tables are complete, commands run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from logplayer.core import catch_up, effects, events, fence, player, target_queue, window
from logplayer.core.target_queue import LEGAL, State
from logplayer.testing.sim import checkers
from logplayer.testing.sim.simulation import Simulation
from tests import ROOT

DOCS = ROOT / "docs"
PAGES = ("paper.md", "core.md", "simulator.md")


def page(name: str) -> str:
    return (DOCS / name).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_every_path_that_is_named_exists(name: str) -> None:
    paths = set(re.findall(r"`((?:src|tests|spec|bench|docs)/[\w./]+)`", page(name)))
    assert paths
    assert not [path for path in paths if not (ROOT / path).exists()]
    linked = re.findall(r"\]\(([\w./-]+\.md)\)", page(name))
    assert not [path for path in linked if not (DOCS / path).exists()]


@pytest.mark.parametrize("name", PAGES)
def test_every_name_in_code_exists(name: str) -> None:
    """Names like `TargetQueue.take` or `catch_up.push`."""
    homes: dict[str, object] = {"catch_up": catch_up, "fence": fence}
    modules: tuple[ModuleType, ...] = (player, target_queue, window)
    homes |= {
        cls: getattr(module, cls)
        for module in modules
        for cls in ("Player", "TargetQueue", "Window")
        if hasattr(module, cls)
    }
    for home, attribute in re.findall(r"`(\w+)\.(\w+)[`(]", page(name)):
        if home in homes:
            found = homes[home]
            known = hasattr(found, attribute) or attribute in ("acked", "current")
            assert known, f"{name}: {home}.{attribute}"


def test_every_algorithm_of_the_paper_has_its_place() -> None:
    told = page("paper.md")
    routines = ("push", "front", "pop", "suspend", "fetchingCompleted", "nextBatch", "popBatch", "erase", "dispatch")
    assert not [routine for routine in (*routines, "sendNext", "readNext") if f"`{routine}`" not in told]
    assert all(f"| {letter}, " in told for letter in ("N", "RF", "FC", "S"))


def diagram() -> str:
    """The states, drawn from the table that the code obeys."""
    arrows = [
        f"    {old.value} --> {new.value}" for old in State for new in sorted(LEGAL[old], key=lambda state: state.value)
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> SUSPENDED", *arrows, "```"])


def test_the_diagram_is_the_table() -> None:
    assert f"<!-- generated: states -->\n{diagram()}\n<!-- end -->" in page("core.md"), diagram()


def test_every_event_and_effect_is_told() -> None:
    told = page("core.md")
    names = [kind.__name__ for union in (events.Event, effects.Effect) for kind in get_args(union)]
    assert len(names) == 31
    assert not [name for name in names if f"| `{name}` |" not in told]


def test_the_faults_are_those_of_the_simulator() -> None:
    faults = ", ".join(fault.__name__.strip("_").replace("_", " ") for fault in Simulation._faults)
    told = " ".join(page("simulator.md").split())
    assert f"is twice as likely): {faults}." in told, faults


def test_every_checker_is_told() -> None:
    names = set(re.findall(r'Violation\(\s*"([a-z -]+)"', Path(checkers.__file__).read_text())) | {"stable", "progress"}
    told = page("simulator.md")
    assert not [name for name in names if f"`{name}`" not in told]


def commands() -> list[tuple[str, str]]:
    found = []
    for name in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page(name), re.DOTALL):
            found += [(name, line) for line in block.splitlines() if line]
    return found


@pytest.mark.parametrize(("name", "command"), commands(), ids=[command for _, command in commands()])
def test_every_command_runs(name: str, command: str, tmp_path: Path) -> None:
    words = shlex.split(command)
    if words == ["logplayer", "sim", "--mutants"]:
        pytest.skip("tests/sim/test_sim_hunt.py hunts them all, with the code that this command calls")
    program = {"logplayer": [sys.executable, "-m", "logplayer.cli"], "python": [sys.executable]}[words[0]]
    arguments = [
        str(ROOT / word) if "/" in word else str(tmp_path / word) if word.endswith("json") and word[0] != "-" else word
        for word in words[1:]
    ]
    done = subprocess.run(
        [*program, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_python_in_the_docs_runs(tmp_path: Path) -> None:
    for name in PAGES:
        for block in re.findall(r"```python\n(.*?)```", page(name), re.DOTALL):
            done = subprocess.run(
                [sys.executable, "-c", block], capture_output=True, text=True, check=False, cwd=tmp_path
            )
            assert done.returncode == 0, done.stderr
            assert "log ends at" in done.stdout

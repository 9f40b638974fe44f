"""Every deliberate break of stores, logs and players is caught by the tests that its table names."""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import ROOT
from tests.mutants.ready import Ready, Run

HERE = Path(__file__).parent
SOURCE = ROOT / "src"
TEST_SECONDS_MAX = 120  # A mutant may make a test wait for ever: that test fails then, and so catches it.
TIMEOUT_SECONDS = 280
TIMES = count(1_000_000_000)  # Of edited files: long ago, so never the time of a real one.
UNUSED = ("cacheprovider", "xdist", "pytest_cov")  # Plugins that a hunt does without.
UNCAUGHT = "the mutant survived"
pytestmark = pytest.mark.mutants


class Edit(NamedTuple):
    file: str  # Below src/logplayer.
    old: str
    new: str


class Mutant(NamedTuple):
    name: str
    breaks: str
    tests: tuple[str, ...]
    edits: tuple[Edit, ...]
    seconds: int = TEST_SECONDS_MAX  # Then a test of it fails.


def load() -> list[Mutant]:
    """All tables of this folder; first the mutants that make a test wait, so that the workers end together."""
    mutants = []
    for path in sorted(HERE.glob("*.toml")):
        for row in tomllib.loads(path.read_text())["mutant"]:
            edits = tuple(Edit(edit["file"], edit["old"], edit["new"]) for edit in row["edit"])
            seconds = row.get("seconds", TEST_SECONDS_MAX)
            mutants.append(Mutant(row["name"], row["breaks"], tuple(row["tests"]), edits, seconds))
    return sorted(mutants, key=lambda mutant: mutant.seconds == TEST_SECONDS_MAX)


MUTANTS = load()


def link_all(source: Path, copy: Path, edited: set[Path]) -> None:
    """``copy`` looks like ``source``: links, but real folders down to the ``edited`` files, which are left out."""
    copy.mkdir()
    for path in source.iterdir():
        if any(path in file.parents for file in edited):
            link_all(path, copy / path.name, edited)
        elif not is_left_out(path, edited):
            (copy / path.name).symlink_to(path)


def is_left_out(path: Path, edited: set[Path]) -> bool:
    """An edited file, what was compiled of it, and what is no part of the product."""
    module = path.with_name(path.name.partition(".")[0] + ".py")
    compiled = path.suffix == ".so" and module in edited
    return compiled or path in edited or path.name == "__pycache__" or path.suffix == ".egg-info"


def break_copy(mutant: Mutant, copy: Path) -> None:
    """Make ``copy`` look like src/ with the edits made."""
    edited = {SOURCE / "logplayer" / edit.file for edit in mutant.edits}
    texts = {file: file.read_text() for file in edited}
    for edit in mutant.edits:
        file = SOURCE / "logplayer" / edit.file
        found = texts[file].count(edit.old)
        assert found == 1, f"{edit.file} has {found} times, not once: {edit.old!r}"
        texts[file] = texts[file].replace(edit.old, edit.new)
    shutil.rmtree(copy, ignore_errors=True)
    link_all(SOURCE, copy, edited)
    for file, text in texts.items():
        path = copy / file.relative_to(SOURCE)
        path.write_text(text)
        # Bytecode is known by its source's time and length: no two mutants of a file may look alike.
        os.utime(path, (next(TIMES),) * 2)


@pytest.fixture(scope="session")
def ready() -> Iterator[Ready]:
    ready = Ready()
    yield ready
    ready.close()


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where this worker's mutants stand, one after the other: what was compiled for one serves the next."""
    place = tmp_path_factory.mktemp("broken") / "src"
    compiled = Path(os.environ["PYTHONPYCACHEPREFIX"]) / place.relative_to("/")
    shutil.rmtree(compiled, ignore_errors=True)  # A run that was killed may have left some.
    yield place
    shutil.rmtree(compiled, ignore_errors=True)


def hunt(mutant: Mutant, place: Path, directory: Path, ready: Ready) -> str:
    """What the named tests say of the mutant; ``UNCAUGHT`` if they all pass."""
    break_copy(mutant, place)
    environment = dict(os.environ, PYTHONPATH=str(place))
    for name in [name for name in environment if name.startswith(("PYTEST_", "COV_"))]:
        del environment[name]
    words = ["-m", "", "-x", "--tb=line", "--hypothesis-profile=hunt", "-o", f"timeout={mutant.seconds}"]
    words += ["-o", "timeout_method=thread"]  # It ends the process: a test that hangs may hang in its teardown too.
    words += [word for plugin in UNUSED for word in ("-p", f"no:{plugin}")]
    words += [f"--basetemp={directory / 'tests'}", *mutant.tests]
    output = directory / "output"
    code = ready.run(Run(words, environment, str(place), str(output), TIMEOUT_SECONDS))
    told = output.read_text(errors="replace")
    if code == 0:
        assert re.search(r"\d+ passed", told), told
        return UNCAUGHT
    assert code == 1, f"the tests did not run: {told[-5000:]}"
    if "in pytest_runtest_call" in told and "+ Timeout +" in told:
        return f"a test took more than {mutant.seconds} s"
    assert re.search(r"\d+ failed", told), f"no test failed, only its set-up: {told[-3000:]}"
    return told


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_caught(mutant: Mutant, place: Path, tmp_path: Path, ready: Ready) -> None:
    assert hunt(mutant, place, tmp_path, ready) != UNCAUGHT, f"{mutant.name}: {mutant.breaks}"


def test_no_mutant_is_named_twice() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


HARMLESS = Edit("core/fence.py", "if session <= position.session:", "if not session > position.session:")
HARMFUL = Edit("core/fence.py", "if session <= position.session:", "if False:")
FENCE_TESTS = ("tests/core/test_core_fence.py",)


def test_a_break_that_breaks_nothing_survives(place: Path, tmp_path: Path, ready: Ready) -> None:
    """Otherwise every text would be caught."""
    assert hunt(Mutant("harmless", "nothing", FENCE_TESTS, (HARMLESS,)), place, tmp_path, ready) == UNCAUGHT


def test_the_same_edit_with_a_real_break_is_caught(place: Path, tmp_path: Path, ready: Ready) -> None:
    assert (
        hunt(Mutant("harmful", "a stale session is admitted", FENCE_TESTS, (HARMFUL,)), place, tmp_path, ready)
        != UNCAUGHT
    )


def test_a_test_that_cannot_run_catches_nothing(place: Path, tmp_path: Path, ready: Ready) -> None:
    with pytest.raises(AssertionError, match="did not run"):
        hunt(Mutant("nowhere", "nothing", ("tests/core/no_such_file.py",), (HARMLESS,)), place, tmp_path, ready)


def test_an_edit_that_does_not_fit_is_an_error(place: Path, tmp_path: Path, ready: Ready) -> None:
    stale = Mutant("stale", "nothing", FENCE_TESTS, (Edit("core/fence.py", "no such text", ""),))
    with pytest.raises(AssertionError, match="not once"):
        hunt(stale, place, tmp_path, ready)

"""CI checks the models again when anything about them has changed since they passed, and only then."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import ROOT

SOURCES = [f"src/logplayer/{name}.py" for name in ("testing/spec/tlc", "testing/spec/models", "cli/spec")]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """What tools/spec looks at, and a command in TLC's place that notes that it was called."""
    shutil.copytree(ROOT / "spec", tmp_path / "spec")
    (tmp_path / "spec/checked.sha256").unlink(missing_ok=True)
    for name in ("tools/spec", "requirements.lock", *SOURCES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    command = tmp_path / ".venv/bin/logplayer"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\necho called >> calls\ntest ! -e broken\n")
    command.chmod(0o755)
    return tmp_path


def calls(house: Path, code: int = 0) -> int:
    """How often the models were checked in one more run."""
    (house / "calls").write_text("")
    assert subprocess.run(["tools/spec", "--if-changed"], cwd=house).returncode == code
    return len((house / "calls").read_text().splitlines())


@pytest.mark.parametrize("changed", ["spec/LogPlayer.tla", "spec/models.toml", *SOURCES])
def test_a_change_is_checked_once(house: Path, changed: str) -> None:
    assert [calls(house), calls(house)] == [1, 0]
    with open(house / changed, "a") as file:
        file.write("\n")
    assert [calls(house), calls(house)] == [1, 0]


def test_what_did_not_pass_is_checked_again(house: Path) -> None:
    (house / "broken").touch()
    assert [calls(house, 1), calls(house, 1)] == [1, 1]
    (house / "broken").unlink()
    assert [calls(house), calls(house)] == [1, 0]

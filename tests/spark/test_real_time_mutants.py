"""Every deliberate break of the connector is caught by the tests of queries in real time. `make soak` hunts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import ROOT
from tests.spark.test_real_time import connector

__all__ = ["connector"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
TABLE = tomllib.loads(Path(__file__).with_name("real_time_mutants.toml").read_text())
MUTANTS = {row["name"]: row for row in TABLE["mutant"]}


def broken_jar(folder: Path, file: str, old: str, new: str) -> Path:
    """The connector with one place changed."""
    shutil.copytree(ROOT / "jvm", folder / "jvm")
    (folder / "src").symlink_to(ROOT / "src")
    (folder / "tools").symlink_to(ROOT / "tools")
    [place] = (folder / "jvm").rglob(file)
    text = place.read_text()
    assert text.count(old) == 1, f"{file} no longer has this place once"
    place.write_text(text.replace(old, new))
    built = folder / "broken.jar"
    subprocess.run([ROOT / "tools" / "jvm", folder / "jvm", built], check=True, capture_output=True)
    return built


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_caught(name: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    built = broken_jar(tmp_path, mutant["file"], mutant["old"], mutant["new"])
    # A session that has the connector from its start is not given another one.
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--jars {built} pyspark-shell"}
    chosen = [f"tests/spark/{mutant.get('module', 'test_real_time')}.py::{test}" for test in mutant["tests"]]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "realtime", "--timeout=240", *chosen]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, f"{mutant['breaks']}: the mutant survived\n{done.stdout[-1500:]}"
    assert " failed" in done.stdout or "FAILED" in done.stdout, done.stdout[-1500:]

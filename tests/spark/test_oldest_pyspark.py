"""The other end of the versions of PySpark that the extra ``spark`` allows; the lock file has the newest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import ROOT

TESTS = ("test_source", "test_parity", "test_sinks", "test_once", "test_bulk", "test_resident")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_oldest_pyspark_does_it_all(tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [oldest] = [found[1] for name in extras["spark"] if (found := re.match(r"pyspark>=([\d.]+)", name))]
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(tmp_path),
        f"pyspark=={oldest}",
    ]
    subprocess.run(install, check=True, timeout=600)
    words = [sys.executable, "-m", "pytest", "-n", "0", *(f"tests/spark/{name}.py" for name in TESTS)]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)}, timeout=1200)
    assert done.returncode == 0

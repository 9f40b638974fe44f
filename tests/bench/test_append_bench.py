"""The benchmark of appends through the log server runs, and reports its ratios."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests import ROOT


def test_it_reports_the_ratios(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "bench/parts/append_bench.py"),
        "--scale",
        "0.02",
        "--json",
        "--dir",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["one_process"]["served_to_embedded"] > 0
    assert result["lone"]["served_to_bound"] > 0
    assert result["eight_processes"]["served_mb_s"] > 0
    assert not list(tmp_path.iterdir())


def test_it_shows_where_the_time_of_the_server_goes(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench/parts/append_bench.py"), "--profile", "--scale", "0.2"]
    done = subprocess.run([*command, "--dir", str(tmp_path)], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "Writer._run (logplayer/log/file/writer.py)" in done.stdout
    assert not list(tmp_path.iterdir())

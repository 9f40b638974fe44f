"""``python -m bench``, from the root of a checkout."""

from __future__ import annotations

from bench.cli import bench
from logplayer.cli.main import run

run(bench, "python -m bench")

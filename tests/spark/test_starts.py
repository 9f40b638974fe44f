"""What a new Python process of Spark loads before the first row: only what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyarrow", "grpc", "google.protobuf", "uvloop", "pandas")
LOOK_UP = "from pyspark_logplayer import DefaultSource"
CREATE = f"""{LOOK_UP}
DefaultSource({{"log": "grpc://127.0.0.1:1", "addresses": "a=grpc://127.0.0.1:2", "map": "hash:a"}}).schema()"""
STAGE = """import pyarrow
from logplayer.spark.sinks.targets import TargetWriter
from logplayer.spark.sinks.log import LogStreamWriter"""


@pytest.mark.parametrize(
    ("code", "heavy"),
    [(LOOK_UP, HEAVY), (CREATE, HEAVY), (STAGE, ("grpc", "google.protobuf", "uvloop", "pandas"))],
    ids=["look up", "create", "stage"],
)
def test_a_process_that_reaches_nobody_loads_no_transport(code: str, heavy: tuple[str, ...]) -> None:
    program = f"{code}\nimport sys\nprint([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"

"""What a new Python process of Spark loads before the first row: only what it needs."""

from __future__ import annotations

import subprocess
import sys
from unittest import mock

import pytest

from logplayer.spark.session import executors

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


def test_an_executor_without_a_port_has_its_place_already() -> None:
    """Spark says so between the moment when it is added and its block manager's word."""
    listed = [("10.0.0.1:7078", "driver", 0), ("10.0.0.2", "0", 4), ("10.0.0.3:35001", "1", 2)]
    each = [
        mock.Mock(**{"hostPort.return_value": at, "id.return_value": who, "maxTasks.return_value": tasks})
        for at, who, tasks in listed
    ]
    session = mock.Mock()
    found = session.sparkContext._jsc.sc().statusStore().executorList.return_value
    found.size.return_value, found.apply.side_effect = len(each), each.__getitem__
    assert executors(session) == {"executor_10.0.0.2_0": 4, "executor_10.0.0.3_1": 2}

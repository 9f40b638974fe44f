"""The daemon of Spark's Python workers has imported the player before it forks, and that started no thread."""

from __future__ import annotations

import json
import subprocess
import sys

from logplayer.spark.resident.daemon import MODULES
from logplayer.spark.session import PLAY_SETTINGS

LOOK = """
import json, os, sys
from logplayer.spark.resident import daemon
daemon.load()
print(json.dumps([sorted(sys.modules), len(os.listdir("/proc/self/task"))]))
"""


def test_the_daemon_loads_the_player_and_starts_no_thread() -> None:
    """A thread that holds a lock while the daemon forks would hang the worker now and then."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=120)
    modules, threads = json.loads(done.stdout)
    assert set(MODULES) <= set(modules)
    assert threads == 1
    assert not {"pyarrow", "pandas"} & set(modules)  # These start threads.


def test_play_names_the_daemon() -> None:
    assert PLAY_SETTINGS["spark.python.daemon.module"] == "logplayer.spark.resident.daemon"

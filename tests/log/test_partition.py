"""A leader that is cut off from the other members, and a log server that vanishes, in network namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import child_environment
from tests.log.etcd_servers import require_etcd
from tests.log.log_support import missing
from tests.namespaces import inside, require_namespaces


def test_a_leader_that_is_cut_off(tmp_path: Path) -> None:
    """Three times: the others elect a new one, appends go on there, and nothing is lost or twice when it is healed."""
    require_etcd()
    run_inside("partition_child", tmp_path)


def test_a_log_server_whose_machine_vanishes(tmp_path: Path) -> None:
    """No packet comes from it, and no connection breaks: appends, questions and readers go to the next server."""
    run_inside("vanish_child", tmp_path)


def run_inside(child: str, folder: Path) -> None:
    require_namespaces()
    if os.geteuid() != 0:
        missing("only root can make named network namespaces")
    command = [sys.executable, "-m", f"tests.log.{child}", str(folder)]
    done = subprocess.run(inside(command), capture_output=True, text=True, timeout=280, env=child_environment())
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "acknowledged" in done.stdout

"""A leader that is cut off from the other members, in network namespaces."""

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
    require_namespaces()
    if os.geteuid() != 0:
        missing("only root can make named network namespaces")
    command = [sys.executable, "-m", "tests.log.partition_child", str(tmp_path)]
    done = subprocess.run(inside(command), capture_output=True, text=True, timeout=280, env=child_environment())
    assert done.returncode == 0, done.stderr[-4000:]
    assert "acknowledged" in done.stdout

"""A network of its own for a test: loopback, and one address that is not loopback. No other network is reached."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from tests.servers import missing

HOST = "10.77.0.1"


def inside(command: Sequence[str]) -> list[str]:
    """``command`` as it runs in a fresh network namespace in which :data:`HOST` is this machine."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    setup = f'ip link set lo up && ip addr add {HOST}/24 dev lo && exec "$@"'
    return ["unshare", "--net", *as_root, "sh", "-c", setup, "sh", *command]


def require_namespaces() -> None:
    """Skip where the kernel or the user's rights do not allow it; fail in CI."""
    for tool in ("unshare", "ip"):
        if shutil.which(tool) is None:
            missing(f"{tool} is not installed, so no network namespace can be made")
    tried = subprocess.run(inside(["true"]), capture_output=True, text=True, check=False)
    if tried.returncode:
        missing(f"no network namespace can be made here: {tried.stderr.strip()}")

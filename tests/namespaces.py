"""A network of its own for a test: loopback, and one address that is not loopback. No other network is reached."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.servers import missing

HOST = "10.77.0.1"


def inside(command: Sequence[str], hosts: Path | None = None) -> list[str]:
    """``command`` as it runs in a fresh network namespace in which :data:`HOST` is this machine.

    ``hosts`` is a file that stands in the place of /etc/hosts there; no other names are found. (gRPC asks for IPv6
    addresses too, and would wait for 11 s for the answer of a name server that cannot be reached.)
    """
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    own, mounts = [], ""
    if hosts is not None:
        own, mounts = ["--mount"], f"mount --bind {shlex.quote(str(hosts))} /etc/hosts && "
        mounts += "mount --bind /dev/null /etc/resolv.conf && "
    setup = f'{mounts}ip link set lo up && ip addr add {HOST}/24 dev lo && exec "$@"'
    return ["unshare", "--net", *own, *as_root, "sh", "-c", setup, "sh", *command]


def require_namespaces() -> None:
    """Skip where the kernel or the user's rights do not allow it; fail in CI."""
    for tool in ("unshare", "ip"):
        if shutil.which(tool) is None:
            missing(f"{tool} is not installed, so no network namespace can be made")
    tried = subprocess.run(inside(["true"]), capture_output=True, text=True, check=False)
    if tried.returncode:
        missing(f"no network namespace can be made here: {tried.stderr.strip()}")
